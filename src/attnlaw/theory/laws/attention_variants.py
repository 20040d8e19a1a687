"""Which matrix of a random attention layer is meant, what its heads share, what is taken off."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class Matrix:
    """A matrix of the layer, centred; what its heads give is `added`, or stands side by side."""

    name: str
    label: str
    values: bool = False
    output: bool = False
    added: bool = False


@dataclass(frozen=True)
class Sharing:
    """What heads share: one key and value for all of them, or the key of a head as its value."""

    name: str
    label: str
    across: bool = False
    tied: bool = False


MATRICES = by_name(
    Matrix("attention", "√(n/h) [A₁ … A_h]"),
    Matrix("mean", "√(nh) mean of A₁ … A_h", added=True),
    Matrix("values", "[A₁V₁ … A_hV_h]", values=True),
    Matrix("output", "[A₁V₁ … A_hV_h] W", values=True, output=True, added=True),
)
SHARINGS = by_name(
    Sharing("none", "each head its keys and values"),
    Sharing("across", "one key and value for all heads", across=True),
    Sharing("tied", "K = V within heads", tied=True),
)


@dataclass(frozen=True)
class Centring:
    """What is taken off attention matrices: their column means, or 1/n as in the papers."""

    name: str
    label: str
    by_columns: bool


CENTRINGS = by_name(Centring("columns", "column means", True), Centring("mean", "1/n", False))
