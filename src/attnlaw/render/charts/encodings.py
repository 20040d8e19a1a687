"""Parts that many charts share: inline data, axes, colours, dashes, legends and panel titles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import polars as pl

from attnlaw.core.files import to_json
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import as_title, finite_or_none

WIDTH, HEIGHT = 340, 220
PANEL: dict[str, Any] = {"width": 270, "height": 190}
GREY, BARS = "#555555", "#B8C9D9"
EXTENT = 34  # room for the labels of a y axis, the same in every panel, so that panels line up
Rows = pl.DataFrame | Sequence[Mapping[str, Any]]


def inline_data(rows: Rows) -> alt.Data:
    """Return rows as JSON text, which Altair neither copies nor checks. Infinities and NaN become null."""
    if isinstance(rows, pl.DataFrame):
        values = rows.write_json()
    else:
        known = [{name: finite_or_none(value) for name, value in row.items()} for row in rows]
        values = to_json(known, indent=None)
    return alt.Data(values=values, format=alt.DataFormat(type="json"))


def integer_axis(values: Iterable[int], most: int = 8) -> alt.Axis:
    """Return an axis of whole numbers with at most `most` labels, in steps of 1, 2, 5, 10, ...

    >>> integer_axis(range(3)).to_dict()["values"], integer_axis(range(24)).to_dict()["values"]
    ([0, 1, 2], [0, 5, 10, 15, 20])
    """
    present = set(values) or {0}
    low, high = min(present), max(present)
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(step for step in steps if (high - low) // step < most)
    return alt.Axis(values=list(range(low, high + 1, step)), format="d")


def log_axis(values: Iterable[float], **more: Any) -> alt.Axis:
    """Return a logarithmic axis over positive values.

    There is a tick at each power of ten. If these are few, there are also ticks at 3, or at 2 and 5, times
    each power.

    >>> [log_axis(ends).to_dict()["values"] for ends in ([0.02, 3.0], [0.9, 12.0])]
    [[0.03, 0.1, 0.3, 1.0, 3.0], [1.0, 2.0, 5.0, 10.0]]
    >>> log_axis([1e-6, 1.0]).to_dict()["values"][::3]
    [1e-06, 0.001, 1.0]
    """
    known = [value for value in values if value > 0]
    low, high = min(known), max(known)
    span = math.log10(high / low)
    digits = (1,) if span > 3 else (1, 3) if span > 1.5 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    inside = [tick for tick in ticks if 0.999 * low <= tick <= 1.001 * high]
    return alt.Axis(values=inside, format="~g", **more)


def colour_encoding(
    colours: Mapping[str, str], column: str = "series", legend_for_one: bool = False, **legend: Any
) -> alt.Color:
    """Return the encoding of series as colours. `legend_for_one`: even one series has a legend."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(title=None, **legend) if legend_for_one or len(colours) > 1 else None
    return alt.Color(f"{column}:N", scale=scale, legend=shown)


def dash_encoding(column: str, dashes: Mapping[str, Sequence[float]], **legend: Any) -> alt.StrokeDash:
    """Return the encoding of a column as dashes. It has a legend only if `legend` has options."""
    scale = alt.Scale(domain=list(dashes), range=list(dashes.values()))
    shown = alt.Legend(**legend) if legend else None
    return alt.StrokeDash(f"{column}:N", title=None, scale=scale, legend=shown)


def panel_title(text: str) -> alt.TitleParams:
    """Return a title at the left edge of the plot, which lines up with the titles of other panels."""
    return alt.TitleParams(as_title(text), frame="group", anchor="start")


def with_theory_legend(lines: alt.Chart, hue: str = GREY, name: str = "theory") -> alt.Chart:
    """Return these lines with an entry `name` in the legend."""
    dash = dash_encoding("theory", {name: [1, 0]}, symbolType="stroke", symbolStrokeColor=hue)
    return lines.encode(strokeDash=dash).transform_calculate(theory=f"'{name}'")
