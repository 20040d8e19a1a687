"""`attnlaw learn`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlaw.cli.uncertain import with_error

if TYPE_CHECKING:
    from rich.table import Table

    from attnlaw.aim.prediction import Prediction
    from attnlaw.aim.simulate import Measurement
    from attnlaw.aim.thresholds import Thresholds

# A power law may have a hundred outliers; JSON lists them all.
MOST_OUTLIERS = 6
SETTINGS = "The problem"
RUN = "The run"
# Quantity, its letter, and what it is, in the order of the table.
QUANTITIES = (
    ("estimation_error", "E", "|Ŝ − S*|²/d"),
    ("prediction_error", "", "on fresh clean labels, per sample"),
    ("training_loss", "", "per sample over all (a,b), without the penalty"),
    ("overlap", "m", "Tr Ŝ S*/d"),
    ("norm", "q", "Tr Ŝ²/d"),
    ("rank_fraction", "", "share of eigenvalues that are not zero"),
    ("trace", "", "Tr Ŝ/d"),
    ("noise_level", "δ", "of the matrix the student effectively sees (softmax, Bayes: a)"),
    ("threshold", "b", "below which eigenvalues are cut"),
)


def command(
    alpha: Annotated[float, typer.Option(help="Samples over d²: α = n/d².", rich_help_panel=SETTINGS)] = 0.2,
    tokens: Annotated[int, typer.Option(help="Tokens per sample, T.", rich_help_panel=SETTINGS)] = 1,
    output: Annotated[
        str,
        typer.Option(help="linear, softmax (rows), or hardmax (bayes only).", rich_help_panel=SETTINGS),
    ] = "linear",
    beta: Annotated[
        float, typer.Option(help="Inverse temperature β of the softmax.", rich_help_panel=SETTINGS)
    ] = 1.0,
    target_rank: Annotated[
        float, typer.Option(help="Rank of the target over d: κ₀ = m₀/d.", rich_help_panel=SETTINGS)
    ] = 0.5,
    target_spike: Annotated[
        float | None,
        typer.Option(help="One eigenvalue of the target outside its bulk.", rich_help_panel=SETTINGS),
    ] = None,
    target_exponent: Annotated[
        float | None,
        typer.Option(
            help="Instead of a rank: eigenvalues k^−γ, k = 1..d, with this γ above 1/2.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    target_dimension: Annotated[
        int, typer.Option(help="The d of --target-exponent.", rich_help_panel=SETTINGS)
    ] = 1_000_000,
    noise: Annotated[float, typer.Option(help="Label noise Δ, a variance.", rich_help_panel=SETTINGS)] = 0.0,
    weight_decay: Annotated[
        float,
        typer.Option(
            help="Penalty: λ̃ = √κ λ on factors W of ratio κ (factorized), λ on S (direct), ignored by bayes.",
            rich_help_panel=SETTINGS,
        ),
    ] = 0.1,
    student: Annotated[
        str, typer.Option(help="factorized, direct or bayes.", rich_help_panel=SETTINGS)
    ] = "factorized",
    simulate: Annotated[
        int | None,
        typer.Option(metavar="D", help="Also train real students at dimension D.", rich_help_panel=RUN),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Students to train, each on its own data; in parentheses the standard error of the mean.",
            rich_help_panel=RUN,
        ),
    ] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.", rich_help_panel=RUN)] = 0,
    thresholds: Annotated[
        bool,
        typer.Option(
            "--thresholds", help="Also the sample ratios where learning changes.", rich_help_panel=RUN
        ),
    ] = False,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="alpha=FROM:TO:COUNT", help="A learning curve instead of one α.", rich_help_panel=RUN
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=RUN)
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the spectrum, or the curve (.pdf, .png, .svg).", rich_help_panel=RUN
        ),
    ] = None,
) -> None:
    """Predict what a single attention head learns from n samples; train real ones beside the theory.

    The tokens are Gaussian, the target is S* = W₀W₀ᵀ/√(m₀d), and the student sees noisy scores
    h_ab = (x_aᵀ S x_b − δ_ab Tr S)/√d, plain or through a row softmax (arXiv 2509.24914, 2506.01582).

    In JSON: estimation_error is E, overlap m, norm q, trace Tr Ŝ/d, noise_level δ (softmax, bayes: a),
    threshold b; training_loss is per sample over all (a,b) without the penalty; error holds
    standard errors where theory averages over draws (softmax). A curve is a list.

    The same from Python: attnlaw.state_evolution(problem) of an attnlaw.Problem(alpha=..., tokens=..., ...),
    attnlaw.curve(problem, alphas) and attnlaw.simulate(problem, size=D, seeds=K).
    """
    from attnlaw.aim import simulate as simulation
    from attnlaw.aim.problem import Problem
    from attnlaw.aim.sweep import curve as solve_curve
    from attnlaw.aim.thresholds import thresholds as find_thresholds
    from attnlaw.cli.console import print_json, progress, say
    from attnlaw.errors import InputError
    from attnlaw.report.style import FORMATS
    from attnlaw.study.learn_verbs import chosen_target

    if figure is not None and figure.suffix not in FORMATS:
        raise InputError(f"{figure}: a figure ends in one of {', '.join(FORMATS)}; rename it")
    alphas = _alphas(curve) if curve is not None else [alpha]
    problem = Problem(
        alpha=alphas[-1],
        tokens=tokens,
        output=output,
        beta=beta,
        target=chosen_target(target_rank, target_spike, target_exponent, target_dimension),
        noise=noise,
        weight_decay=weight_decay,
        student=student,
    )
    if simulate is not None:
        simulation.check_simulation(problem, simulate)
    with progress("theory") as report:
        predictions = solve_curve(problem, alphas, report)
    measurements: list[Measurement | None] = [None] * len(alphas)
    if simulate is not None:
        with progress("training") as report:
            total = len(alphas) * seeds
            for i, prediction in enumerate(predictions):
                measurements[i] = simulation.simulate(
                    prediction.problem,
                    size=simulate,
                    seeds=seeds,
                    seed=seed,
                    progress=lambda done, _, i=i: report(i * seeds + done, total),  # type: ignore[misc]
                )
    known = find_thresholds(problem.target, problem.observations_per_sample, noise) if thresholds else None
    if json:
        objects = [_as_json(*pair, known) for pair in zip(predictions, measurements, strict=True)]
        print_json(objects if curve is not None else objects[0])
    else:
        _show(predictions, measurements, known, is_curve=curve is not None)
    if figure is not None:
        _draw(predictions, measurements, known, figure, is_curve=curve is not None)
        say(f"wrote {figure}")


def _alphas(text: str) -> list[float]:
    """`alpha=0.05:1:40` as 40 values from 0.05 to 1."""
    from attnlaw.errors import InputError
    from attnlaw.study.cases import span

    name, _, values = text.partition("=")
    if name != "alpha":
        raise InputError(f"curve: found {text!r}, expected alpha=FROM:TO:COUNT such as alpha=0.05:1:40")
    return span(values, "curve: alpha")


def _as_json(
    prediction: Prediction, measurement: Measurement | None, known: Thresholds | None
) -> dict[str, Any]:
    return {
        "problem": prediction.problem.describe(),
        "prediction": prediction.describe(),
        "simulation": None if measurement is None else measurement.describe(),
        **({} if known is None else {"thresholds": known.describe()}),
    }


def _show(
    predictions: list[Prediction],
    measurements: list[Measurement | None],
    known: Thresholds | None,
    is_curve: bool,
) -> None:
    from attnlaw.cli.console import output, say

    if is_curve:
        output.print(_curve_table(predictions, measurements))
    else:
        output.print(_point_table(predictions[0], measurements[0]))
    for prediction in predictions:
        if not prediction.converged:
            say(f"alpha {prediction.problem.alpha:.5g}: {prediction.status}")
    for measured in measurements:
        if measured is not None and measured.status != "converged":
            say(f"training at alpha {measured.problem.alpha:.5g}: {measured.status}")
    if known is not None:
        output.print("\nthresholds (alpha); all but interpolation for clean labels")
        for name, value in known.describe().items():
            if value is not None:
                output.print(f"  {name.replace('_', ' '):16}{value:.6g}")


def _curve_table(predictions: list[Prediction], measurements: list[Measurement | None]) -> Table:
    """One row for each alpha."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("alpha", "E", "E trained", "training loss", "rank", "Tr Ŝ/d", "status"):
        table.add_column(title, justify="left" if title == "status" else "right")
    for prediction, measured in zip(predictions, measurements, strict=True):
        table.add_row(
            f"{prediction.problem.alpha:.5g}",
            _predicted(prediction, "estimation_error"),
            "" if measured is None else _measured(measured, "estimation_error"),
            *(_predicted(prediction, name) for name in ("training_loss", "rank_fraction", "trace")),
            prediction.status.split(":")[0],
        )
    return table


def _point_table(prediction: Prediction, measured: Measurement | None) -> Table:
    """One row for each quantity, then the spectrum: its intervals and its outliers."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    table.add_column("")
    table.add_column("theory", justify="right")
    if measured is not None:
        table.add_column(f"trained, d = {measured.size}", justify="right")
    table.add_column("")
    for name, letter, meaning in QUANTITIES:
        cells = [name.replace("_", " "), letter, _predicted(prediction, name)]
        if measured is not None:
            cells.append(_measured(measured, name))
        table.add_row(*cells, meaning)
    blank = [""] * (2 if measured is None else 3)
    spectrum = prediction.describe()["spectrum"]
    edges = "  ".join(f"[{low:.4g}, {high:.4g}]" for low, high in spectrum["edges"])
    table.add_row("spectrum", *blank, escape(edges))
    if prediction.outliers:
        shown = [f"{seen.location:.4g} (overlap {seen.overlap:.3g})" for seen in prediction.outliers]
        if len(shown) > MOST_OUTLIERS:
            shown[MOST_OUTLIERS:] = [f"and {len(shown) - MOST_OUTLIERS} more"]
        table.add_row("outliers", *blank, "  ".join(shown))
    return table


def _predicted(prediction: Prediction, name: str) -> str:
    value = getattr(prediction, name)
    return "–" if value is None else with_error(value, (prediction.error or {}).get(name))


def _measured(measurement: Measurement, name: str) -> str:
    estimate = getattr(measurement, name, None)
    return "" if estimate is None else with_error(estimate.mean, estimate.standard_error)


def _draw(
    predictions: list[Prediction],
    measurements: list[Measurement | None],
    known: Thresholds | None,
    path: Path,
    is_curve: bool,
) -> None:
    import polars as pl

    from attnlaw.aim.figures import density_rows, error_row, threshold_rows
    from attnlaw.report import learn_charts
    from attnlaw.report.style import save_chart

    if not is_curve:
        prediction, measured = predictions[0], measurements[0]
        values = None if measured is None else pl.DataFrame({"eigenvalue": measured.eigenvalues.ravel()})
        summary = prediction.describe()["spectrum"]
        places = tuple(outlier["location"] for outlier in summary["outliers"])
        chart = learn_charts.spectrum(
            pl.DataFrame(density_rows(prediction), schema=learn_charts.DENSITY),
            values,
            summary["atom_at_zero"],
            places,
            () if measured is None else (measured.size,),
        )
    else:
        from attnlaw.aim.sweep import row

        points = [error_row(measured) for measured in measurements if measured is not None]
        chart = learn_charts.learning_curves(
            pl.DataFrame([row(prediction) for prediction in predictions], infer_schema_length=None),
            pl.DataFrame(points) if points else None,
            None if known is None else pl.DataFrame(threshold_rows(known)),
        )
    save_chart(chart, path)
