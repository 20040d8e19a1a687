"""Laws laid over the histogram of a measured spectrum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.render.charts.densities import BARS, histogram
from attnlaw.render.charts.figure import colour_encoding
from attnlaw.render.charts.style import PALETTE, inline_data

SIZE = (520, 300)
ROOM = 1.3  # height of the plot over that of the bars: a law may have a pole
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def laws_over_histogram(
    values: NDArray[np.float64], curves: Mapping[str, Curve], colours: Mapping[str, int], x: str
) -> Any:
    """A histogram of values as a density, under lines by name; `colours` are places in the palette."""
    import altair as alt

    bars = histogram(values, np.zeros(0), values.size, "measured")
    y = alt.Y(
        "height:Q", title="density", scale=alt.Scale(domain=[0.0, ROOM * max(bar["height"] for bar in bars)])
    )
    layers = [
        alt.Chart(inline_data(bars))
        .mark_bar(color=BARS, stroke="white", strokeWidth=0.3)
        .encode(x=alt.X("left:Q", title=x), x2="right:Q", y=y, y2="floor:Q")
    ]
    rows = [
        {"x": place, "height": height, "series": name}
        for name, curve in curves.items()
        for place, height in zip(*(part.tolist() for part in curve), strict=True)
    ]
    if rows:
        hues = {name: PALETTE[colours[name]] for name in curves}
        lines = alt.Chart(inline_data(rows)).mark_line(clip=True)
        layers.append(lines.encode(x="x:Q", y=y, color=colour_encoding(hues, legend_for_one=True)))
    return alt.layer(*layers).properties(width=SIZE[0], height=SIZE[1])
