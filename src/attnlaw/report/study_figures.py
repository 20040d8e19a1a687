"""Figures of a study's rows: what varied decides what is drawn. Rows are those of `rows/rows.parquet`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.report.figure import Figure
from attnlaw.report.learn_charts import learning_curves, phase_diagram
from attnlaw.report.limit_charts import density_chart, distance_chart, path_chart
from attnlaw.report.saved import short_names
from attnlaw.report.series_charts import series_chart

LEARN = ("alpha", "tokens", "output", "beta", "target_rank", "noise", "weight_decay", "student")
LIMIT = (
    "tokens",
    "heads",
    "width",
    "activation",
    "mask",
    "depth",
    "residual",
    "normalise",
    "head_width",
    "scaling",
)
DISTANCES = {
    "kl_to_limit": "KL divergence to the limit",
    "w1_to_limit": "Wasserstein-1 distance to the limit",
}
# Beyond so many, cases are left to the table.
MOST_CASES = 6


def study_figures(rows: pl.DataFrame, folder: Path) -> list[Figure]:
    """Whatever the finished rows of a study allow; `folder` has the tables beside them."""
    done = rows.filter(pl.col("status") != "failed")
    verbs = set(done["verb"])
    figures: list[Figure] = []
    if "learn" in verbs:
        trained = done.filter(pl.col("verb") == "learn.simulate")
        figures += _learn(done.filter(pl.col("verb") == "learn"), trained)
    if "limit" in verbs:
        figures += _limit(done.filter(pl.col("verb") == "limit"), folder)
    if "audit" in verbs:
        figures += _audits(done.filter(pl.col("verb") == "audit"))
    return [_numbered(figure, place) for place, figure in enumerate(figures, start=1)]


def _audits(rows: pl.DataFrame) -> Iterator[Figure]:
    """The proxies of all audited models; their matrices are in the tables beside the rows."""
    known = rows.filter(pl.col("log10_spectrum_adaptive").is_not_null())
    if known.height:
        names = [name for name in known.columns if name.startswith("log10_")]
        labels = short_names(known["model"])
        long = known.unpivot(names, index="model", variable_name="series", value_name="log10").with_columns(
            pl.col("model").replace_strict(labels),
            pl.col("series").str.strip_prefix("log10_").str.replace_all("_", " "),
        )
        caption = (
            "Proxies are leading factors of bounds: compare models along one colour; they are not guarantees."
        )
        yield Figure(
            "proxies",
            "Proxies of all models",
            caption,
            partial(series_chart, long, "model", "log10", "log10 proxy"),
        )


def _learn(theory: pl.DataFrame, trained: pl.DataFrame) -> Iterator[Figure]:
    varied = _varied(theory, LEARN)
    if {"alpha", "target_rank"} <= set(varied) and min(
        theory["alpha"].n_unique(), theory["target_rank"].n_unique()
    ) > 2:
        for label, own in _cases(theory, [name for name in varied if name not in ("alpha", "target_rank")]):
            caption = (
                "Error over that of predicting nothing, by target rank and samples: dark is learned. White "
                "lines are thresholds, where learning changes its nature."
            )
            yield Figure(
                "phases",
                f"Phase diagram{label}",
                caption,
                partial(phase_diagram, own, _thresholds(own, "target_rank")),
            )
    elif "alpha" in varied:
        others = _free(theory, [name for name in varied if name not in ("alpha", "student")], "student")
        for label, own in _cases(theory, others):
            caption = (
                "Lines: theory in the limit of large dimension. Points: trained students with one standard "
                "error; where they lie on the lines, the theory holds at that size."
            )
            points = _points(trained, own)
            lines = _thresholds(own).unique("name", maintain_order=True)
            if lines.height:
                caption += " Dotted lines are thresholds."
            chart = partial(learning_curves, own.sort("alpha"), points, lines if lines.height else None)
            yield Figure("learning", f"Learning curves{label}", caption, chart)
    elif varied:
        x = max(varied, key=lambda name: (theory[name].dtype.is_numeric(), theory[name].n_unique()))
        chart = partial(
            series_chart,
            _labelled(theory, [n for n in varied if n != x]),
            x,
            "estimation_error",
            "estimation error E",
        )
        yield Figure(
            "error",
            f"Error against {x.replace('_', ' ')}",
            "One line per setting of what else varied.",
            chart,
        )


def _thresholds(rows: pl.DataFrame, *keep: str) -> pl.DataFrame:
    """alpha and name of every threshold that the rows tell."""
    found = [
        {
            "alpha": row[column],
            "name": column.removeprefix("threshold_"),
            **{name: row[name] for name in keep},
        }
        for column in rows.columns
        if column.startswith("threshold_") and column != "threshold_peak_error"
        for row in rows.unique(["target_rank", "noise"], maintain_order=True).iter_rows(named=True)
        if row[column] is not None
    ]
    schema = {"alpha": pl.Float64, "name": pl.String, **dict.fromkeys(keep, pl.Float64)}
    return pl.DataFrame(found, schema=schema)


def _points(trained: pl.DataFrame, theory: pl.DataFrame) -> pl.DataFrame | None:
    """Means over seeds of the students trained at the same settings, with standard errors."""
    if not trained.height:
        return None
    same = [name for name in LEARN if name not in ("alpha", "student") and name in trained.columns]
    own = trained.join(theory.select(same).unique(), on=same, how="semi", nulls_equal=True)
    return own.group_by("alpha", "student", maintain_order=True).agg(
        mean=pl.col("estimation_error").mean(),
        standard_error=pl.col("estimation_error").std() / pl.len().sqrt(),
    )


def _limit(rows: pl.DataFrame, folder: Path) -> Iterator[Figure]:
    others = [name for name in _varied(rows, LIMIT) if name not in ("width", "heads")]
    finite = rows.filter(pl.col("width").is_finite())
    for label, own in _cases(rows, others):
        densities = _densities(own, folder)
        if densities is not None:
            caption = (
                "Density of one output coordinate; the dashed line is the limit of infinite width, which is "
                "not Gaussian. Lines that approach it show how wide a layer must be."
            )
            yield Figure("densities", f"Densities{label}", caption, partial(density_chart, densities))
    for label, own in _cases(finite, others):
        if own["width"].n_unique() > 1:
            for column, title in DISTANCES.items():
                chart = partial(distance_chart, _distances(own, column), title, "width n")
                caption = "Along the dashed guide of slope −2 the distance falls with the squared width."
                yield Figure(column, f"{title}{label}", caption, chart)
    if "path_squared_length" in rows.columns and rows["path_squared_length"].count():
        caption = "Squared length of tokens, and how alike they become (cosine 1: rank collapse)."
        yield Figure("path", "Along the depth", caption, partial(path_chart, _paths(rows)))


def _densities(rows: pl.DataFrame, folder: Path) -> pl.DataFrame | None:
    """The first repetition's density at every width, with its ratio to the limit where both share a grid."""
    parts = []
    for row in rows.unique(["heads", "width"], keep="first", maintain_order=True).iter_rows(named=True):
        path = folder / "tables" / "densities" / f"{row['task']}.parquet"
        if path.exists():
            place = {"heads": pl.lit(row["heads"]), "width": pl.lit(float(row["width"]))}
            parts.append(pl.read_parquet(path).select("y", "density").with_columns(**place))
    if not parts:
        return None
    return pl.concat(parts).with_columns(ratio=pl.lit(None, dtype=pl.Float64))


def _distances(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Means over seeds; errors add in squares."""
    return (
        rows.filter(pl.col(column).is_not_null())
        .group_by("width", "heads", maintain_order=True)
        .agg(value=pl.col(column).mean(), error=(pl.col(f"{column}_error") ** 2).sum().sqrt() / pl.len())
        .select(
            x="width",
            series=pl.concat_str(
                pl.col("heads"),
                pl.when(pl.col("heads") == 1).then(pl.lit(" head")).otherwise(pl.lit(" heads")),
            ),
            value="value",
            error="error",
        )
        .sort("series", "x", maintain_order=True)
    )


def _paths(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per depth of every setting's first repetition."""
    varied = _varied(rows, LIMIT)
    columns = {name.removeprefix("path_"): pl.col(name) for name in rows.columns if name.startswith("path_")}
    first = _labelled(rows.filter(pl.col("path_squared_length").is_not_null()), varied).unique(
        "series", keep="first", maintain_order=True
    )
    long = first.select("series", **columns).explode(list(columns))
    return long.with_columns(depth=pl.int_range(pl.len()).over("series"))


def _varied(rows: pl.DataFrame, arguments: Sequence[str]) -> list[str]:
    return [name for name in arguments if name in rows.columns and rows[name].n_unique() > 1]


def _free(rows: pl.DataFrame, names: Sequence[str], given: str) -> list[str]:
    """The arguments that vary within one value of `given`, too: not those that were chosen for each."""
    return [name for name in names if (rows.group_by(given).agg(pl.col(name).n_unique())[name] > 1).any()]


def _labelled(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The rows with a column `series` that tells the values of the named arguments."""
    labels = [_label({name: row[name] for name in names}) for row in rows.iter_rows(named=True)]
    return rows.with_columns(series=pl.Series(labels, dtype=pl.String))


def _cases(rows: pl.DataFrame, names: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of every setting of the named arguments, at most six, with a label for its title."""
    if not names:
        yield "", rows
        return
    for count, (_, own) in enumerate(rows.group_by(names, maintain_order=True)):
        if count < MOST_CASES:
            yield f": {_label({name: own[name][0] for name in names})}", own


def _label(values: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "∞" if value == float("inf") else f"{value:g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name.replace('_', ' ')} {text(value)}" for name, value in values.items())


def _numbered(figure: Figure, place: int) -> Figure:
    """The figure under a name of its own."""
    return replace(figure, name=f"{figure.name}_{place}")
