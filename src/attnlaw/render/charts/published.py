"""Numbers of others beside ours, drawn: our values as lines, theirs as points with their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.render.charts.curves import curves
from attnlaw.render.charts.figure import Figure, palette

LEAST_NUMBERS = 3  # numbers of one quantity
CAPTION = "Numbers of others beside ours, with one error where it is known."
Lines = Sequence[Mapping[str, Any]]


def published_figures(lines: Lines, label: Callable[[str], str]) -> list[Figure]:
    """A figure for each quantity of which a few numbers stand beside ours, over the setting that varies most.

    `lines`: quantity, kind, published and ours (estimates), settings (name -> text). `label` names both.
    """
    found = []
    for quantity in dict.fromkeys(line["quantity"] for line in lines):
        own = [line for line in lines if line["quantity"] == quantity]
        names = list(dict.fromkeys(name for line in own for name in line["settings"]))
        counts = {name: len({line["settings"].get(name) for line in own}) for name in names}
        x = max(counts, key=lambda name: counts[name], default=None)
        if x is None or counts[x] < LEAST_NUMBERS:
            continue
        by = [name for name in names if name != x and counts[name] > 1]
        if by and not _is_finite(own, x):  # names of several kinds at once make no axis
            continue
        draw = partial(_draw_comparison, own, x, by, quantity, label)
        title = f"{label(quantity)[0].upper()}{label(quantity)[1:]}: theirs and ours"
        found.append(Figure(f"published_{quantity}", title, CAPTION, draw))
    return found


def _draw_comparison(
    lines: Lines, x: str, by: Sequence[str], quantity: str, label: Callable[[str], str]
) -> Any:
    places = [_number(line["settings"].get(x, "")) for line in lines]
    whole = _is_finite(lines, x)
    series = [", ".join(f"{label(name)} {line['settings'].get(name, '')}" for name in by) for line in lines]
    found: list[dict[str, Any]] = [
        {"x": place if whole else str(place), "series": name, "line": line}
        for place, name, line in zip(places, series, lines, strict=True)
    ]
    theirs = [_point(one, "published") | {"size": _kind(one["line"]["kind"])} for one in found]
    ours = [_point(one, "ours") for one in found]
    if not whole:  # names, or widths up to the limit: points of both, no lines
        rows = [one | {"series": one["size"]} for one in theirs] + [one | {"series": "ours"} for one in ours]
        told = pl.DataFrame([{k: v for k, v in one.items() if k != "size"} for one in rows])
        return curves(told, label(x), label(quantity), palette(told["series"]))
    drawn = pl.DataFrame(ours).unique(["series", "x"]).sort("series", "x")
    return curves(
        drawn,
        label(x),
        label(quantity),
        palette(series),
        points=pl.DataFrame(theirs),
        line_name="ours",
    )


def _point(one: Mapping[str, Any], side: str) -> dict[str, Any]:
    value = one["line"][side]
    return {"x": one["x"], "y": value.value, "error": value.error, "series": one["series"]}


def _kind(kind: str) -> str:
    return "of another kind" if kind == "beside" else kind


def _is_finite(lines: Lines, x: str) -> bool:
    places = [_number(line["settings"].get(x, "")) for line in lines]
    return all(isinstance(place, float) and abs(place) < float("inf") for place in places)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
