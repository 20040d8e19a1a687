"""The shape of a multi-head attention layer, which of its matrices is meant, and the law of that.

| letter | meaning |
|---|---|
| n, h | tokens, heads |
| d_K, d_V, d_O | sizes of a head's keys and of its values, of the output |
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.attention_variants import MATRICES, SHARINGS
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of a layer; `value_size` is the head size unless given, `output_size` that of all values.

    `sharing`: "none", "across" (one key and value for all heads: multi-query) or "tied" (K = V within heads).

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
                f"value_size {self.value_size}: expected the head size, {self.head_size}, where K = V"
            )

    @property
    def d_V(self) -> int:
        return self.head_size if self.value_size is None else self.value_size

    @property
    def d_O(self) -> int:
        return self.heads * self.d_V if self.output_size is None else self.output_size

    def rank(self, of: str = "output") -> int:
        """How many of the n squared singular values are not zero."""
        matrix = MATRICES[of]
        widths = [self.tokens, *[self.heads * self.d_V] * matrix.values, *[self.d_O] * matrix.output]
        return min(widths)

    def law(
        self, beta: float, of: str = "output", second_order: bool = False
    ) -> MultiHeadLaw | TiedValuesLaw:
        """The law of one of its matrices; `second_order` keeps the second Hermite term (an extension)."""
        check_value("of", of, str, choices=MATRICES)
        n, h, matrix, sharing = self.tokens, self.heads, MATRICES[of], SHARINGS[self.sharing]
        gK, gV, gO = h * self.head_size / n, h * self.d_V / n, self.d_O / n
        if sharing.tied and matrix.values:
            if second_order:
                raise InputError("second_order: there is no such law for K = V; leave it out")
            return TiedValuesLaw(beta, h, gK, gO if matrix.output else None)
        kept = self.head_size if second_order else None
        if matrix.added and not matrix.values:  # the head mean has the law of one head
            return MultiHeadLaw(beta, 1, gK / h if sharing.across else gK, head_size=kept)
        return MultiHeadLaw(
            beta, h, gK, gV if matrix.values else None, gO if matrix.output else None, head_size=kept
        )
