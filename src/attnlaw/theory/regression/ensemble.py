"""An ensemble of learners on the same samples, each with its own random features: the problem and its parts.

Inputs are x ~ N(0, I_d), and the teacher is nu = theta . x/sqrt(d), of variance 1. Learner k sees p features
v_k = act(F_k x/sqrt(d)) and minimises over its weights w

    sum_i l(y_i, w . v_k/sqrt(p)) + (ridge/2) |w|^2

which is a sum over the n samples, not a mean. Labels are nu with noise for the square loss, and sign(nu) for
the other losses. In the limit of large sizes, features behave like Gaussian ones with two moments:

| here | meaning, with g standard normal |
|---|---|
| kappa_1 | E g act(g), the linear part |
| kappa_*^2 | E act(g)^2 - kappa_1^2, the rest, which acts as noise (act is odd, so its mean is 0) |
| s | eigenvalues of F F^T/d: Marchenko-Pastur with p/d, and an atom 1 - d/p at 0 if p > d |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.variants import Variants, by_name, parse_positive, with_parameter
from attnlaw.numerics.prox import HINGE, LOGISTIC, SQUARE, Loss
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur

FAR = 12.0  # standard deviations; the mass beyond is below the precision of float64


@dataclass(frozen=True)
class LossChoice:
    """A loss that the learners of an ensemble can minimise."""

    name: str
    label: str
    loss: Loss

    @property
    def classifies(self) -> bool:
        return self.loss.signs

    @property
    def noisy(self) -> bool:
        return not self.classifies


@dataclass(frozen=True)
class Features:
    """An odd activation function of random features."""

    name: str
    function: Callable[..., Reals]  # the activation act
    moments: Callable[..., tuple[float, float]]  # returns its moments (kappa_1, kappa_*^2)
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Features:
        return with_parameter(self, parameter, parse_positive(parameter))


def _tanh_moments(gain: float) -> tuple[float, float]:
    """Compute the moments (kappa_1, kappa_*^2) of tanh(gain z) by quadrature."""
    linear, second = (
        2
        * scipy.integrate.quad(
            _weighted, 0.0, FAR, (gain, power), points=[min(3 / gain, FAR / 2)], epsabs=1e-14, epsrel=1e-13
        )[0]
        for power in (1, 2)
    )
    return linear, second - linear**2


def _weighted(z: float, gain: float, power: int) -> float:
    """Return z tanh(gain z) (power 1) or tanh(gain z)^2 (power 2), times the normal density."""
    value = math.tanh(gain * z)
    return (z * value if power == 1 else value**2) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


LOSSES = by_name(
    LossChoice("square", "ridge", SQUARE),
    LossChoice("logistic", "logistic", LOGISTIC),
    LossChoice("hinge", "hinge", HINGE),
)
FEATURES = Variants(
    Features("sign", np.sign, lambda: (math.sqrt(2 / math.pi), 1 - 2 / math.pi)),
    Features("tanh:G", lambda z, gain: np.tanh(gain * z), _tanh_moments, example="tanh:2"),
)


@settings_dataclass
class Ensemble(Settings):
    """The settings of an ensemble. All its learners share them.

    >>> Ensemble(samples=600, features=450, inputs=300, loss="logistic").ridge
    0.01
    """

    samples: int = setting(600, "Number of samples, which all learners share.", symbol="n", minimum=1)
    features: int = setting(450, "Number of random features that each learner has.", symbol="p", minimum=1)
    inputs: int = setting(300, "Dimension of the inputs.", symbol="d", minimum=1)
    loss: str = setting("square", "Loss that each learner minimises.", choices=LOSSES)
    ridge: float = setting(
        0.01,
        "Strength λ of the penalty λ‖w‖²/2 on a learner's weights w, which is added to its summed loss.",
        symbol="λ",
        minimum=0,
    )
    activation: str = setting("sign", "Activation function of the random features.", choices=FEATURES)
    noise: float = setting(
        0.2,
        "Variance of the noise that is added to the labels.",
        symbol="Δ",
        minimum=0,
        active_if=("loss", "noisy"),
    )


def apply_activation(name: str, x: Reals) -> Reals:
    """Apply an activation of `FEATURES` to every entry of x."""
    chosen = FEATURES[name]
    return chosen.function(x, *chosen.parameters)


def feature_moments(name: str) -> tuple[float, float]:
    """Return the moments kappa_1 and kappa_*^2 of an activation from `FEATURES`."""
    chosen = FEATURES[name]
    return chosen.moments(*chosen.parameters)


def feature_spectrum(features: int, inputs: int) -> tuple[Reals, Reals]:
    """Return points and weights for averages over the eigenvalues of the matrix F F^T/d."""
    law = MarchenkoPastur(inputs / features, scale=math.sqrt(features / inputs))
    points, weights = law.nodes()
    atoms = np.array(law.atoms).reshape(-1, 2)
    return np.append(points, atoms[:, 0]), np.append(weights, atoms[:, 1])
