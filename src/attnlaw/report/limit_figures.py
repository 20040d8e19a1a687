"""Figures of a study of limits: densities, distances to the limit and to a Gaussian, the path along depth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from attnlaw.base.tables import Schema
from attnlaw.report.figure import Figure
from attnlaw.report.limit_charts import density_chart, distance_chart, path_chart
from attnlaw.report.settings import MOST_CASES, cases, labelled, varied
from attnlaw.report.study_rows import PATHS, table_beside

DENSITY: Schema = {"y": pl.Float64(), "density": pl.Float64()}
SHAPE = ("tokens", "heads", "width", "activation", "mask", "depth", "residual", "normalise")
LIMIT = (*SHAPE, "head_width", "scaling")
# Title, slope against the width, and that slope in words. At width n the density is off by a term of order
# 1/n: so is W1, which is of first order in what the densities differ by, and KL, of second order, is 1/n^2.
DISTANCES = {
    "kl_to_limit": ("KL divergence to the limit", -2, "the squared width"),
    "w1_to_limit": ("Wasserstein-1 distance to the limit", -1, "the width"),
}


def limit_figures(rows: pl.DataFrame, folder: Path) -> Iterator[Figure]:
    """Whatever the rows of `limit` allow; `folder` has the densities beside them."""
    yield from _density_figures(rows, folder)
    yield from _distance_figures(rows.filter(pl.col("width").is_finite()))
    yield from _gaussian_figure(rows)
    if _has(rows, "path_squared_length"):
        caption = "Squared length of tokens, and how alike they become (cosine 1: rank collapse)."
        yield Figure("path", "Along the depth", caption, partial(path_chart, _paths(rows)))


def _density_figures(rows: pl.DataFrame, folder: Path) -> Iterator[Figure]:
    finite = rows.filter(pl.col("width").is_finite())
    # Heads that were drawn at infinite width alone have nothing to compare.
    shown = rows.filter(pl.col("heads").is_in(finite["heads"].unique().to_list())) if finite.height else rows
    for title, own in cases(shown, [name for name in varied(rows, LIMIT) if name not in ("width", "heads")]):
        densities = _densities(own, folder)
        if densities is not None:
            caption = "Density of one output coordinate at initialisation."
            if not densities["width"].is_finite().all():
                caption = (
                    "Density of one output coordinate; the dashed line is the limit of infinite width, which "
                    "is not Gaussian. Lines that approach it show how wide a layer must be."
                )
            yield Figure("densities", f"Densities{title}", caption, partial(density_chart, densities))


def _densities(rows: pl.DataFrame, folder: Path) -> pl.DataFrame | None:
    """The first repetition's density at every width; their grids differ, so that no ratio is told."""
    parts = []
    for row in rows.unique(["heads", "width"], keep="first", maintain_order=True).iter_rows(named=True):
        table = table_beside(folder, "densities", row["task"], DENSITY)
        if table is not None:
            place = {"heads": pl.lit(row["heads"]), "width": pl.lit(float(row["width"]))}
            parts.append(table.with_columns(**place))
    if not parts:
        return None
    return pl.concat(parts).with_columns(ratio=pl.lit(None, dtype=pl.Float64))


def _distance_figures(finite: pl.DataFrame) -> Iterator[Figure]:
    """Distances against the width, or against the heads where each number of them has one width."""
    if not finite.height:
        return
    widths = finite.group_by("heads").agg(pl.col("width").n_unique())["width"].to_list()
    x = "width" if max(widths) > 1 else "heads"
    if finite[x].n_unique() == 1:
        return
    against = "width n" if x == "width" else _heads_axis(finite)
    others = [name for name in varied(finite, LIMIT) if name not in ("width", "heads")]
    series = [*(["heads"] if x == "width" and len(widths) > 1 else []), *others]
    split = labelled(finite, series)["series"].n_unique() > MOST_CASES
    for title, own in cases(finite, others if split else []):
        named = labelled(own, [name for name in series if not split or name == "heads"])
        for column, (name, power, falls) in DISTANCES.items():
            slope = power if x == "width" else None
            lines = _lines(named, x, column)
            if not (lines["value"] > 0).any():
                continue
            caption = "Averages over seeds with one standard error."
            if "kernel estimate" in lines["series"]:
                caption += (
                    " The kernel estimate is the paper's, mean and standard deviation over seeds: it levels "
                    "off at its own bias."
                )
            if slope is not None:
                caption += f" Along the dashed guide of slope −{-slope} the distance falls with {falls}."
            chart = partial(distance_chart, lines, name, against, slope)
            yield Figure(column, f"{name}{title}", caption, chart)


def _lines(rows: pl.DataFrame, x: str, column: str) -> pl.DataFrame:
    """The points of every line: the distance to the limit, and KL to another limit or by kernels."""
    own = _means(rows, x, column)
    if column != "kl_to_limit":
        return own
    if _has(rows, "kl_to_other_limit"):
        to_other = pl.format("{}, limit of {}", "series", "other_scaling")
        other = rows.filter(pl.col("kl_to_other_limit").is_not_null()).with_columns(series=to_other)
        own = own.with_columns(series=pl.format("{}, its limit", "series"))
        return pl.concat([own, _means(other, x, "kl_to_other_limit")])
    if _has(rows, "kernel_kl_to_limit") and rows["series"].n_unique() == 1:
        kernel = (
            rows.group_by(x, maintain_order=True)
            .agg(value=pl.col("kernel_kl_to_limit").mean(), error=pl.col("kernel_kl_to_limit").std())
            .select(
                pl.col(x).cast(pl.Float64).alias("x"),
                series=pl.lit("kernel estimate"),
                value="value",
                error=pl.col("error").fill_null(0.0),
            )
        )
        return pl.concat([own.with_columns(series=pl.lit("averages of normals")), kernel])
    return own


def _means(rows: pl.DataFrame, x: str, column: str) -> pl.DataFrame:
    """Means over seeds; errors add in squares."""
    return (
        rows.filter(pl.col(column).is_not_null())
        .group_by("series", x, maintain_order=True)
        .agg(value=pl.col(column).mean(), error=(pl.col(f"{column}_error") ** 2).sum().sqrt() / pl.len())
        .select(pl.col(x).cast(pl.Float64).alias("x"), "series", "value", "error")
    )


def _gaussian_figure(rows: pl.DataFrame) -> Iterator[Figure]:
    """KL to the Gaussian of the same mean and variance against the heads, a line for each width."""
    if not _has(rows, "kl_to_gaussian"):
        return
    told = rows.filter(pl.col("kl_to_gaussian").is_not_null())
    others = [name for name in varied(told, LIMIT) if name != "heads"]
    if told["heads"].n_unique() > 1:
        title = "KL divergence to a Gaussian"
        caption = (
            "To the Gaussian of the same mean and variance. Along the dashed guide of slope −2 it falls with "
            "the squared number of heads."
        )
        lines = _means(labelled(told, others), "heads", "kl_to_gaussian")
        if (lines["value"] > 0).any():  # a distance within its error of zero may come out below it
            yield Figure("gaussian", title, caption, partial(distance_chart, lines, title, "heads H", -2))


def _heads_axis(rows: pl.DataFrame) -> str:
    widths = rows["head_width"].unique() if "head_width" in rows.columns else pl.Series([None])
    return "heads H" if len(widths) > 1 or widths[0] is None else f"heads H, each of width {widths[0]:g}"


def _paths(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per depth of every setting's first repetition."""
    columns = {name.removeprefix("path_"): pl.col(name) for name in PATHS}
    told = rows.filter(pl.col("path_squared_length").is_not_null())
    first = labelled(told, varied(rows, LIMIT)).unique("series", keep="first", maintain_order=True)
    long = first.select("series", **columns).explode(list(columns))
    return long.with_columns(depth=pl.int_range(pl.len()).over("series"))


def _has(rows: pl.DataFrame, column: str) -> bool:
    return column in rows.columns and rows[column].count() > 0
