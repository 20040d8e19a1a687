"""Draw densities over histograms of measured values: one spectrum, several laws, or a ridge of spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnlaw.render.charts.encodings import (
    BARS,
    HEIGHT,
    WIDTH,
    Rows,
    colour_encoding,
    inline_data,
    with_theory_legend,
)
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE

ROOM = 1.3  # height of the plot / height of the bars; limited because a law may have a pole
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def draw_spectrum(
    density: pl.DataFrame,
    x: str,
    values: Sequence[float] | None = None,
    *,
    atom: float = 0.0,
    outliers: Sequence[float] = (),
    name: str = "measured",
) -> alt.LayerChart:
    """Draw a predicted density over a histogram of measured values. The density or the values may be empty.

    Args:
        density: a table with the columns x, density and detail (a number for each piece of the line).
        values: the measured values. Zeros are left out if there is an atom or no density.
        atom: the predicted weight at zero, which the title states.
        outliers: the predicted outliers, drawn as triangles.
    """
    weights = [f"predicted {atom:.3f}"] if atom > 0 else []
    layers = []
    if values:
        every = np.asarray(values)
        # With an atom, the histogram leaves out zeros. A density without an atom is compared with all values.
        apart = atom > 0 or not density.height
        kept = every[every != 0.0] if apart else every
        if kept.size < every.size:
            weights.append(f"{name.partition(',')[0]} {1 - kept.size / every.size:.3f}")
        bars = histogram(kept, density["x"].to_numpy(), every.size, name)
        # The domain is given, because the legend of empty data would have no size.
        filled = alt.Fill("name:N", title=None, scale=alt.Scale(domain=[name], range=[BARS]))
        across, up = alt.X("left:Q", title=x), alt.Y("floor:Q", title="density")
        drawn = alt.Chart(inline_data(bars)).mark_bar(stroke="white", strokeWidth=0.3)
        layers.append(drawn.encode(x=across, x2="right:Q", y=up, y2="height:Q", fill=filled))
    if density.height or atom > 0 or not layers:  # an atom alone is a theory, too
        line = alt.Chart(inline_data(density)).mark_line(color=PALETTE[0], clip=True)
        across, up = alt.X("x:Q", title=x), alt.Y("density:Q", title="density")
        encoded = line.encode(x=across, y=up, detail=alt.Detail("detail:N"))
        layers.append(with_theory_legend(encoded, PALETTE[0]))
    if outliers:
        places = [{"x": place, "y": 0.0, "outlier": "outlier, theory"} for place in outliers]
        marks = alt.Chart(inline_data(places)).mark_point(size=60, filled=True, color=PALETTE[1])
        legend = alt.Legend(symbolFillColor=PALETTE[1], symbolStrokeColor=PALETTE[1])
        shape = alt.Shape("outlier:N", title=None, scale=alt.Scale(range=["triangle-up"]), legend=legend)
        layers.append(marks.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), shape=shape))
    title = f"weight at zero: {', '.join(weights)}" if weights else ""
    return alt.layer(*layers, width=WIDTH, height=HEIGHT, title=title)


def histogram(values: Any, density_x: Any, total: int, name: str) -> list[dict[str, Any]]:
    """Return the bars of a histogram that is normalised to a density.

    The histogram covers the range of the values and of `density_x`. `total` counts all values, including
    those that are left out of `values`.
    """
    if not values.size:
        return []
    bins = max(12, min(60, round(3 * values.size ** (1 / 3))))
    places = np.concatenate([values, density_x])
    counts, ends = np.histogram(values, bins=bins, range=(float(places.min()), float(places.max())))
    return [
        {"floor": 0.0, "left": left, "right": right, "height": count / (total * (right - left)), "name": name}
        for count, left, right in zip(counts.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def draw_histogram(bars: Rows, most: float, **x: Any) -> alt.Chart:
    """Draw the bars of `histogram`, cut at the height `most`. `x` has options of the x axis."""
    y = alt.Y("height:Q", title="density", scale=alt.Scale(domain=[0.0, most]))
    drawn = alt.Chart(inline_data(bars)).mark_bar(color=BARS, stroke="white", strokeWidth=0.3)
    return drawn.encode(x=alt.X("left:Q", **x), x2="right:Q", y=y, y2="floor:Q")


def laws_over_histogram(
    values: NDArray[np.float64], curves: Mapping[str, Curve], colours: Mapping[str, int], x: str
) -> alt.LayerChart:
    """Draw laws, given as (points, densities), over a histogram. `colours` are indices of palette colours."""
    bars = histogram(values, np.zeros(0), values.size, "measured")
    layers = [draw_histogram(bars, ROOM * max(bar["height"] for bar in bars), title=x)]
    rows = [
        {"x": place, "height": height, "series": name}
        for name, curve in curves.items()
        for place, height in zip(*(part.tolist() for part in curve), strict=True)
    ]
    if rows:
        hues = {name: PALETTE[colours[name]] for name in curves}
        lines = alt.Chart(inline_data(rows)).mark_line(clip=True)
        colour = colour_encoding(hues, legend_for_one=True)
        layers.append(lines.encode(x="x:Q", y=layers[0].encoding.y, color=colour))
    return alt.layer(*layers).properties(width=520, height=300)


def ridge_panel(
    title: str,
    line: Rows,
    x: alt.X,
    y: alt.Y,
    *more: alt.Chart,
    bars: Rows = (),
    marks: Rows = (),
    hue: str = PALETTE[0],
    clip: bool = False,
) -> alt.LayerChart:
    """Draw one spectrum of a ridge plot: a line over bars (x to x2, low to y), with triangles at `marks`."""
    layers = []
    if len(bars):
        drawn = alt.Chart(inline_data(bars)).mark_rect(color=BARS, clip=clip)
        # The bars use the scale of the line, or Vega would round the ends of both axes.
        layers.append(drawn.encode(x=x, x2="x2:Q", y=alt.Y(y.shorthand, axis=None), y2="low:Q"))
    layers.append(alt.Chart(inline_data(line)).mark_line(color=hue, clip=clip).encode(x=x, y=y))
    if len(marks):
        spikes = alt.Chart(inline_data(marks))
        spikes = spikes.mark_point(shape="triangle-down", filled=True, size=60, color="#000000")
        layers.append(spikes.encode(x=x, y=y))
    named = alt.TitleParams(title, anchor="end", dy=14, frame="group")
    return alt.layer(*layers, *more).properties(width=WIDTH, height=HEIGHT // 3, title=named)
