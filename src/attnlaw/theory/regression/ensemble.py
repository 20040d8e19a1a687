"""An ensemble of learners on the same samples, each with random features of its own: the frozen record.

Normalisation, stated once: x ~ N(0, I_d), the teacher is nu = theta . x/sqrt(d) of variance 1, learner k sees
v_k = act(F_k x/sqrt(d)) of p features and minimises over its own w

    sum_i l(y_i, w . v_k/sqrt(p)) + (ridge/2) |w|^2

a sum and not a mean over the n samples. Labels are nu with noise for the square loss, sign(nu) for the
others.
"""

from __future__ import annotations

from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.theory.regression.variants import FEATURES, LOSSES


@settings_dataclass
class Ensemble(Settings):
    """What all learners of an ensemble share.

    >>> Ensemble(samples=600, features=450, inputs=300, loss="logistic").ridge
    0.01
    """

    samples: int = setting(600, "Samples, the same for every learner.", symbol="n", minimum=1)
    features: int = setting(450, "Features of a learner.", symbol="p", minimum=1)
    inputs: int = setting(300, "Dimension of the inputs.", symbol="d", minimum=1)
    loss: str = setting("square", "What a learner minimises.", choices=LOSSES)
    ridge: float = setting(0.01, "Penalty of ‖w‖²/2, against the sum over samples.", symbol="λ", minimum=0)
    activation: str = setting("sign", "Of the features.", choices=FEATURES)
    noise: float = setting(
        0.2, "Variance of the noise of labels.", symbol="Δ", minimum=0, active_if=("loss", "noisy")
    )
