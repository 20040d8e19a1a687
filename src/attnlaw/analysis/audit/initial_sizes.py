r"""How far training moved a matrix from the law that it was drawn with: sizes now over sizes before training.

| here   | means                                                                                          |
|--------|------------------------------------------------------------------------------------------------|
| M      | QK or VO of a head, or a matrix of an MLP, as it is stored                                     |
| size   | root of E \|M\|_F^2: sqrt(rows columns d) times the deviations of its factors; one has no d    |
| spread | root of E p_ij^2 of scores of isotropic tokens: s sqrt(d) g_Q g_K, g = sqrt(N) std, or 1 where |
|        | queries or keys are normalised; `logit_typical` is the same after training                     |

Both are exact without the epsilon of norms; draws of the size lie within about sqrt((2 N + d) / (2 d)) / N of
it. 1 is a head as large as at its start, which it need not be anymore.
"""

from __future__ import annotations

import math

from attnlaw.checkpoints.blocks import Attention, Norm
from attnlaw.checkpoints.model import Model
from attnlaw.theory.init.architecture import Deviations
from attnlaw.theory.init.configuration import deviations_of

# The deviations of the factors of a matrix, by its kind.
FACTORS = {
    "qk": ("query", "key"),
    "vo": ("value", "residual"),
    "ffn_in": ("inner",),
    "ffn_gate": ("inner",),
    "ffn_out": ("residual",),
}


def initial_deviations(model: Model) -> Deviations | None:
    """What the weights of a model were drawn with by its library; None where its config does not tell.

    Of towers beside each other a config tells that of one.
    """
    if model.config is None or model.network.towers:
        return None
    return deviations_of(model.config, len(model.layers))


def initial_size(std: Deviations, kind: str, shape: tuple[int, int], inner: int | None) -> float | None:
    """Root mean square of the Frobenius norm over initialisations; None of a kind that the law has not.

    >>> initial_size(Deviations.all_equal(0.5), "qk", (64, 64), 16)
    64.0
    """
    if kind not in FACTORS:
        return None
    deviations: list[float] = [getattr(std, name) for name in FACTORS[kind]]
    return math.sqrt(math.prod(shape) * (inner or 1)) * math.prod(deviations)


def initial_spread(std: Deviations, block: Attention) -> float:
    """Root mean square score of isotropic tokens over initialisations, capped where the model caps scores."""
    how, d = block.scores, float(block.head_size)
    if how.rotary is not None and how.rotary.scale is not None:  # yarn lengthens what it turns
        d += min(how.rotary.size, d) * (how.rotary.scale**4 - 1)
    gains = [
        _gain(norm, deviation, view.shape[0])
        for norm, deviation, view in (
            (how.query_norm, std.query, block.query),
            (how.key_norm, std.key, block.key),
        )
    ]
    spread = how.scale * math.sqrt(d) * math.prod(gains)
    return spread if how.cap is None else min(how.cap, spread)


def _gain(norm: Norm | None, deviation: float, fan_in: int) -> float:
    return 1.0 if norm is not None else math.sqrt(fan_in) * deviation
