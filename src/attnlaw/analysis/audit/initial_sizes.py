r"""How large the matrices of a model were before training, to tell how far training moved them.

| here   | means                                                                                          |
|--------|------------------------------------------------------------------------------------------------|
| M      | QK or VO of a head, or a matrix of an MLP, as it is stored                                     |
| size   | root of E \|M\|_F^2: sqrt(rows columns d) times the deviations of its factors; one has no d    |
| spread | root of E p_ij^2 of scores of isotropic tokens: s sqrt(d) g_Q g_K, g = sqrt(N) std, or 1 if    |
|        | queries or keys are normalised; `logit_typical` is the same after training                     |

Both are exact without the epsilon of norms. The size of a single draw is within about sqrt((2 N + d) / (2 d))
/ N of it, relatively. A ratio of 1 means that a head is as large as at its start, not that it is unchanged.
"""

from __future__ import annotations

import math

from attnlaw.checkpoints.blocks import Attention, Norm
from attnlaw.checkpoints.model import Model
from attnlaw.theory.init.architecture import Deviations
from attnlaw.theory.init.configuration import deviations_of

# The factors of each kind of matrix, as fields of `Deviations`.
FACTORS = {
    "qk": ("query", "key"),
    "vo": ("value", "residual"),
    "ffn_in": ("inner",),
    "ffn_gate": ("inner",),
    "ffn_out": ("residual",),
}


def initial_deviations(model: Model) -> Deviations | None:
    """Return the standard deviations with which the model's library draws its weights.

    None if the config does not say, or if the model has several towers, because a config describes one.
    """
    if model.config is None or model.network.towers:
        return None
    return deviations_of(model.config, len(model.layers))


def initial_size(std: Deviations, kind: str, shape: tuple[int, int], inner: int | None) -> float | None:
    """Return the root mean square of the Frobenius norm over initialisations.

    None if the initialisation of this kind of matrix is not known.

    >>> initial_size(Deviations.all_equal(0.5), "qk", (64, 64), 16)
    64.0
    """
    if kind not in FACTORS:
        return None
    deviations: list[float] = [getattr(std, name) for name in FACTORS[kind]]
    return math.sqrt(math.prod(shape) * (inner or 1)) * math.prod(deviations)


def initial_spread(std: Deviations, block: Attention) -> float:
    """Return the root mean square score of isotropic tokens over initialisations, at most the cap."""
    scores, d = block.scores, float(block.head_size)
    if scores.rotary is not None and scores.rotary.scale is not None:  # YaRN scales what it rotates
        d += min(scores.rotary.size, d) * (scores.rotary.scale**4 - 1)
    gains = [
        _gain(norm, deviation, view.shape[0])
        for norm, deviation, view in (
            (scores.query_norm, std.query, block.query),
            (scores.key_norm, std.key, block.key),
        )
    ]
    spread = scores.scale * math.sqrt(d) * math.prod(gains)
    return spread if scores.cap is None else min(scores.cap, spread)


def _gain(norm: Norm | None, deviation: float, fan_in: int) -> float:
    return 1.0 if norm is not None else math.sqrt(fan_in) * deviation
