"""Laws fitted to measured spectra: which law, with which parameters, and how far it can be trusted.

The table of what a fit may say of a matrix, in the order of tables and legends; `describe` decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.base.declare import table


@dataclass(frozen=True)
class Law:
    """What a matrix follows: its name in rows, its letter in a map of heads, its colours, what it says.

    `colour` is a place in the palette of charts, `style` a colour of the terminal.
    """

    name: str
    letter: str
    colour: int
    style: str
    says: str

    @property
    def column(self) -> str:
        """The column that counts the matrices of this law."""
        return f"{self.name.replace(' ', '_').replace('-', '_')}_count"


LAWS = table(
    Law(
        *("random", "r", 7, "bright_black"),
        says="not to be told apart from Gaussian entries of this shape (a head: two such factors)",
    ),
    Law(
        *("learned", "L", 2, "green"),
        says="the law of trained attention (arXiv 2509.24914), on real heads an extension",
    ),
    Law(
        *("heavy-tailed", "H", 1, "red"),
        says="high-temperature Marchenko-Pastur (arXiv 2506.03470), with more tail than the null",
    ),
    Law(
        *("power-law tail", "P", 5, "yellow"),
        says="the bulk follows none of these, the tail a power of exponent alpha",
    ),
    Law(
        *("power-law spectrum", "S", 4, "magenta"),
        says="more than half of its values, hence no tail, follow a power of exponent alpha",
    ),
    Law(*("neither", "\N{MIDDLE DOT}", 0, "default"), says="none of these fits"),
)
