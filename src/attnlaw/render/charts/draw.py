"""Declared charts: a record of `core.chart_specs` and rows become figures, none where rows are empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from attnlaw.core.chart_specs import Bars, Cells, Curves, CustomChart, Density, Dots
from attnlaw.core.lazy import resolve
from attnlaw.render.charts.data import ChartData, count_distinct
from attnlaw.render.charts.draw_cells import draw_bars, draw_cells, draw_dots
from attnlaw.render.charts.draw_curves import draw_curves
from attnlaw.render.charts.draw_densities import draw_densities
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.labels import varying_settings


def draw_all_figures(sources: Iterable[ChartData]) -> list[Figure]:
    """The figures of several sources, no two of one name."""
    return _number_duplicates([figure for source in sources for figure in draw_figures(source)])


def draw_figures(source: ChartData) -> list[Figure]:
    """The figures that the verb declares, as far as the rows allow; without any, its first quantity."""
    drawn: list[Figure] = []
    done: set[str] = set()
    for chart in source.verb.charts:
        if chart.fallback_for not in done and (chart_figures := list(DRAW[type(chart)](chart, source))):
            drawn += chart_figures
            done.add(chart.name)
    if not drawn:
        drawn = list(_first_quantity(source))
    return _number_duplicates(drawn)


def _number_duplicates(figures: list[Figure]) -> list[Figure]:
    """The figures, with numbers behind a name that several have."""
    many = Counter(figure.name for figure in figures)
    places: Counter[str] = Counter()
    named = []
    for figure in figures:
        places[figure.name] += 1
        ending = f"_{places[figure.name]}" if many[figure.name] > 1 else ""
        named.append(replace(figure, name=f"{figure.name}{ending}"))
    return named


def _first_quantity(source: ChartData) -> Iterator[Figure]:
    """Curves of the first quantity that was found over the setting that varied most."""
    rows = source.rows
    numbers = ("float", "int", "small")
    candidates = (
        quantity
        for quantity in source.verb.quantities
        if quantity.kind in numbers and source.has_values(rows, quantity.name)
    )
    quantity = next(candidates, None)
    names = varying_settings(rows, source.settings)
    if quantity is None or not names:
        return
    x = max(names, key=lambda name: (rows[name].dtype.is_numeric(), count_distinct(rows[name])))
    title = f"{quantity.label[0].upper()}{quantity.label[1:]} against {x.replace('_', ' ')}"
    caption = f"{quantity.description}." if quantity.description else ""
    yield from draw_curves(Curves(quantity.name, title, x=x, y=quantity.name, caption=caption), source)


def _draw_custom(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    yield from resolve(chart.draw)(chart, source)


DRAW: dict[type, Callable[[Any, ChartData], Iterator[Figure]]] = {
    Curves: draw_curves,
    Cells: draw_cells,
    Bars: draw_bars,
    Dots: draw_dots,
    Density: draw_densities,
    CustomChart: _draw_custom,
}
