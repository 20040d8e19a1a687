r"""Compute how large the matrices of a model were before training, to show how much training changed them.

| here   | means                                                                                          |
|--------|------------------------------------------------------------------------------------------------|
| M      | QK or VO of a head, or a matrix of an MLP, as it is stored                                     |
| N, d   | width of the model (rows of W_Q), and size of a head                                           |
| std    | standard deviation of the initial entries of a factor (W_Q, W_K, ...)                          |
| size   | root of E \|M\|_F^2 = sqrt(rows columns d) times the std of both factors of M. A matrix of an  |
|        | MLP is one factor and has no d.                                                                |
| spread | root of E p_ij^2 of the scores p_ij of isotropic tokens: s sqrt(d) g_Q g_K with the score's    |
|        | scale s. Here g = sqrt(N) std, or 1 if queries (keys) are normalised. `logit_typical` is the   |
|        | same quantity after training.                                                                  |

Both formulas ignore the epsilon of norm layers and are exact otherwise. The size of a single draw differs
from the formula by a relative error of about sqrt((2 N + d) / (2 d)) / N. A ratio of 1 means that a matrix is
as large as at its start. It does not mean that the matrix is unchanged.
"""

from __future__ import annotations

import math

from attnlaw.checkpoints.blocks import Attention
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
    """Return the deviations of the initial weights; None if the config does not determine them."""
    if model.config is None or model.network.towers:
        return None
    return deviations_of(model.config, len(model.layers))


def initial_size(std: Deviations, kind: str, shape: tuple[int, int], inner: int | None) -> float | None:
    """Return the root mean square Frobenius norm over initialisations; None for an unknown kind of matrix."""
    if kind not in FACTORS:
        return None
    deviations: list[float] = [getattr(std, name) for name in FACTORS[kind]]
    return math.sqrt(math.prod(shape) * (inner or 1)) * math.prod(deviations)


def initial_spread(std: Deviations, block: Attention) -> float:
    """Return the root mean square score of isotropic tokens over initialisations, up to the cap of scores."""
    scores, d = block.scores, float(block.head_size)
    if scores.rotary is not None and scores.rotary.scale is not None:  # YaRN scales the rotated dimensions
        d += min(scores.rotary.size, d) * (scores.rotary.scale**4 - 1)
    gains = [
        1.0 if norm is not None else math.sqrt(view.shape[0]) * deviation
        for norm, deviation, view in (
            (scores.query_norm, std.query, block.query),
            (scores.key_norm, std.key, block.key),
        )
    ]
    spread = scores.scale * math.sqrt(d) * math.prod(gains)
    return spread if scores.cap is None else min(scores.cap, spread)
