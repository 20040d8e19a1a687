"""Numbers of others beside ours, drawn: our values as lines, theirs as points with their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.lines import draw_lines
from attnlaw.render.charts.style import palette

LEAST_NUMBERS = 3  # numbers of one quantity
CAPTION = "Numbers of others beside ours, with one error where it is known."
Lines = Sequence[Mapping[str, Any]]


def published_figures(lines: Lines, label: Callable[[str], str]) -> list[Figure]:
    """A figure for each quantity of which a few numbers stand beside ours, over the setting that varies most.

    `lines`: quantity, kind, published and ours (estimates), settings (name -> text). `label` names both.
    """
    figures = []
    for quantity in dict.fromkeys(line["quantity"] for line in lines):
        known = [line for line in lines if line["quantity"] == quantity]
        names = list(dict.fromkeys(name for line in known for name in line["settings"]))
        counts = {name: len({line["settings"].get(name) for line in known}) for name in names}
        x = max(counts, key=lambda name: counts[name], default=None)
        if x is None or counts[x] < LEAST_NUMBERS:
            continue
        by = [name for name in names if name != x and counts[name] > 1]
        places = [_number(line["settings"].get(x, "")) for line in known]
        numeric = all(isinstance(place, float) and math.isfinite(place) for place in places)
        if by and not numeric:  # names of several kinds at once make no axis
            continue
        series = [
            ", ".join(f"{label(name)} {line['settings'].get(name, '')}" for name in by) for line in known
        ]
        theirs, ours = (
            pl.DataFrame(
                {
                    "x": places if numeric else [str(place) for place in places],
                    "y": [line[side].value for line in known],
                    "error": [line[side].error for line in known],
                    "series": series,
                    "size": [
                        "of another kind" if line["kind"] == "beside" else line["kind"] for line in known
                    ],
                },
                schema_overrides={"error": pl.Float64},
            )
            for side in ("published", "ours")
        )
        draw = partial(_draw_comparison, theirs, ours, label(x), label(quantity))
        title = f"{label(quantity)[0].upper()}{label(quantity)[1:]}: theirs and ours"
        figures.append(Figure(f"published_{quantity}", title, CAPTION, draw))
    return figures


def _draw_comparison(theirs: pl.DataFrame, ours: pl.DataFrame, x: str, y: str) -> Any:
    if theirs["x"].dtype.is_numeric():
        lines = ours.drop("size").unique(["series", "x"]).sort("series", "x")
        return draw_lines(lines, x, y, palette(theirs["series"]), points=theirs, line_name="ours")
    # Names, or widths up to the limit: points of both, no lines.
    points = pl.concat([theirs, ours.with_columns(size=pl.lit("ours"))]).select(
        "x", "y", "error", series="size"
    )
    return draw_lines(points, x, y, palette(points["series"]))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
