"""The shape of a random attention layer, and the law of one of its matrices.

| letter | meaning |
|---|---|
| n, h | tokens, heads |
| A_r, V_r, W | attention matrix and values of head r, output matrix |
| d_K, d_V, d_O | sizes of a head's keys, of a head's values, and of the output |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.core.variants import by_name
from attnlaw.theory.laws.finite_size import expected_spike, finite_size_warnings
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw


@dataclass(frozen=True)
class Matrix:
    """One of the matrices of an attention layer that a law describes, such as its output."""

    name: str
    label: str
    values: bool = False  # whether attention is multiplied by values
    output: bool = False  # whether the result is also multiplied by the output matrix
    added: bool = False  # whether the parts of the heads are added. If not, they are joined side by side.


@dataclass(frozen=True)
class Sharing:
    """A way in which the heads of a layer share keys and values."""

    name: str
    label: str
    across: bool = False  # whether all heads use the same key and value
    tied: bool = False  # whether each head uses its key as its value


MATRICES = by_name(
    Matrix("attention", "√(n/h) [A₁ … A_h]"),
    Matrix("mean", "√(nh) mean of A₁ … A_h", added=True),
    Matrix("values", "[A₁V₁ … A_hV_h]", values=True),
    Matrix("output", "[A₁V₁ … A_hV_h] W", values=True, output=True, added=True),
)
SHARINGS = by_name(
    Sharing("none", "each head has its keys and values"),
    Sharing("across", "all heads share their keys and values", across=True),
    Sharing("tied", "K = V within heads", tied=True),
)


@dataclass(frozen=True)
class Centring:
    """A choice of what is subtracted from attention matrices: column means, or 1/n as in the papers."""

    name: str
    label: str
    by_columns: bool


CENTRINGS = by_name(Centring("columns", "column means", True), Centring("mean", "1/n", False))


@dataclass(frozen=True)
class AttentionShape:
    """The sizes of a multi-head attention layer.

    Args:
        value_size: the size d_V of a head's values. None means the head size.
        output_size: the size d_O of the output. None means the size of the values of all heads together.

    >>> AttentionShape(tokens=512, heads=12, head_size=64).law(1.0)
    MultiHeadLaw(beta=1.0, heads=12, key_ratio=1.5, value_ratio=1.5, output_ratio=1.5, head_size=None)
    """

    tokens: int
    heads: int
    head_size: int
    value_size: int | None = None
    output_size: int | None = None
    sharing: str = "none"

    def __post_init__(self) -> None:
        check_value("tokens", self.tokens, int, minimum=2)
        for name in ("heads", "head_size", "value_size", "output_size"):
            if getattr(self, name) is not None:
                check_value(name, getattr(self, name), int, minimum=1)
        check_value("sharing", self.sharing, str, choices=SHARINGS)
        if SHARINGS[self.sharing].tied and self.d_V != self.head_size:
            raise InputError(
                f"value_size {self.value_size}: expected the head size, {self.head_size}, because K = V"
            )

    @property
    def d_V(self) -> int:
        return self.head_size if self.value_size is None else self.value_size

    @property
    def d_O(self) -> int:
        return self.heads * self.d_V if self.output_size is None else self.output_size

    def rank(self, of: str = "output") -> int:
        """Return how many of the n squared singular values of a matrix are not zero."""
        matrix = MATRICES[of]
        widths = [self.tokens, *[self.heads * self.d_V] * matrix.values, *[self.d_O] * matrix.output]
        return min(widths)

    def law(
        self, beta: float, of: str = "output", second_order: bool = False
    ) -> MultiHeadLaw | TiedValuesLaw:
        """Return the limiting law of the squared singular values of one of the layer's matrices.

        Args:
            second_order: whether to keep the second Hermite term of the softmax (an extension of the paper).
                This is not possible for values and outputs with K = V.
        """
        check_value("of", of, str, choices=MATRICES)
        n, h, matrix, sharing = self.tokens, self.heads, MATRICES[of], SHARINGS[self.sharing]
        gK, gV, gO = h * self.head_size / n, h * self.d_V / n, self.d_O / n
        if sharing.tied and matrix.values:
            if second_order:
                raise InputError("second_order: there is no second-order law for K = V; leave this out")
            return TiedValuesLaw(beta, h, gK, gO if matrix.output else None)
        kept = self.head_size if second_order else None
        if matrix.added and not matrix.values:  # the head mean has the law of one head
            return MultiHeadLaw(beta, 1, gK / h if sharing.across else gK, head_size=kept)
        return MultiHeadLaw(
            beta, h, gK, gV if matrix.values else None, gO if matrix.output else None, head_size=kept
        )


@dataclass(frozen=True)
class RandomLayer:
    """One matrix of an untrained attention layer at one beta, with its limiting law.

    >>> layer = RandomLayer(AttentionShape(1024, 16, 64), 1.0, of="attention", centring="mean")
    >>> round(layer.law.support[1], 3), round(layer.spike, 3), len(layer.warnings)
    (5.094, 10.005, 1)
    """

    shape: AttentionShape
    beta: float
    of: str = "output"
    centring: str = "columns"
    second_order: bool = False

    def __post_init__(self) -> None:
        check_value("centring", self.centring, str, choices=CENTRINGS)

    @cached_property
    def law(self) -> MultiHeadLaw | TiedValuesLaw:
        return self.shape.law(self.beta, self.of, self.second_order)

    @property
    def spike(self) -> float | None:
        """The expected position of the outlier that remains if only 1/n is subtracted, or None.

        None means that no outlier is expected, or that K = V, for which no prediction is known.
        """
        law, shape = self.law, self.shape
        return expected_spike(law, shape.tokens, shape.head_size) if isinstance(law, MultiHeadLaw) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that explain why the law may be wrong at this size."""
        shape, spike = self.shape, self.spike
        lines = finite_size_warnings(shape.tokens, shape.head_size, self.beta, shape.heads, self.second_order)
        if spike is not None and not CENTRINGS[self.centring].by_columns:
            lines += (
                f"keys of unequal length put one singular value near {spike**0.5:.4g}, beyond the edge of "
                "the law; this value has no meaning, and centring by column means removes it",
            )
        return lines
