"""Laws fitted to measured spectra: which law, with which parameters, and how far it can be trusted.

The table of what a fit may say of a matrix, in the order of tables and legends; `describe` decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class LawLabel:
    """What a matrix follows: its name in rows, its letter in a map of heads, its colours, what it says.

    `colour` is a place in the palette of charts, `style` a colour of the terminal.
    """

    name: str
    letter: str
    colour: int
    style: str
    description: str

    @property
    def column(self) -> str:
        """The column that counts the matrices of this law."""
        return f"{self.name.replace(' ', '_').replace('-', '_')}_count"


LAWS = by_name(
    LawLabel(
        *("random", "r", 7, "bright_black"),
        description="not to be told apart from Gaussian entries of this shape (a head: two such factors)",
    ),
    LawLabel(
        *("learned", "L", 2, "green"),
        description="the law of trained attention (arXiv 2509.24914), on real heads an extension",
    ),
    LawLabel(
        *("heavy-tailed", "H", 1, "red"),
        description="high-temperature Marchenko-Pastur (arXiv 2506.03470), with more tail than the null",
    ),
    LawLabel(
        *("power-law tail", "P", 5, "yellow"),
        description="the bulk follows none of these, the tail a power of exponent alpha",
    ),
    LawLabel(
        *("power-law spectrum", "S", 4, "magenta"),
        description="more than half of its values, hence no tail, follow a power of exponent alpha",
    ),
    LawLabel(*("neither", "\N{MIDDLE DOT}", 0, "default"), description="none of these fits"),
)
