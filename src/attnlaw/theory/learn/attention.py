"""Kinds of attention (tied or untied factors), and the pairs of tokens whose scores a sample contains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class AttentionChoice:
    """A kind of attention. Queries and keys have one common factor (tied) or two factors (untied)."""

    name: str
    label: str
    sides: int  # 2 if the theory works with singular values of both signs, 1 if with non-negative eigenvalues
    paired: bool  # whether the setting `pairs` is used
    gaussian: str  # name of the sensing by Gaussian matrices that the theory solves exactly


ATTENTIONS = by_name(
    AttentionChoice("tied", "tied", 1, False, "goe"), AttentionChoice("untied", "untied", 2, True, "ginibre")
)


@dataclass(frozen=True)
class Pairs:
    """A choice of (query, key) pairs. A sample of untied attention has the scores of these pairs."""

    name: str
    label: str
    places: Callable[[int], list[tuple[int, int]]]  # returns the pairs of a sample of T tokens
    least_tokens: int = 1
    crossed: bool = False  # whether the keys are tokens of another sequence
    mirrored: bool = False  # whether a sample has each pair in both orders, and self pairs

    def visible_pairs(self, tokens: int, queries: int | None = None) -> tuple[tuple[int, int], ...]:
        """Return the (query, key) pairs of a sample, for all queries or only the first `queries` tokens."""
        return tuple((a, b) for a, b in self.places(tokens) if queries is None or a < queries)

    def count(self, tokens: int, queries: int | None = None) -> int:
        """Return the number of (query, key) pairs in a sample of T tokens."""
        return len(self.visible_pairs(tokens, queries))


def _square(tokens: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(tokens) for b in range(tokens)]


PAIRS = by_name(
    Pairs("all", "all pairs", _square, mirrored=True),
    Pairs("distinct", "distinct tokens, both orders", lambda T: [(a, b) for a, b in _square(T) if a != b], 2),
    Pairs("causal", "causal", lambda T: [(a, b) for a, b in _square(T) if a > b], 2),
    Pairs("cross", "across sequences", _square, crossed=True),
)
