"""`attnlaw learn`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from attnlaw.learning.prediction import Prediction
    from attnlaw.learning.simulate import Measurement
    from attnlaw.learning.thresholds import Thresholds

Number = TypeVar("Number", int, float)
SETTINGS = "The problem"
RUN = "The run"


def command(
    alpha: Annotated[
        float | None,
        typer.Option(help="Samples over d²: α = n/d².", show_default="0.2", rich_help_panel=SETTINGS),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Tokens per sample, T.", rich_help_panel=SETTINGS)] = 1,
    output: Annotated[
        str,
        typer.Option(help="linear, softmax (rows), or hardmax (bayes only).", rich_help_panel=SETTINGS),
    ] = "linear",
    beta: Annotated[
        float | None,
        typer.Option(
            help="Inverse temperature β of the softmax.", show_default="1.0", rich_help_panel=SETTINGS
        ),
    ] = None,
    target_rank: Annotated[
        float | None,
        typer.Option(
            help="Rank of the target over d: κ₀ = m₀/d.", show_default="0.5", rich_help_panel=SETTINGS
        ),
    ] = None,
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
        int | None,
        typer.Option(help="The d of --target-exponent.", show_default="1000000", rich_help_panel=SETTINGS),
    ] = None,
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
        int | None,
        typer.Option(
            metavar="K",
            help="Students to train, each on its own data; in parentheses the standard error of the mean.",
            show_default="8",
            rich_help_panel=RUN,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the simulation.", show_default="0", rich_help_panel=RUN),
    ] = None,
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
    from attnlaw.base.errors import InputError
    from attnlaw.command.console import print_json, progress, say
    from attnlaw.command.learn_table import show
    from attnlaw.learning import simulate as simulation
    from attnlaw.learning.problem import Problem
    from attnlaw.learning.sweep import curve as solve_curve
    from attnlaw.learning.thresholds import thresholds as find_thresholds
    from attnlaw.report.style import FORMATS
    from attnlaw.study.learn_verbs import chosen_target

    if figure is not None and figure.suffix not in FORMATS:
        raise InputError(f"{figure}: a figure ends in one of {', '.join(FORMATS)}; rename it")
    _refuse(
        {
            "--alpha and --curve alpha=...: choose one": alpha is not None and curve is not None,
            "--target-rank and --target-exponent: choose one": None not in (target_rank, target_exponent),
            "--target-dimension needs --target-exponent": (
                target_dimension is not None and target_exponent is None
            ),
            "--beta needs --output softmax": beta is not None and output in ("linear", "hardmax"),
            "--thresholds: hardmax labels never reveal the target exactly; leave it out": (
                thresholds and output == "hardmax"
            ),
            "--seeds needs --simulate D": seeds is not None and simulate is None,
            "--seed needs --simulate D": seed is not None and simulate is None,
        }
    )
    alpha, beta = _or(alpha, 0.2), _or(beta, 1.0)
    target_rank, target_dimension = _or(target_rank, 0.5), _or(target_dimension, 1_000_000)
    seeds, seed = _or(seeds, 8), _or(seed, 0)
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
    for measured in measurements:
        if measured is not None and measured.rounding is not None:
            say(f"{measured.rounding}, the theory's; choose a larger size or that alpha")
    known = None
    if thresholds:
        known = find_thresholds(problem.target, problem.observations_per_sample, noise, student)
    if json:
        objects = [_as_json(*pair, known) for pair in zip(predictions, measurements, strict=True)]
        print_json(objects if curve is not None else objects[0])
    else:
        show(predictions, measurements, known, is_curve=curve is not None)
    if figure is not None:
        _draw(predictions, measurements, known, figure, is_curve=curve is not None)
        say(f"wrote {figure}")


def _refuse(mistakes: dict[str, bool]) -> None:
    """Bad usage for options that contradict each other, or that nothing would read."""
    for words, made in mistakes.items():
        if made:
            raise typer.BadParameter(words)


def _or(given: Number | None, default: Number) -> Number:
    """What was given, or the default where nothing was."""
    return default if given is None else given


def _alphas(text: str) -> list[float]:
    """`alpha=0.05:1:40` as 40 values from 0.05 to 1."""
    from attnlaw.base.errors import InputError
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


def _draw(
    predictions: list[Prediction],
    measurements: list[Measurement | None],
    known: Thresholds | None,
    path: Path,
    is_curve: bool,
) -> None:
    import polars as pl

    from attnlaw.learning.figures import density_rows, error_row, threshold_rows
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
        from attnlaw.learning.sweep import row

        points = [error_row(measured) for measured in measurements if measured is not None]
        lines = [] if known is None else threshold_rows(known, predictions[0].problem.noise)
        chart = learn_charts.learning_curves(
            pl.DataFrame([row(prediction) for prediction in predictions], infer_schema_length=None),
            pl.DataFrame(points) if points else None,
            pl.DataFrame(lines) if lines else None,
        )
    save_chart(chart, path)
