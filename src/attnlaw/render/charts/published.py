"""Numbers of others beside ours, drawn: our values as lines, theirs as points with their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.render.charts.figure import Figure, palette
from attnlaw.render.charts.lines import draw_lines

LEAST_NUMBERS = 3  # numbers of one quantity
CAPTION = "Numbers of others beside ours, with one error where it is known."
Lines = Sequence[Mapping[str, Any]]


def published_figures(lines: Lines, label: Callable[[str], str]) -> list[Figure]:
    """A figure for each quantity of which a few numbers stand beside ours, over the setting that varies most.

    `lines`: quantity, kind, published and ours (estimates), settings (name -> text). `label` names both.
    """
    figures = []
    for quantity in dict.fromkeys(line["quantity"] for line in lines):
        quantity_lines = [line for line in lines if line["quantity"] == quantity]
        names = list(dict.fromkeys(name for line in quantity_lines for name in line["settings"]))
        counts = {name: len({line["settings"].get(name) for line in quantity_lines}) for name in names}
        x = max(counts, key=lambda name: counts[name], default=None)
        if x is None or counts[x] < LEAST_NUMBERS:
            continue
        by = [name for name in names if name != x and counts[name] > 1]
        if by and not _has_numeric_axis(quantity_lines, x):  # names of several kinds at once make no axis
            continue
        draw = partial(_draw_comparison, quantity_lines, x, by, quantity, label)
        title = f"{label(quantity)[0].upper()}{label(quantity)[1:]}: theirs and ours"
        figures.append(Figure(f"published_{quantity}", title, CAPTION, draw))
    return figures


def _draw_comparison(
    lines: Lines, x: str, by: Sequence[str], quantity: str, label: Callable[[str], str]
) -> Any:
    places = [_number(line["settings"].get(x, "")) for line in lines]
    whole = _has_numeric_axis(lines, x)
    series = [", ".join(f"{label(name)} {line['settings'].get(name, '')}" for name in by) for line in lines]
    entries: list[dict[str, Any]] = [
        {"x": place if whole else str(place), "series": name, "line": line}
        for place, name, line in zip(places, series, lines, strict=True)
    ]
    theirs = [_point(entry, "published") | {"size": _kind(entry["line"]["kind"])} for entry in entries]
    ours = [_point(entry, "ours") for entry in entries]
    if not whole:  # names, or widths up to the limit: points of both, no lines
        rows = [point | {"series": point["size"]} for point in theirs] + [
            point | {"series": "ours"} for point in ours
        ]
        table = pl.DataFrame([{k: v for k, v in row.items() if k != "size"} for row in rows])
        return draw_lines(table, label(x), label(quantity), palette(table["series"]))
    drawn = pl.DataFrame(ours).unique(["series", "x"]).sort("series", "x")
    return draw_lines(
        drawn,
        label(x),
        label(quantity),
        palette(series),
        points=pl.DataFrame(theirs),
        line_name="ours",
    )


def _point(entry: Mapping[str, Any], side: str) -> dict[str, Any]:
    value = entry["line"][side]
    return {"x": entry["x"], "y": value.value, "error": value.error, "series": entry["series"]}


def _kind(kind: str) -> str:
    return "of another kind" if kind == "beside" else kind


def _has_numeric_axis(lines: Lines, x: str) -> bool:
    places = [_number(line["settings"].get(x, "")) for line in lines]
    return all(isinstance(place, float) and abs(place) < float("inf") for place in places)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
