"""Declared charts: a record of `attnlaw.base.charts` and rows become figures, none where rows are empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from attnlaw.base.charts import Bars, Cells, Curves, Density, Dots, Own
from attnlaw.base.declare import named
from attnlaw.report.draw_cells import draw_bars, draw_cells, draw_dots
from attnlaw.report.draw_curves import draw_curves
from attnlaw.report.draw_densities import draw_densities
from attnlaw.report.labels import varied
from attnlaw.report.marks import Figure
from attnlaw.report.source import Source, distinct


def figures_of(sources: Iterable[Source]) -> list[Figure]:
    """The figures of several sources, no two of one name."""
    return _numbered([figure for source in sources for figure in figures(source)])


def figures(source: Source) -> list[Figure]:
    """The figures that the verb declares, as far as the rows allow; without any, its first quantity."""
    drawn: list[Figure] = []
    done: set[str] = set()
    for chart in source.verb.charts:
        if chart.unless not in done and (found := list(DRAW[type(chart)](chart, source))):
            drawn += found
            done.add(chart.name)
    if not drawn:
        drawn = list(_first_quantity(source))
    return _numbered(drawn)


def _numbered(figures: list[Figure]) -> list[Figure]:
    """The figures, with numbers behind a name that several have."""
    many = Counter(figure.name for figure in figures)
    places: Counter[str] = Counter()
    named = []
    for figure in figures:
        places[figure.name] += 1
        ending = f"_{places[figure.name]}" if many[figure.name] > 1 else ""
        named.append(replace(figure, name=f"{figure.name}{ending}"))
    return named


def _first_quantity(source: Source) -> Iterator[Figure]:
    """Curves of the first quantity that was found over the setting that varied most."""
    rows = source.rows
    numbers = ("float", "int", "small")
    found = (one for one in source.verb.quantities if one.kind in numbers and source.has(rows, one.name))
    quantity = next(found, None)
    names = varied(rows, source.settings)
    if quantity is None or not names:
        return
    x = max(names, key=lambda name: (rows[name].dtype.is_numeric(), distinct(rows[name])))
    title = f"{quantity.label[0].upper()}{quantity.label[1:]} against {x.replace('_', ' ')}"
    caption = f"{quantity.meaning}." if quantity.meaning else ""
    yield from draw_curves(Curves(quantity.name, title, x=x, y=quantity.name, caption=caption), source)


def _own(chart: Own, source: Source) -> Iterator[Figure]:
    yield from named(chart.draw)(chart, source)


DRAW: dict[type, Callable[[Any, Source], Iterator[Figure]]] = {
    Curves: draw_curves,
    Cells: draw_cells,
    Bars: draw_bars,
    Dots: draw_dots,
    Density: draw_densities,
    Own: _own,
}
