"""Compare published numbers with the rows of a study, as a table and as figures. A number belongs to all rows
that have its settings. If there are several, their mean is compared, with the error that follows from
theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import parse_number
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.lines import draw_lines
from attnlaw.render.charts.style import palette
from attnlaw.reproduce.papers import NUMBER_COLUMNS, OTHER_SETUP, UNTESTED, published_lines

# Columns of published.csv. `kind` says whose the number `published` is. `difference` is ours / theirs - 1.
# `z` is (ours - theirs) over the combined standard error; it is null if nothing was drawn at random and the
# published number has no error.
COMPARISON = (
    *(Quantity(name, kind="text") for name in ("paper", "study", "case", "quantity", "kind")),
    *(Quantity(name, error=True) for name in ("published", "ours")),
    *(Quantity(name) for name in ("difference", "z")),
    Quantity("source", kind="text"),
)
SETTING_TOLERANCE = 1e-9  # relative; settings are written in decimals
LEAST_NUMBERS = 3  # for a figure of one quantity
CAPTION = (
    "Lines are computed by attnlaw. Points are numbers from elsewhere, with one standard error if it is "
    "known. Published points come from the paper or its files; reference points come from an independent "
    "program. Good agreement means that the points are on the line within their errors."
)
Lines = Sequence[Mapping[str, Any]]


def compare(paper: str, study: str, rows: pl.DataFrame, random_verbs: Iterable[str]) -> list[dict[str, Any]]:
    """Compare the rows of a study, which have a column `verb`, with published numbers.

    Return one line for each published number for which there is a row, with the columns of `COMPARISON` and
    `settings`. `paper` is an arXiv number, and `random_verbs` names the verbs that draw random numbers.
    """
    comparisons = []
    for line in published_lines(study):
        settings = {name: value for name, value in line.items() if name not in NUMBER_COLUMNS and value}
        pair = _our_estimate(rows, line["quantity"], settings, frozenset(random_verbs))
        if pair is None:
            continue
        ours, is_random = pair
        theirs = Estimate(float(line["value"]), float(line["error"]) if line["error"] else None)
        case = "; ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in settings.items())
        comparisons.append(
            {
                "paper": paper,
                "study": study,
                "case": case,
                "settings": settings,
                "quantity": line["quantity"],
                "kind": line["kind"],
                "published": theirs,
                "ours": ours,
                "difference": ours.value / theirs.value - 1.0 if theirs.value else None,
                "z": None if line["kind"] in UNTESTED else _z(theirs, ours, is_random),
                "source": line["source"],
            }
        )
    return comparisons


def _short(text: str) -> str:
    number = parse_number(text)
    return text if isinstance(number, str) else f"{number:.6g}"


def _z(theirs: Estimate, ours: Estimate, is_random: bool) -> float | None:
    # The error of a deterministic solver says nothing about the digits that others print.
    if theirs.error is None and not is_random:
        return None
    both = math.hypot(theirs.error or 0.0, ours.error or 0.0)
    return (ours.value - theirs.value) / both if both else None


def _our_estimate(
    rows: pl.DataFrame, quantity: str, settings: Mapping[str, str], random_verbs: frozenset[str]
) -> tuple[Estimate, bool] | None:
    """Return our value at these settings and whether it is random, or None if no row has the value."""
    if quantity in DERIVED:
        derived = DERIVED[quantity](rows)
        return None if derived is None else (Estimate(derived), False)
    if not {quantity, *settings} <= set(rows.columns):
        return None
    for name, value in settings.items():
        if rows[name].dtype.is_numeric():
            number = float(value)
            near = (pl.col(name) / number - 1.0).abs() < SETTING_TOLERANCE
            rows = rows.filter((pl.col(name) == number) | near)
        else:
            rows = rows.filter(pl.col(name).cast(pl.String) == value)
    rows = rows.filter(pl.col(quantity).is_not_null())
    if not rows.height:
        return None
    random = bool(set(rows["verb"]) & random_verbs)
    values = rows[quantity].cast(pl.Float64).to_list()
    mean = math.fsum(values) / len(values)
    error = f"{quantity}_error"
    stated = rows[error].drop_nulls().to_list() if error in rows.columns else []
    if len(stated) == len(values):
        return Estimate(mean, math.hypot(*stated) / len(stated)), random
    if len(values) == 1:
        return Estimate(mean), random
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Estimate(mean, math.sqrt(spread / len(values))), random


def _crossing(rows: pl.DataFrame) -> float | None:
    """Return the `beta` at which heads of size 64 and 128 have equal errors, by cubic interpolation."""
    narrow, equal = (rows.filter(pl.col("head_size") == size).sort("beta") for size in (64, 128))
    beta = narrow["beta"].to_numpy()
    if narrow.height < 4 or beta.tolist() != equal["beta"].to_list():
        return None
    apart = np.log((narrow["coefficient_error"] / equal["coefficient_error"]).to_numpy())
    (turns,) = np.nonzero(np.diff(np.sign(apart)))
    if not turns.size:
        return None
    first = int(np.clip(turns[0] - 1, 0, beta.size - 4))
    near = slice(first, first + 4)
    return float(np.polyval(np.polyfit(apart[near], beta[near], 3), 0.0))


# Published numbers that no single row has, computed from all rows of the study.
DERIVED: dict[str, Callable[[pl.DataFrame], float | None]] = {"crossing_beta": _crossing}


def published_figures(lines: Lines, label: Callable[[str], str]) -> list[Figure]:
    """Return a figure for each quantity that has at least three published numbers.

    The x axis is the setting that varies most. Lines show attnlaw's values, and points with errors show the
    published values. `lines` come from `compare`, and `label` returns the words for a quantity or a setting.
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
        if by and not numeric:  # an axis of names has no room for several series
            continue
        series = [
            ", ".join(f"{label(name)} {line['settings'].get(name, '')}" for name in by) for line in known
        ]
        kinds = [OTHER_SETUP if line["kind"] == "beside" else line["kind"] for line in known]
        theirs, ours = (
            pl.DataFrame(
                {
                    "x": places if numeric else [str(place) for place in places],
                    "y": [line[side].value for line in known],
                    "error": [line[side].error for line in known],
                    "series": series,
                    "size": kinds,
                },
                schema_overrides={"error": pl.Float64},
            )
            for side in ("published", "ours")
        )
        draw = partial(_draw_comparison, theirs, ours, label(x), label(quantity))
        whose = " and ".join(dict.fromkeys(line["kind"] for line in known))
        title = f"{label(quantity)[0].upper()}{label(quantity)[1:]}: {whose} numbers and attnlaw"
        figures.append(Figure(f"published_{quantity}", title, CAPTION, draw))
    return figures


def _draw_comparison(theirs: pl.DataFrame, ours: pl.DataFrame, x: str, y: str) -> Any:
    if theirs["x"].dtype.is_numeric():
        lines = ours.drop("size").unique(["series", "x"]).sort("series", "x")
        return draw_lines(lines, x, y, palette(theirs["series"]), points=theirs, line_name="attnlaw")
    # The axis has names, or widths that include infinity: both are points without lines.
    both = pl.concat([theirs, ours.with_columns(size=pl.lit("attnlaw"))])
    points = both.select("x", "y", "error", series="size")
    return draw_lines(points, x, y, palette(points["series"]))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
