"""A matrix of a random attention layer, and what to expect of its spectrum: law, spike, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.attention_shape import AttentionShape
from attnlaw.theory.laws.attention_variants import CENTRINGS
from attnlaw.theory.laws.finite_size import expected_spike, finite_size_warnings
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw


@dataclass(frozen=True)
class RandomLayer:
    """One matrix (`of`) of a layer at one beta, centred by column means or, as in the papers, by 1/n.

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
        """Where one value stands beyond the edge if only 1/n is taken off.

        None where none does; also for K = V, where it is not predicted.
        """
        law, shape = self.law, self.shape
        return expected_spike(law, shape.tokens, shape.head_size) if isinstance(law, MultiHeadLaw) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the law is not to be trusted at this size."""
        shape, spike = self.shape, self.spike
        lines = finite_size_warnings(shape.tokens, shape.head_size, self.beta, shape.heads, self.second_order)
        if spike is not None and not CENTRINGS[self.centring].by_columns:
            lines += (
                f"keys of unequal length: one value near {spike:.4g}, beyond the edge, is expected and is no "
                "signal; centre by column means",
            )
        return lines
