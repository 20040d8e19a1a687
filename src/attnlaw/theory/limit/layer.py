"""The settings of one attention layer at initialisation: sizes, scores, mask and weight variances.

| here     | means                                                                              |
|----------|------------------------------------------------------------------------------------|
| s        | number of tokens                                                                   |
| n        | `width`, an integer or infinity                                                    |
| n_H      | `head_width`: the dimension of queries, keys and values of a head; n by default    |
| H        | `heads`                                                                            |
| x^i      | token i; `x^i . x^j / n` is the Gram matrix of the `inputs`                        |
| sigma^2  | `variances`: W_Q, W_K, W_V have N(0, sigma^2 / n) entries, W_O N(0, sigma^2 / n_H) |
| p        | scores, (..., s, s): row i belongs to the query of token i                         |
| A        | attention weights, f(p) under the mask                                             |
| theta_f  | rotary frequencies: plane f of a head turns by theta_f times the position          |

For each head a, `p^a_ij = (W_Q x^i).(W_K x^j) / sqrt(n_H)` and
`y^i = H^(-1/2) sum_a sum_j A^a_ij W_O^a W_V^a x^j` (arXiv 2506.00846; n_H < n gives its low-rank heads).

Softmax at temperature T is the same as a query variance of 1/T^2. Cross attention is a mask: list queries and
keys as tokens, and let queries see only the keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from attnlaw.core.arrays import require_shapes
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.settings import check_value
from attnlaw.core.variants import Variants, by_name, with_parameter
from attnlaw.theory.limit.inputs import LARGEST, LARGEST_SIZE, Inputs
from attnlaw.theory.limit.wishart import Array

BoolArray = npt.NDArray[np.bool_]


def softmax(p: Array, allowed: BoolArray, axis: int) -> Array:
    shown = p if bool(allowed.all()) else np.where(allowed, p, -np.inf)
    weights: Array = np.exp(shown - shown.max(axis=axis, keepdims=True))
    weights /= weights.sum(axis=axis, keepdims=True)
    return weights


@dataclass(frozen=True)
class ScoreFunction:
    """A function that turns scores into attention weights."""

    name: str
    weights: Callable[[Array, BoolArray, int], Array]  # takes scores, the mask, and the axis of the keys
    normalised: bool = False  # whether the weights of a query add up to 1
    zero_at_zero: bool = False  # whether the weights are zero if all scores are zero


@dataclass(frozen=True)
class Scaling:
    """A scaling of attention scores. It divides them by `divisor(n_H)` in addition to sqrt(n_H)."""

    name: str
    divisor: Callable[[float], float]
    vanishing: bool = False  # whether all scores are zero in the limit


@dataclass(frozen=True)
class Mask:
    """A rule for which tokens a token may attend to."""

    name: str
    allows: Callable[..., BoolArray]  # allows(i, j, *parameters) for arrays of positions
    example: str | None = None  # a name with a parameter, such as `band:2`
    parameters: tuple[int, ...] = ()

    def at(self, parameter: str) -> Mask:
        """Return the mask with this parameter, or raise a ValueError if it is not a whole number."""
        if not (parameter.isascii() and parameter.isdecimal() and len(parameter) <= 18):
            raise ValueError(f"{parameter} is not a whole number of at most 18 digits")
        return with_parameter(self, parameter, int(parameter))


SCORES = by_name(
    ScoreFunction("softmax", softmax, normalised=True),
    ScoreFunction(
        "relu", lambda p, allowed, axis: np.where(allowed, np.maximum(p, 0.0), 0.0), zero_at_zero=True
    ),
    ScoreFunction("sigmoid", lambda p, allowed, axis: np.where(allowed, scipy.special.expit(p), 0.0)),
    ScoreFunction("linear", lambda p, allowed, axis: np.where(allowed, p, 0.0), zero_at_zero=True),
)
SCALINGS = by_name(Scaling("1/sqrt(n)", lambda width: 1.0), Scaling("1/n", math.sqrt, vanishing=True))
MASKS = Variants(
    Mask("none", lambda i, j: (i >= 0) & (j >= 0)),
    Mask("causal", lambda i, j: j <= i),
    Mask("band:K", lambda i, j, reach: abs(i - j) <= reach, example="band:2"),
)


@dataclass(frozen=True, eq=False)
class ScoreSettings:
    """How a layer computes attention weights: scaling, rotation, mask and score function."""

    function: str = "softmax"
    scaling: str = "1/sqrt(n)"
    mask: str | BoolArray = "none"  # or s x s, true if token i sees token j
    # Rotary; at finite head width n_H they share the n_H / 2 planes evenly, so 2 F must divide n_H.
    frequencies: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_value("function", self.function, str, choices=SCORES)
        check_value("scaling", self.scaling, str, choices=SCALINGS)
        if isinstance(self.mask, str):
            check_value("mask", self.mask, str, choices=MASKS)
        if not all(np.isfinite(self.frequencies)):
            raise InputError(f"rotary frequencies {self.frequencies} are not all finite; give finite numbers")

    def allowed(self, tokens: int) -> BoolArray:
        """Return the mask as an s x s array. Entry (i, j) is true if token i sees token j."""
        if isinstance(self.mask, str):
            known = MASKS[self.mask]
            mask = known.allows(*np.ogrid[:tokens, :tokens], *known.parameters)
        else:
            mask = np.asarray(self.mask, dtype=np.bool_)
        wanted = (tokens, tokens)
        require_shapes(mask.shape == wanted, "scores", f"{wanted} for {tokens} tokens", mask=mask)
        if SCORES[self.function].normalised and not mask.any(axis=1).all():
            row = int((~mask.any(axis=1)).argmax())
            raise InputError(f"the mask hides every token from token {row + 1}; let it see at least one")
        return mask

    def attention(self, p: Array, allowed: BoolArray, axis: int = -1) -> Array:
        """Return the attention weights A for scores p."""
        return SCORES[self.function].weights(p, allowed, axis)

    def divisor(self, head_width: float) -> float:
        """Return the factor that divides scores in addition to sqrt(n_H)."""
        return SCALINGS[self.scaling].divisor(head_width)


@dataclass(frozen=True)
class WeightVariances:
    """Factors that multiply the weight variances. All factors are 1 in the paper."""

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
    """An untrained attention layer, with its tokens.

    Args:
        heads: the number H of heads. It need not be the width divided by the head width.
        width: the width n, or infinity for the limit. It must be at least the rank of given tokens.
        head_width: the head width n_H, a divisor of the width. None means the width itself. If only the width
            is infinite, the layer uses the tokens of the limit.

    >>> from attnlaw.theory.limit.inputs import RandomInputs
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
            check_value("width", self.width, int, minimum=1, maximum=LARGEST_SIZE)
        check_value("heads", self.heads, int, minimum=1, maximum=LARGEST_SIZE)
        if self.head_width is not None:
            check_value("head_width", self.head_width, int, minimum=1, maximum=LARGEST_SIZE)
            check_head_width(self.head_width, self.width)
        if self.width < self.inputs.least_width():
            raise InputError(
                f"the Gram matrix has rank {self.inputs.least_width()}, and tokens of width "
                f"{int(self.width)} cannot have this rank; choose a width of at least "
                f"{self.inputs.least_width()}"
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
        return self.inputs.tokens

    @property
    def inner_width(self) -> float:
        """The head width n_H. It equals the width if no head width is given."""
        return self.width if self.head_width is None else self.head_width

    @property
    def narrow(self) -> bool:
        """Whether the head width is finite, so that scores do not have a normal distribution."""
        return self.inner_width != math.inf

    @cached_property
    def allowed(self) -> BoolArray:
        return self.scores.allowed(self.tokens)

    @property
    def score_scale(self) -> float:
        """The factor that weight variances and the scaling 1/n apply to the scores."""
        deviation = math.sqrt(self.variances.query * self.variances.key)
        return deviation / self.scores.divisor(self.inner_width)

    @property
    def output_scale(self) -> float:
        """The factor `sqrt(value variance * output variance / H)` that multiplies the sum over heads."""
        return math.sqrt(self.variances.value * self.variances.output / self.heads)

    def at_width(self, width: float) -> AttentionLayer:
        """Return the same layer at another width.

        At infinite width, the heads are infinitely wide too.
        """
        head_width = None if width == math.inf else self.head_width
        if (width, head_width) == (self.width, self.head_width):
            return self
        return replace(self, width=width, head_width=head_width)


def check_head_width(head_width: int, width: float) -> None:
    """Raise a `BadSetting` if a finite width is not a multiple of the head width."""
    if width != math.inf and int(width) % head_width:
        raise BadSetting("head_width", f"expected a divisor of the {{width}}, {int(width)}", head_width)
