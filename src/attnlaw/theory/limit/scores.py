"""From queries and keys to attention: scaling, rotary positions, mask and score function.

| here    | means                                                                       |
|---------|-----------------------------------------------------------------------------|
| p       | scores, (..., s, s): row i belongs to the query of token i                  |
| A       | attention weights, f(p) under the mask                                      |
| theta_f | rotary frequencies: plane f of a head turns by theta_f times the position   |

Softmax at temperature T is the query variance 1/T^2, so it needs no option of its own.
Cross attention is a mask: list queries and keys as tokens and let queries see the keys only (the
scores of a query depend on the two Gram matrices alone, since W_Q and W_K are independent).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from attnlaw.core.arrays import require_shapes
from attnlaw.core.errors import InputError
from attnlaw.core.lazy import resolve
from attnlaw.core.settings import check_value
from attnlaw.theory.limit.variants import MASKS, SCALINGS, SCORES
from attnlaw.theory.limit.wishart import Array

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoreSettings:
    """How scores are scaled, rotated, masked and turned into attention weights.

    `mask` is `none`, `causal` (j <= i), `band:K` (|i - j| <= K) or an s x s array, true where token i
    may look at token j. Functions other than softmax act entry by entry, without normalisation.
    `frequencies` switches rotary positions on; at finite head width n_H they share its n_H / 2 planes
    evenly, so 2 F must divide n_H.

    >>> ScoreSettings(mask="causal").allowed(2).tolist()
    [[True, False], [True, True]]
    """

    function: str = "softmax"
    scaling: str = "1/sqrt(n)"
    mask: str | BoolArray = "none"
    frequencies: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_value("function", self.function, str, choices=SCORES)
        check_value("scaling", self.scaling, str, choices=SCALINGS)
        if isinstance(self.mask, str):
            check_value("mask", self.mask, str, choices=MASKS)
        if not all(np.isfinite(self.frequencies)):
            raise InputError(f"rotary frequencies {self.frequencies} are not all finite; give finite numbers")

    def allowed(self, tokens: int) -> BoolArray:
        """The mask as an s x s array; a softmax row without any allowed entry is an error."""
        if isinstance(self.mask, str):
            known = MASKS[self.mask]
            mask: BoolArray = known.allows(*np.ogrid[:tokens, :tokens], *known.parameters)
        else:
            mask = np.asarray(self.mask, dtype=np.bool_)
        wanted = (tokens, tokens)
        require_shapes(mask.shape == wanted, "scores", f"{wanted} for {tokens} tokens", mask=mask)
        if SCORES[self.function].normalised and not mask.any(axis=1).all():
            row = int((~mask.any(axis=1)).argmax())
            raise InputError(f"the mask hides every token from token {row + 1}; let it see at least one")
        return mask

    def attention(self, p: Array, allowed: BoolArray, axis: int = -1) -> Array:
        """The weights A for scores p, with keys along `axis`; `allowed` broadcasts against p.

        >>> scores = ScoreSettings(mask="causal")
        >>> scores.attention(np.zeros((2, 2)), scores.allowed(2)).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
        """
        weights: Array = resolve(SCORES[self.function].weights)(p, allowed, axis)
        return weights

    def divisor(self, head_width: float) -> float:
        """What scores of unit variance are divided by at this head width: 1 where scaled by 1/sqrt(n)."""
        return SCALINGS[self.scaling].divisor(head_width)


def softmax(p: Array, allowed: BoolArray, axis: int) -> Array:
    shown = p if bool(allowed.all()) else np.where(allowed, p, -np.inf)
    weights: Array = np.exp(shown - shown.max(axis=axis, keepdims=True))
    weights /= weights.sum(axis=axis, keepdims=True)
    return weights


def relu(p: Array, allowed: BoolArray, axis: int) -> Array:
    return np.where(allowed, np.maximum(p, 0.0), 0.0)


def sigmoid(p: Array, allowed: BoolArray, axis: int) -> Array:
    return np.where(allowed, expit(p), 0.0)


def linear(p: Array, allowed: BoolArray, axis: int) -> Array:
    return np.where(allowed, p, 0.0)
