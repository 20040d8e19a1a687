"""One attention layer at initialisation: the frozen description that every law here starts from.

| here     | means                                                                              |
|----------|------------------------------------------------------------------------------------|
| n        | `width`, an integer or infinity                                                    |
| n_H      | `head_width`: the dimension of queries, keys and values of a head; n by default    |
| H        | `heads`                                                                            |
| sigma^2  | `variances`: W_Q, W_K, W_V have N(0, sigma^2 / n) entries, W_O N(0, sigma^2 / n_H) |

Per head a: `p^a_ij = (W_Q x^i).(W_K x^j) / sqrt(n_H)` and
`y^i = H^(-1/2) sum_a sum_j A^a_ij W_O^a W_V^a x^j` (arXiv 2506.00846; with n_H < n its low-rank heads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.settings import check_value
from attnlaw.theory.limit.inputs import LARGEST, Inputs
from attnlaw.theory.limit.scores import BoolArray, ScoreSettings
from attnlaw.theory.limit.token_counts import MOST
from attnlaw.theory.limit.wishart import Array


@dataclass(frozen=True)
class WeightVariances:
    """The factors sigma^2 of the weight variances; 1 is the paper's."""

    query: float = 1.0
    key: float = 1.0
    value: float = 1.0
    output: float = 1.0

    def __post_init__(self) -> None:
        for name in ("query", "key", "value", "output"):
            # Fourth powers of the scores stay in float64.
            check_value(f"{name} variance", getattr(self, name), float, minimum=1 / LARGEST, maximum=LARGEST)


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """An attention layer at initialisation.

    With infinite `width` and a finite `head_width`, the tokens are those of the limit and the heads are
    narrow. Fails for widths that are not positive integers, for a head width that does not divide the
    width, and for given tokens whose Gram matrix has a higher rank than the width.

    >>> from attnlaw.theory.limit import RandomInputs
    >>> layer = AttentionLayer(RandomInputs(4), heads=2, width=64)
    >>> layer.tokens, layer.at_width(math.inf).narrow
    (4, False)
    """

    inputs: Inputs
    heads: int = 1
    width: float = math.inf
    head_width: int | None = None
    scores: ScoreSettings = field(default_factory=ScoreSettings)
    variances: WeightVariances = field(default_factory=WeightVariances)

    def __post_init__(self) -> None:
        if self.width != math.inf:
            check_value("width", self.width, int, minimum=1, maximum=MOST)
        check_value("heads", self.heads, int, minimum=1, maximum=MOST)
        if self.head_width is not None:
            check_value("head_width", self.head_width, int, minimum=1, maximum=MOST)
            if self.width != math.inf and int(self.width) % self.head_width:
                raise BadSetting(
                    "head_width", f"expected a divisor of the {{width}}, {int(self.width)}", self.head_width
                )
        if self.width < self.inputs.least_width():
            raise InputError(
                f"the Gram matrix has rank {self.inputs.least_width()}, and tokens of width "
                f"{int(self.width)} cannot reach it; choose a width of at least {self.inputs.least_width()}"
            )
        self.scores.allowed(self.tokens)
        planes = 2 * len(self.scores.frequencies)
        if planes and self.narrow and int(self.inner_width) % planes:
            raise InputError(
                f"head width {int(self.inner_width)} is not a multiple of {planes}, twice the number of "
                "rotary frequencies; choose another head width or number of frequencies"
            )

    @property
    def tokens(self) -> int:
        """The number s of tokens."""
        return self.inputs.tokens

    @property
    def inner_width(self) -> float:
        """n_H: the head width, or the width where none is given."""
        return self.width if self.head_width is None else self.head_width

    @property
    def narrow(self) -> bool:
        """Whether heads have a finite width, so that their scores are not Gaussian given the tokens."""
        return self.inner_width != math.inf

    @cached_property
    def allowed(self) -> BoolArray:
        """The mask, s x s."""
        return self.scores.allowed(self.tokens)

    @property
    def score_scale(self) -> float:
        """What multiplies scores of unit variance: weight deviations, and 1/sqrt(n_H) when scaled by 1/n."""
        deviation = math.sqrt(self.variances.query * self.variances.key)
        return deviation / self.scores.divisor(self.inner_width)

    @property
    def output_scale(self) -> float:
        """What multiplies the sum over heads: H^(-1/2) and the weight deviations."""
        return math.sqrt(self.variances.value * self.variances.output / self.heads)

    def at_width(self, width: float) -> AttentionLayer:
        """The same layer at another width; infinity widens the heads too (the limit).

        >>> from attnlaw.theory.limit import RandomInputs
        >>> AttentionLayer(RandomInputs(4), width=64, head_width=16).at_width(math.inf).inner_width
        inf
        """
        return replace(self, width=width, head_width=None if width == math.inf else self.head_width)


@dataclass(frozen=True, eq=False)
class Sample:
    """Joint draws of a layer: scores (draws, H, s, s) and m output coordinates (draws, s, m)."""

    scores: Array
    outputs: Array
