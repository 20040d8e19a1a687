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

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from attnlaw.base.errors import InputError
from attnlaw.limits.wishart import Array

BoolArray = npt.NDArray[np.bool_]
ScoreFunction = Literal["softmax", "relu", "sigmoid", "linear"]
Scaling = Literal["1/sqrt(n)", "1/n"]


@dataclass(frozen=True, eq=False)
class Scores:
    """How scores are scaled, rotated, masked and turned into attention weights.

    `mask` is `none`, `causal` (j <= i), `band:K` (|i - j| <= K) or an s x s array, true where token i
    may look at token j. Functions other than softmax act entry by entry, without normalisation.
    `frequencies` switches rotary positions on; at finite head width n_H they share its n_H / 2 planes
    evenly, so 2 F must divide n_H.

    >>> Scores(mask="causal").allowed(2).tolist()
    [[True, False], [True, True]]
    """

    function: ScoreFunction = "softmax"
    scaling: Scaling = "1/sqrt(n)"
    mask: str | BoolArray = "none"
    frequencies: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.function not in get_args(ScoreFunction):
            known = ", ".join(get_args(ScoreFunction))
            raise InputError(f"score function {self.function!r} is unknown; choose one of {known}")
        if self.scaling not in get_args(Scaling):
            raise InputError(f"score scaling {self.scaling!r} is unknown; choose 1/sqrt(n) or 1/n")
        if not all(np.isfinite(self.frequencies)):
            raise InputError(f"rotary frequencies {self.frequencies} are not all finite; give finite numbers")

    def allowed(self, tokens: int) -> BoolArray:
        """The mask as an s x s array; a softmax row without any allowed entry is an error."""
        i, j = np.ogrid[:tokens, :tokens]
        if not isinstance(self.mask, str):
            mask = np.asarray(self.mask, dtype=np.bool_)
        elif self.mask == "none":
            mask = np.ones((tokens, tokens), dtype=np.bool_)
        elif self.mask == "causal":
            mask = j <= i
        elif re.fullmatch(r"band:\d{1,18}", self.mask):
            mask = np.abs(i - j) <= int(self.mask.removeprefix("band:"))
        else:
            raise InputError(
                f"mask {self.mask!r} is unknown; choose none, causal or band:K, for example band:2"
            )
        if mask.shape != (tokens, tokens):
            raise InputError(
                f"the mask has shape {mask.shape}; expected {(tokens, tokens)} for {tokens} tokens"
            )
        if self.function == "softmax" and not mask.any(axis=1).all():
            row = int((~mask.any(axis=1)).argmax())
            raise InputError(f"the mask hides every token from token {row + 1}; let it see at least one")
        return mask

    def attention(self, p: Array, allowed: BoolArray, axis: int = -1) -> Array:
        """The weights A for scores p, with keys along `axis`; `allowed` broadcasts against p.

        >>> scores = Scores(mask="causal")
        >>> scores.attention(np.zeros((2, 2)), scores.allowed(2)).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
        """
        if self.function == "softmax":
            everything = bool(allowed.all())
            shown = p if everything else np.where(allowed, p, -np.inf)
            weights: Array = np.exp(shown - shown.max(axis=axis, keepdims=True))
            weights /= weights.sum(axis=axis, keepdims=True)
            return weights
        if self.function == "relu":
            raw = np.maximum(p, 0.0)
        elif self.function == "sigmoid":
            raw = expit(p)
        else:
            raw = p
        return np.where(allowed, raw, 0.0)
