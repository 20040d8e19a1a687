"""Figures of a study of what attention learns: curves, phase diagrams, spectra and scaling laws."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from attnlaw.base.tables import Schema
from attnlaw.numerics.power_fit import fit_exponent
from attnlaw.report.figure import Figure
from attnlaw.report.learn_charts import DENSITY, learning_curves, phase_diagram, scaling_law, spectrum
from attnlaw.report.series_charts import series_chart
from attnlaw.report.settings import MOST_CASES, cases, free, label, labelled, varied
from attnlaw.report.study_rows import table_beside

TARGET = ("target_rank", "target_spike", "target_exponent", "target_dimension")
LEARN = ("alpha", "tokens", "output", "beta", *TARGET, "noise", "weight_decay", "student")
# Over the seeds of one setting.
_MEAN = pl.col("estimation_error").mean()
_STANDARD_ERROR = pl.col("estimation_error").std() / pl.len().sqrt()
EIGENVALUES: Schema = {"eigenvalue": pl.Float64()}


def learn_figures(theory: pl.DataFrame, trained: pl.DataFrame, folder: Path) -> Iterator[Figure]:
    """Whatever the rows of `learn` and `learn.simulate` allow; `folder` has the spectra beside them."""
    is_power = (
        pl.col("target_exponent").is_not_null() if "target_exponent" in theory.columns else pl.lit(False)
    )
    powers, plain = theory.filter(is_power), theory.filter(~is_power)
    if plain.height:
        yield from _error_figures(plain, trained)
    if powers.height:
        yield from _scaling_figure(powers)
    if "predicted_spectra_part" in theory.columns:
        yield from _spectrum_figures(theory, trained, folder)


def trained_figures(trained: pl.DataFrame) -> Iterator[Figure]:
    """Errors of trained students, means over seeds, where no theory stands beside them."""
    names = [name for name in varied(trained, (*LEARN, "simulate")) if trained[name].dtype.is_numeric()]
    if not names:
        return
    x = max(names, key=lambda name: _count(trained[name]))
    others = [name for name in varied(trained, (*LEARN, "simulate", "sensing")) if name != x]
    lines = (
        labelled(trained, others)
        .group_by("series", x, maintain_order=True)
        .agg(value=_MEAN, error=_STANDARD_ERROR.fill_null(0.0))
        .rename({"simulate": "size"}, strict=False)
    )
    caption = "Means over seeds with one standard error. Add rows of learn to see the theory beside them."
    axis = "size" if x == "simulate" else x
    chart = partial(series_chart, lines, axis, "value", "estimation error E", "error")
    yield Figure("trained", "Errors of trained students", caption, chart)


def _error_figures(theory: pl.DataFrame, trained: pl.DataFrame) -> Iterator[Figure]:
    names = varied(theory, LEARN)
    if {"alpha", "target_rank"} <= set(names) and _even(theory["alpha"]) and _even(theory["target_rank"]):
        for title, own in cases(theory, [name for name in names if name not in ("alpha", "target_rank")]):
            caption = (
                "Error over that of predicting nothing, by target rank and samples: dark is learned. White "
                "lines are thresholds, where learning changes its nature."
            )
            chart = partial(phase_diagram, own, _thresholds(own, "target_rank"))
            yield Figure("phases", f"Phase diagram{title}", caption, chart)
    elif "alpha" in names and (trained.height or {"student"} >= set(names) - {"alpha", "weight_decay"}):
        others = free(theory, [name for name in names if name not in ("alpha", "student")], "student")
        if "weight_decay" in others:
            theory = _beside_every_decay(theory)
        for title, own in cases(theory, others):
            caption = "Lines: theory in the limit of large dimension."
            points = _points(trained, own)
            if points is not None:
                caption += (
                    " Points: trained students with one standard error; where they lie on the lines, the "
                    "theory holds at that size."
                )
            lines = _thresholds(own).unique("name", maintain_order=True)
            if lines.height:
                caption += " Dotted lines are thresholds."
            chart = partial(learning_curves, own.sort("alpha"), points, lines if lines.height else None)
            yield Figure("learning", f"Learning curves{title}", caption, chart)
    elif names:
        x = max(names, key=lambda name: (theory[name].dtype.is_numeric(), _count(theory[name])))
        rows = labelled(theory, [name for name in names if name != x])
        chart = partial(series_chart, rows, x, "estimation_error", "estimation error E")
        caption = "One line per setting of what else varied."
        yield Figure("error", f"Error against {x.replace('_', ' ')}", caption, chart)


def _beside_every_decay(theory: pl.DataFrame) -> pl.DataFrame:
    """Rows of students without a weight decay, once for each decay of the others: they hold beside all."""
    decays = theory.select(pl.col("weight_decay").drop_nulls().unique(maintain_order=True))
    settings = [name for name in LEARN if name in theory.columns]
    without = theory.filter(pl.col("weight_decay").is_null()).unique(settings, maintain_order=True)
    beside = without.drop("weight_decay").join(decays, how="cross").select(theory.columns)
    return pl.concat([theory.filter(pl.col("weight_decay").is_not_null()), beside])


def _count(values: pl.Series) -> int:
    """How many different values there are, nulls aside."""
    return values.drop_nulls().n_unique()


def _even(values: pl.Series) -> bool:
    """Whether the values are three or more of equal distance, which cells of a diagram take for granted."""
    steps = np.diff(values.unique().sort().to_numpy())
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def _thresholds(rows: pl.DataFrame, *keep: str) -> pl.DataFrame:
    """alpha and name of every threshold that the rows tell; interpolation is that of the row's student."""
    several = rows["student"].n_unique() > 1
    found = [
        {
            "alpha": row[column],
            "name": column.removeprefix("threshold_")
            + (f" ({row['student']})" if several and column == "threshold_interpolation" else ""),
            **{name: row[name] for name in keep},
        }
        for column in rows.columns
        if column.startswith("threshold_") and column != "threshold_peak_error"
        for row in rows.unique(["target_rank", "noise", "student"], maintain_order=True).iter_rows(named=True)
        if row[column] is not None
    ]
    schema = {"alpha": pl.Float64, "name": pl.String, **dict.fromkeys(keep, pl.Float64)}
    return pl.DataFrame(found, schema=schema)


def _points(trained: pl.DataFrame, theory: pl.DataFrame) -> pl.DataFrame | None:
    """Means over seeds of the students trained at the same settings and size, with standard errors."""
    if not trained.height:
        return None
    own = _same(trained, theory, [name for name in LEARN if name not in ("alpha", "student")])
    return own.group_by("alpha", "student", pl.col("simulate").alias("size"), maintain_order=True).agg(
        mean=_MEAN, standard_error=_STANDARD_ERROR
    )


def _same(trained: pl.DataFrame, theory: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The trained students whose settings are among those of the theory."""
    known = [name for name in names if name in trained.columns and name in theory.columns]
    return trained.join(theory.select(known).unique(), on=known, how="semi", nulls_equal=True)


def _spectrum_figures(theory: pl.DataFrame, trained: pl.DataFrame, folder: Path) -> Iterator[Figure]:
    """The predicted spectrum of every setting that asked for it, over a histogram of trained students."""
    asked = theory.filter(pl.col("predicted_spectra_part").is_not_null())
    names = varied(asked, LEARN)
    for row in asked.head(MOST_CASES).iter_rows(named=True):
        own = theory.filter(pl.col("task") == row["task"])
        density = _table(own, "predicted_spectra", folder, DENSITY)
        students = _same(trained, own, list(LEARN))
        eigenvalues = _table(students, "eigenvalues", folder, EIGENVALUES)
        sizes = tuple(students["simulate"].unique().sort()) if students.height else ()
        if density is None or not density.height:
            continue
        caption = "Line: the predicted density of the learned matrix's eigenvalues."
        if eigenvalues is not None:
            caption += " Bars: eigenvalues of trained students, those at zero left out."
        outliers = () if row.get("outlier") is None else (row["outlier"],)
        if outliers:
            caption += " The triangle is where the outlier is predicted."
        title = f": {label({name: row[name] for name in names})}" if names else ""
        chart = partial(spectrum, density, eigenvalues, row.get("atom_at_zero") or 0.0, outliers, sizes)
        yield Figure("spectrum", f"Spectrum of the learned matrix{title}", caption, chart)


def _table(rows: pl.DataFrame, name: str, folder: Path, needed: Schema) -> pl.DataFrame | None:
    """The tables beside the rows in one, None without any."""
    parts = [table_beside(folder, name, task, needed) for task in rows["task"]]
    found = [part for part in parts if part is not None]
    return pl.concat(found) if found else None


def _scaling_figure(theory: pl.DataFrame) -> Iterator[Figure]:
    """Error against N/d for power-law targets, with the fitted and the predicted exponent of every line."""
    tokens = pl.col("tokens")
    per_sample = tokens * (tokens + 1) / 2 - pl.when(pl.col("output") == "linear").then(0).otherwise(1)
    placed = theory.with_columns(
        ratio=pl.col("alpha") * per_sample * pl.col("target_dimension"), leading=pl.col("leading_error")
    )
    # What is not above zero has no place on logarithmic axes.
    told = placed.filter(pl.all_horizontal(pl.col("ratio", "leading", "estimation_error") > 0))
    names = [name for name in varied(told, LEARN) if name not in ("alpha", "weight_decay")]
    lines = []
    for _, own in labelled(told, names).group_by("series", maintain_order=True):
        if own["ratio"].n_unique() > 1:
            lines.append(own.sort("ratio").with_columns(label=pl.lit(_exponents(own))))
    if lines:
        caption = (
            "Error against the observations for targets whose eigenvalues fall as a power: full equations "
            "(lines), leading-order law (dashed). Exponents are fitted to the lines, with an error where "
            "the digits show it; predicted ones stand in brackets."
        )
        rows = pl.concat(lines).select("ratio", "label", "estimation_error", "leading")
        yield Figure("scaling", "Scaling laws", caption, partial(scaling_law, rows))


def _exponents(rows: pl.DataFrame) -> str:
    """A line's label: its setting, the fitted power of N/d with its standard error, the predicted one."""
    slope, error = fit_exponent(rows["ratio"].to_list(), rows["estimation_error"].to_list())
    fitted = f"{slope:.2f} ± {error:.2f}" if error is not None and error >= 0.005 else f"{slope:.2f}"
    predicted = rows["predicted_exponent"][0]
    exponents = (fitted if predicted is None else f"{fitted} ({predicted:.2f})").replace("-", "−")
    setting = rows["series"][0].replace("target exponent", "γ")
    return f"{setting}: {exponents}" if setting else exponents
