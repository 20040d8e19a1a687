"""Charts as plain records: a verb says what it wants drawn of its rows, the report draws it.

Columns are named as in rows. Titles of axes and legends come from `Verb.label` and from the variants.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Curves:
    """Lines of `y` over `x`, one for each value of `by`; `points`: also those of the verb beside it."""

    name: str
    title: str
    x: str
    y: str
    by: str | None = None
    points: bool = False
    log_x: bool = False


@dataclass(frozen=True)
class Cells:
    """A map: `colour` (a number or a category) over `x` and `y`, one panel for each value of `panel`."""

    name: str
    title: str
    x: str
    y: str
    colour: str
    panel: str | None = None


@dataclass(frozen=True)
class Own:
    """A chart that is like no other: the function at `draw` ("module:function") makes it of rows."""

    name: str
    title: str
    draw: str


Chart = Curves | Cells | Own
