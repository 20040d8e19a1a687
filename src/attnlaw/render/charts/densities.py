"""Densities: of several laws, or of one over the histogram of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from attnlaw.render.charts.figure import HEIGHT, PANEL, WIDTH, with_theory_legend
from attnlaw.render.charts.style import PALETTE, inline_data

BARS = "#B8C9D9"
INFINITE = "∞"
DASHES = {INFINITE: [5, 3], "Gaussian": [1.5, 2]}


def densities(
    rows: pl.DataFrame, x: str, colours: Mapping[str, str], legend: str, ratio: str | None, title: str
) -> Any:
    """Densities of several laws, the infinite one dashed: `rows` has x, density, ratio and series.

    `ratio` is the title of their ratio to one of them, which is drawn beside them.
    """
    import altair as alt

    names = list(colours)
    hue = alt.Color(
        "series:N", title=legend, scale=alt.Scale(domain=names, range=[colours[name] for name in names])
    )
    dash = alt.StrokeDash(
        "series:N",
        title=legend,
        scale=alt.Scale(domain=names, range=[DASHES.get(name, [1, 0]) for name in names]),
    )
    base = alt.Chart(inline_data(rows)).mark_line().encode(x=alt.X("x:Q", title=x), color=hue)
    panels = [base.encode(y=alt.Y("density:Q", title="density"), strokeDash=dash).properties(title=title)]
    if ratio is not None:
        scale, axis = alt.Scale(type="log"), alt.Axis(tickCount=5)
        right = base.encode(y=alt.Y("ratio:Q", title=ratio, scale=scale, axis=axis), strokeDash=dash)
        panels.append(right.properties(title=f"{title}: ratio" if title else "ratio"))
    return alt.hconcat(*(panel.properties(width=PANEL[0], height=PANEL[1]) for panel in panels), spacing=28)


def spectrum(
    density: pl.DataFrame,
    x: str,
    values: Sequence[float] | None = None,
    *,
    atom: float = 0.0,
    outliers: Sequence[float] = (),
    name: str = "measured",
) -> Any:
    """A predicted density over a histogram of measured values (those not at zero); both may be empty.

    `density`: x, density, detail (of the pieces of a line). The atom at zero is written, not drawn.
    """
    import altair as alt

    weights = [f"predicted {atom:.3f}"] if atom > 0 else []
    layers = []
    if values:
        every = np.asarray(values)
        # An atom takes its own weight out of the histogram; a density without one is compared with all.
        apart = atom > 0 or not density.height
        kept = every[every != 0.0] if apart else every
        if kept.size < every.size:
            weights.append(f"{name.partition(',')[0]} {1 - kept.size / every.size:.3f}")
        # Domains are given: a legend without an entry, of no row at all, has no size.
        filled = alt.Fill("name:N", title=None, scale=alt.Scale(domain=[name], range=[BARS]))
        drawn = alt.Chart(inline_data(histogram(kept, density["x"].to_numpy(), every.size, name)))
        layers.append(
            drawn.mark_bar(stroke="white", strokeWidth=0.3).encode(
                x=alt.X("left:Q", title=x),
                x2=alt.X2("right:Q"),
                y=alt.Y("floor:Q", title="density"),
                y2=alt.Y2("height:Q"),
                fill=filled,
            )
        )
    if density.height or atom > 0 or not layers:  # nothing but an atom is a theory, too
        line = alt.Chart(inline_data(density)).mark_line(color=PALETTE[0], clip=True)
        line = line.encode(
            x=alt.X("x:Q", title=x), y=alt.Y("density:Q", title="density"), detail=alt.Detail("detail:N")
        )
        layers.append(with_theory_legend(line, PALETTE[0]))
    if outliers:
        marks = alt.Chart(
            inline_data([{"x": place, "y": 0.0, "outlier": "outlier, theory"} for place in outliers])
        )
        shape = alt.Shape(
            "outlier:N",
            title=None,
            scale=alt.Scale(range=["triangle-up"]),
            legend=alt.Legend(symbolFillColor=PALETTE[1], symbolStrokeColor=PALETTE[1]),
        )
        layers.append(
            marks.mark_point(size=60, filled=True, color=PALETTE[1]).encode(
                x=alt.X("x:Q"), y=alt.Y("y:Q"), shape=shape
            )
        )
    title = f"weight at zero: {', '.join(weights)}" if weights else ""
    return alt.layer(*layers, width=WIDTH, height=HEIGHT, title=title)


def histogram(values: Any, density_x: Any, total: int, name: str) -> list[dict[str, Any]]:
    """A histogram of the values kept out of `total`, as a density over the range of both arrays."""
    if not values.size:
        return []
    count = max(12, min(60, round(3 * values.size ** (1 / 3))))
    places = np.concatenate([values, density_x])
    numbers, ends = np.histogram(values, bins=count, range=(float(places.min()), float(places.max())))
    return [
        {
            "floor": 0.0,
            "left": left,
            "right": right,
            "height": number / (total * (right - left)),
            "name": name,
        }
        for number, left, right in zip(numbers.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
