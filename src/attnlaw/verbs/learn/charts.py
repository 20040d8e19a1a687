"""Charts of `learn`: phase diagrams, learning curves, spectra, scaling laws and parts of the error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.errors import InputError
from attnlaw.core.progress import no_progress
from attnlaw.render.charts.cells import Shades, draw_field, is_evenly_spaced
from attnlaw.render.charts.densities import draw_spectrum
from attnlaw.render.charts.encodings import HEIGHT, WIDTH, colour_encoding, inline_data, log_axis
from attnlaw.render.charts.lines import draw_lines, line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.render.describe_rows import rows_by_case, varying_settings
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.verbs.learn import LearnSettings, run

CURVE = ("alpha", "estimation_error")
CURVE_POINTS = 40  # numbers of samples at which a line of theory is computed
FLAGS = ("thresholds", "spectrum")

INTERPOLATION = "threshold_interpolation"
RECOVERIES = ("threshold_recovery", "threshold_feasibility", "threshold_bayes", "threshold_direct")
NO_LINE = pl.DataFrame(schema={"x": pl.Float64, "density": pl.Float64, "detail": pl.Int64})
SCALING_COLUMNS = ("observations", "estimation_error", "leading_error")
PARTS = ("approximation_error", "underfitting_error", "overfitting_error")


@chart(
    "Phase diagram",
    "Error divided by the error of learning nothing, for each rank of the target and number of samples. "
    "Dark: the target is learned; bright: it is not. White lines are thresholds, such as the number of "
    "samples from which a student recovers the target.",
)
def phases(view: ChartView) -> Drawings:
    return _phase_diagrams(view)


def _phase_diagrams(view: ChartView) -> Drawings:
    """Yield phase diagrams, if the ranks and samples of a case form an even grid."""
    rows = view.rows.drop_nulls(["relative_error", "alpha", "target_rank"])
    for case, case_rows in view.cases(rows, ["target_rank", "alpha"]):
        if is_evenly_spaced(case_rows["target_rank"]) and is_evenly_spaced(case_rows["alpha"]):
            yield Drawing(partial(_draw_phases, view, case_rows), case)


def _draw_phases(view: ChartView, rows: pl.DataFrame) -> alt.LayerChart:
    axis = view.verb.axis
    ranks = rows.unique("target_rank", keep="first", maintain_order=True).sort("target_rank")
    thresholds = [
        ranks.select(x="target_rank", y=column, name=pl.lit(axis(column))).drop_nulls("y")
        for column in (*RECOVERIES, INTERPOLATION)
    ]
    return draw_field(
        rows.select(x="target_rank", y="alpha", colour="relative_error"),
        pl.concat(thresholds),
        axis("target_rank"),
        axis("alpha"),
        axis("relative_error"),
        Shades(domain=(0.0, 1.0)),
    )


@chart(
    "Learning curves",
    "Error of the learned matrix after each number of samples. Lines: theory in the limit of large "
    "dimension. Lower is better: 0 is the target itself.",
)
def learning(view: ChartView) -> Drawings:
    """Draw learning curves, unless a phase diagram shows the same. `scaling` draws power-law targets."""
    if any(_phase_diagrams(view)):
        return
    yield from line_charts(
        view,
        view.rows.drop_nulls("target_rank"),
        "alpha",
        "estimation_error",
        ["student", "attention", "pairs"],
        sizes="simulate",
        thresholds=partial(_thresholds, view),
        # A case without a number is not filled in.
        smooth=None if view.rows["estimation_error"].null_count() else partial(_more_samples, view),
    )


def _more_samples(view: ChartView, rows: pl.DataFrame) -> pl.DataFrame:
    """Return predictions at many numbers of samples, or the rows if that is slow or differs from them."""
    names = [name for name in view.settings if name != "alpha"]
    parts = []
    for _, curve in rows.group_by(names, maintain_order=True):
        alphas = curve["alpha"].unique().sort().to_list()
        even = np.linspace(alphas[0], alphas[-1], CURVE_POINTS).tolist()
        dense = _predicted(view, curve.row(0, named=True), sorted({*alphas, *even}))
        if dense is None:
            return rows
        if _differs(curve, dense):
            return rows
        settings = curve.head(1).drop("alpha", "estimation_error", "estimation_error_error", strict=False)
        parts.append(settings.join(dense, how="cross"))
    return pl.concat(parts, how="diagonal_relaxed")


def _differs(rows: pl.DataFrame, dense: pl.DataFrame) -> bool:
    """Return whether a prediction of now is not that of the rows, which another version may have computed."""
    same = rows.join(dense, on="alpha", suffix="_again")
    change = (same["estimation_error"] - same["estimation_error_again"]).abs()
    return bool((change > 1e-6 * same["estimation_error"].abs() + 1e-12).any())


def _predicted(view: ChartView, row: Mapping[str, Any], alphas: list[float]) -> pl.DataFrame | None:
    """Return the error of a row's problem at other numbers of samples, or None if each takes long."""
    known = {name: row.get(column) for name, column in view.verb.setting_columns.items()}
    given = {name: value for name, value in known.items() if value is not None} | dict.fromkeys(FLAGS, False)
    try:
        cases = [LearnSettings(**given | {"alpha": alpha}) for alpha in alphas]
    except InputError:
        return None
    if cases[0].observed_output.name not in STUDENTS[cases[0].student].batched_outputs:
        return None
    predictions = list(run(cases, no_progress))
    errors = [
        (alpha, prediction.estimation_error.value)
        for alpha, prediction in zip(alphas, predictions, strict=True)
        if not isinstance(prediction, InputError)
    ]
    return pl.DataFrame(errors, schema={"alpha": pl.Float64, "estimation_error": pl.Float64}, orient="row")


@chart(
    "Error against samples",
    "Error of the learned matrix with more or fewer samples. Line: theory in the limit of large dimension. "
    "The point on the line is this case. Lower is better: 0 is the target itself.",
)
def curve(view: ChartView) -> Drawings:
    """Draw the learning curve around the case, if there is only one. Trained students are points."""
    rows = view.rows.drop_nulls(["alpha", "estimation_error"])
    if view.rows.height != 1 or not rows.height:
        return
    row = rows.row(0, named=True)
    samples = np.geomspace(row["alpha"] / 4, 4 * row["alpha"], CURVE_POINTS).tolist()
    dense = _predicted(view, row, sorted({row["alpha"], *samples}))
    if dense is None or dense.height < 2 or _differs(rows, dense):
        return
    lines, colours = view.mean_lines(dense.with_columns(student=pl.lit(row["student"])), *CURVE, ["student"])
    here = pl.DataFrame({"x": [row["alpha"]], "y": [row["estimation_error"]], "error": [None]})
    points = [
        here.with_columns(
            pl.col("error").cast(pl.Float64), series=lines["series"][:1], size=pl.lit("this case")
        )
    ]
    note = ""
    if view.simulation is not None:
        students = view.same_settings(view.simulation.rows.drop_nulls("estimation_error"), rows)
        for size in students["simulate"].unique().sort():
            trained, _ = view.mean_lines(students.filter(pl.col("simulate") == size), *CURVE, ["student"])
            label = pl.lit(view.simulation.size_label("simulate", [size]))
            points.append(trained.select("x", "y", "error", "series", size=label))
            note = "Other points: trained students; bars are one standard error."
    draw = partial(
        draw_lines,
        lines,
        view.verb.axis("alpha"),
        view.verb.axis("estimation_error"),
        colours,
        points=pl.concat(points),
        thresholds=_thresholds(view, rows),
        from_zero=True,
        with_dots=False,
    )
    yield Drawing(draw, note=note)


def _thresholds(view: ChartView, rows: pl.DataFrame) -> pl.DataFrame:
    """Return thresholds with the columns x and name. Those of recovery hold only for clean labels."""
    thresholds: dict[tuple[float, str], None] = {}
    for column in (INTERPOLATION,) if rows["noise"].max() else (*RECOVERIES, INTERPOLATION):
        places = rows.select(column, "student").unique(maintain_order=True)
        alone = places[column].n_unique() == 1
        for place, student in places.drop_nulls(column).iter_rows():
            whose = "" if alone else f" ({view.value_labels.label_of('student', student)})"
            thresholds[place, f"{view.verb.axis(column)}{whose}"] = None
    return pl.DataFrame(list(thresholds), schema={"x": pl.Float64, "name": pl.String}, orient="row")


@chart(
    "Rank for each width of the factors",
    "Share of directions that the learned matrix uses, for each width of the factors. On the diagonal, the "
    "width limits the rank; below it, weight decay limits it.",
)
def rank(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "width", "rank_fraction", sizes="simulate")


@chart(
    "Smallest singular value that is kept",
    "Smallest singular value of the learned matrix that is not zero, for each width of the factors. At 0, "
    "weight decay limits the rank; above 0, the width limits it.",
)
def smallest(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "width", "smallest_value")


@chart(
    "Scaling laws",
    "Error after each number of observed scores, for targets whose eigenvalues fall as a power law. "
    "Lines: full equations. Dashed: leading-order law. The legend has the fitted exponent of each line, "
    "with the predicted one in brackets: if both agree, the law holds.",
)
def scaling(view: ChartView) -> Drawings:
    """Draw the error over N/d, and show the fitted and the predicted exponent of every line."""
    # Logarithmic axes can only show values above zero.
    rows = view.rows.filter(pl.all_horizontal(pl.col(SCALING_COLUMNS) > 0))
    names = view.other_settings(rows, ["alpha"])
    lines = [
        line.sort("observations").with_columns(label=pl.lit(_exponents(view, line, names)))
        for _, line in (rows.group_by(names, maintain_order=True) if names else [((), rows)])
        if line["observations"].n_unique() > 1
    ]
    if lines:
        drawn = pl.concat(lines).select("label", "estimation_error", "observations", "leading_error")
        yield Drawing(partial(scaling_law, drawn, view.verb.axis("estimation_error")))


def scaling_law(rows: pl.DataFrame, y: str) -> alt.LayerChart:
    """Draw estimation_error (solid) and leading_error (dashed) of `rows` over observations, by label."""
    scale = alt.Scale(type="log", nice=False)
    ticks = log_axis(rows["observations"])
    across = alt.X("observations:Q", title="scores with a label / d (N/d)", scale=scale, axis=ticks)
    lowest = min(*rows["estimation_error"], *rows["leading_error"])
    decades = [10.0**power for power in range(math.floor(math.log10(lowest)), 2)]
    up = alt.Y("estimation_error:Q", title=y, scale=scale, axis=alt.Axis(values=decades, format="~g"))
    hue = colour_encoding(palette(rows["label"]), "label", legend_for_one=True)
    base = alt.Chart(inline_data(rows)).encode(x=across, color=hue)
    dashed = base.mark_line(strokeDash=[4, 3], strokeWidth=1.1)
    both = alt.layer(base.mark_line().encode(y=up), dashed.encode(y=alt.Y("leading_error:Q", scale=scale)))
    title = "full equations (solid) and leading order (dashed)"
    return both.properties(width=WIDTH, height=HEIGHT, title=title)


def _exponents(view: ChartView, rows: pl.DataFrame, names: list[str]) -> str:
    slope, error = _slope(rows["observations"], rows["estimation_error"])
    fitted = f"{slope:.2f} ± {error:.2f}" if error is not None and error >= 0.005 else f"{slope:.2f}"
    predicted = rows["predicted_exponent"][0]
    exponents = (fitted if predicted is None else f"{fitted} ({predicted:.2f})").replace("-", "−")
    values = view.value_labels.describe({name: rows[name][0] for name in names})
    setting = values.replace("target exponent", "γ")
    return f"{setting}: {exponents}" if setting else exponents


def _slope(x: pl.Series, y: pl.Series) -> tuple[float, float | None]:
    """Return the slope of a line through (log x, log y), and its standard error (None for two points)."""
    a, b = (np.log(values.to_numpy()) - np.log(values.to_numpy()).mean() for values in (x, y))
    slope = float(a @ b / (a @ a))
    left = float(((b - slope * a) ** 2).sum())
    return slope, math.sqrt(left / (a.size - 2) / float(a @ a)) if a.size > 2 else None


@chart(
    "What the error is made of",
    "Parts of the error after each number of samples (our split, not in the paper): modes that were "
    "found but not exactly, what is missing along the target, and what was learned in other directions.",
    on_page=False,
)
def split(view: ChartView) -> Drawings:
    """Draw the parts of the error as stacked areas over the samples, unless a phase diagram is drawn."""
    if any(_phase_diagrams(view)):
        return
    labels = {name: view.verb.axis(name) for name in (*PARTS, "alpha", "estimation_error")}
    rows = view.rows.drop_nulls(["alpha", "target_rank", *PARTS])
    for case, case_rows in view.cases(rows, ["alpha"]):
        if case_rows["alpha"].n_unique() > 1:
            long = case_rows.unpivot(PARTS, index="alpha", variable_name="part")
            named = long.with_columns(pl.col("part").replace_strict(labels))
            draw = partial(draw_parts, named, labels["alpha"], labels["estimation_error"])
            yield Drawing(draw, case)


def draw_parts(rows: pl.DataFrame, x: str, y: str) -> alt.Chart:
    base = alt.Chart(inline_data(rows)).mark_area()
    return base.encode(
        x=alt.X("alpha:Q", title=x, scale=alt.Scale(nice=False)),
        y=alt.Y("sum(value):Q", title=y, stack="zero"),
        color=colour_encoding(palette(rows["part"]), "part", legend_for_one=True),
    ).properties(width=WIDTH, height=HEIGHT)


@chart(
    "Spectrum of the learned matrix",
    "How many eigenvalues (untied: singular values) the learned matrix has at each value. Line: density "
    "that theory predicts. The weight at zero is the share of directions that the matrix does not use.",
)
def spectrum(view: ChartView) -> Drawings:
    """Draw the predicted density of the learned spectrum, with bars for students with the same settings."""
    lines = view.frame("predicted_spectra", "x", "density")
    for case, case_lines in rows_by_case(lines, varying_settings(lines, view.settings)):
        first = pl.col("case") == case_lines["case"][0]
        density = lines.filter(first).select("x", "density", detail="interval")
        yield _spectrum(view, case, view.rows.filter(first), density)
    # The whole spectrum may be the atom at zero.
    if not lines.height and view.rows["atom_at_zero"].to_list() == [1.0]:
        yield _spectrum(view, {}, view.rows, NO_LINE)


def _spectrum(view: ChartView, case: dict[str, Any], rows: pl.DataFrame, density: pl.DataFrame) -> Drawing:
    notes, name, values = [], "", None
    if view.simulation is not None:
        students = view.same_settings(view.simulation.rows, rows)
        eigenvalues = view.simulation.frame("eigenvalues", "eigenvalue")
        if students.height and eigenvalues.height:
            kept = eigenvalues.filter(pl.col("case").is_in(students["case"].to_list()))
            values = kept["eigenvalue"].to_list()
            name = view.simulation.size_label("simulate", sorted(students["simulate"].unique()))
            notes.append(
                "Bars: trained students, without eigenvalues at zero; they follow the line if theory holds."
            )
    atom, outliers = rows["atom_at_zero"][0] or 0.0, rows["outlier_locations"].to_list()[0] or []
    notes += ["The triangle shows where theory expects an outlier."] if outliers else []
    draw = partial(
        draw_spectrum, density, view.verb.axis("x"), values, atom=atom, outliers=outliers, name=name
    )
    return Drawing(draw, case, " ".join(notes))


@chart(
    "Spectrum of trained matrices",
    "Eigenvalues (untied: singular values) of all trained students, without those at zero.",
)
def eigenvalues(view: ChartView) -> Drawings:
    """Draw a histogram of the eigenvalues of trained students."""
    rows = view.frame("eigenvalues", "eigenvalue")
    for case, case_rows in rows_by_case(rows, varying_settings(rows, view.settings)):
        name = view.size_label("simulate", sorted(case_rows["simulate"].drop_nulls().unique()))
        values, label = case_rows["eigenvalue"].to_list(), view.verb.label("eigenvalue")
        yield Drawing(partial(draw_spectrum, NO_LINE, label, values, name=name), case)
