"""Charts of the law of a layer: distances to the limit, and the path of tokens along the depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.curves import curves
from attnlaw.render.charts.data import average_repetitions, with_series
from attnlaw.render.charts.figure import PANEL, Figure, palette
from attnlaw.render.charts.labels import MOST_CASES, rows_by_case, varying_settings

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

# Title, slope against the width, and that slope in words. At width n the density is off by a term of order
# 1/n: so is W1, which is of first order in what the densities differ by, and KL, of second order, is 1/n^2.
DISTANCES = {
    "kl_to_limit": ("KL divergence to the limit", -2, "the squared width"),
    "w1_to_limit": ("Wasserstein-1 distance to the limit", -1, "the width"),
}
PATHS = {"squared_length": "squared length of a token", "cosine": "mean cosine between tokens"}
KERNEL = "The kernel estimate is the paper's, mean and deviation over seeds: it levels off at its own bias."


def distances(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Distances against the width, or against the heads where each number of them has one width."""
    finite = source.rows.filter(pl.col("width").is_finite())
    if not finite.height:
        return
    widths = finite.group_by("heads").agg(pl.col("width").n_unique())["width"].to_list()
    x = "width" if max(widths) > 1 else "heads"
    if finite[x].n_unique() == 1:
        return
    others = source.other_settings(finite, ["width", "heads"])
    lines = [*(["heads"] if x == "width" and len(widths) > 1 else []), *others]
    split = bool(lines) and finite.select(lines).n_unique() > MOST_CASES
    across = source.verb.axis(x) if x == "width" else _heads_axis(source, finite)
    for case, case_rows in rows_by_case(finite, others if split else []):
        by = [name for name in lines if not split or name == "heads"]
        for column, (title, power, falls) in DISTANCES.items():
            drawn = _lines(source, case_rows, x, column, by)
            if not (drawn["y"] > 0).any():
                continue
            slope = power if x == "width" else None
            notes = ["Averages over seeds with one standard error."]
            notes += [KERNEL] if "kernel estimate" in drawn["series"] else []
            if slope is not None:
                notes.append(f"Along the dashed guide of slope −{-slope} the distance falls with {falls}.")
            draw = partial(curves, drawn, across, title, palette(drawn["series"]), log=True, slope=slope)
            named = replace(chart, name=column, title=title)
            yield source.figure(named, case, draw, " ".join(notes))


def _lines(source: ChartData, rows: pl.DataFrame, x: str, column: str, by: list[str]) -> pl.DataFrame:
    """The points of every line: the distance to the limit, and KL to another limit or by kernels."""
    means = _means(source, rows, x, column, by)
    if column != "kl_to_limit":
        return means
    if source.has_values(rows, "kl_to_other_limit"):
        parts = [means.with_columns(series=pl.format("{}, its limit", "series"))]
        other_rows = rows.drop_nulls("kl_to_other_limit")
        for (scaling,), other in other_rows.group_by("other_scaling", maintain_order=True):
            named = pl.format("{}, limit of {}", "series", pl.lit(scaling))
            parts.append(_means(source, other, x, "kl_to_other_limit", by).with_columns(series=named))
        return pl.concat(parts)
    if source.has_values(rows, "kernel_kl_to_limit") and not by:
        kernel = rows.group_by(x, maintain_order=True).agg(
            y=pl.col("kernel_kl_to_limit").mean(), error=pl.col("kernel_kl_to_limit").std()
        )
        placed = kernel.drop_nulls("y").select(
            pl.col(x).cast(pl.Float64).alias("x"), "y", "error", series=pl.lit("kernel estimate")
        )
        return pl.concat([means.with_columns(series=pl.lit("averages of normals")), placed])
    return means


def _means(source: ChartData, rows: pl.DataFrame, x: str, column: str, by: list[str]) -> pl.DataFrame:
    means = average_repetitions(rows.drop_nulls(column), x, column, by, source.quantity(column))
    line_rows, _ = with_series(source, means, by)
    return line_rows.select(pl.col("x").cast(pl.Float64), "y", "error", "series")


def _heads_axis(source: ChartData, rows: pl.DataFrame) -> str:
    widths = rows["head_width"].unique().to_list() if "head_width" in rows.columns else [None]
    label = source.verb.axis("heads")
    return label if len(widths) > 1 or widths[0] is None else f"{label}, each of width {widths[0]:g}"


def path(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Squared length of a token and mean cosine between tokens against depth, of first repetitions."""
    names = [f"path_{name}{end}" for name in PATHS for end in ("", "_error")]
    if not source.has_values(source.rows, *names):
        return
    rows = source.rows.drop_nulls(names)
    by = varying_settings(rows, source.settings)
    first = rows.unique(by, keep="first", maintain_order=True) if by else rows.head(1)
    whole = first.filter(
        pl.all_horizontal(pl.col(name).list.len() == pl.col(names[0]).list.len() for name in names)
    )
    named, colours = with_series(source, whole.select(*by, *names), by)
    long = named.explode(names).with_columns(x=pl.int_range(pl.len()).over("series"))
    if long.height:
        yield source.figure(chart, {}, partial(_draw_path, long, colours))


def _draw_path(rows: pl.DataFrame, colours: dict[str, str]) -> Any:
    import altair as alt

    panels = [
        curves(
            rows.select("x", "series", y=f"path_{name}", error=f"path_{name}_error"),
            "depth",
            title,
            colours,
            log_y=name == "squared_length",
            size=PANEL,
        )
        for name, title in PATHS.items()
    ]
    return alt.hconcat(*panels, spacing=28)
