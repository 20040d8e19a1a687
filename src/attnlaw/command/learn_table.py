"""What attention learns, in the terminal: the quantities of one problem, or a row for each alpha."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from attnlaw.command.console import column_table, output, print_table, say
from attnlaw.command.uncertain import with_error
from attnlaw.learning.prediction import Prediction
from attnlaw.learning.simulate import Measurement
from attnlaw.learning.thresholds import RECOVERIES, Thresholds

# A power law may have a hundred intervals and outliers; JSON lists them all.
MOST = 6
# What a narrow screen leaves out of a curve, in this order.
LESS = ("Tr Ŝ/d", "rank", "training loss")
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


def show(
    predictions: list[Prediction],
    measurements: list[Measurement | None],
    known: Thresholds | None,
    is_curve: bool,
) -> None:
    """Print a point or a curve, then what its statuses say, then the thresholds where they are known."""
    if is_curve:
        columns = _curve_columns(predictions, measurements)
        print_table(output, lambda left_out: column_table(columns, left_out, texts=("status",)), LESS)
    else:
        print_table(output, lambda _: _point_table(predictions[0], measurements[0]))
    for prediction in predictions:
        if not prediction.converged:
            say(f"alpha {prediction.problem.alpha:.5g}: {prediction.status}")
    for measured in measurements:
        if measured is not None and measured.status != "converged":
            say(f"training at alpha {measured.problem.alpha:.5g}: {measured.status}")
    if any(measured is not None and measured.seeds == 1 for measured in measurements):
        say("one trained student has no standard error; --seeds 2 or more gives one")
    if known is not None:
        output.print("\nthresholds (alpha); recovery and feasibility for clean labels")
        names = RECOVERIES | {"interpolation": f"{predictions[0].problem.student} interpolation"}
        for name, value in known.describe().items():
            if value is not None:
                output.print(f"  {names.get(name, name.replace('_', ' ')):26}{value:.6g}")


def _curve_columns(
    predictions: list[Prediction], measurements: list[Measurement | None]
) -> dict[str, list[str]]:
    """The cells under each title, one for each alpha."""
    trained = [_measured(measured, "estimation_error") for measured in measurements if measured is not None]
    return {
        "alpha": [f"{prediction.problem.alpha:.5g}" for prediction in predictions],
        "E": [_predicted(prediction, "estimation_error") for prediction in predictions],
        **({"E trained": trained} if trained else {}),
        "training loss": [_predicted(prediction, "training_loss") for prediction in predictions],
        "rank": [_predicted(prediction, "rank_fraction") for prediction in predictions],
        "Tr Ŝ/d": [_predicted(prediction, "trace") for prediction in predictions],
        "status": [prediction.status.split(":")[0] for prediction in predictions],
    }


def _point_table(prediction: Prediction, measured: Measurement | None) -> Table:
    """One row for each quantity, then the spectrum: its intervals and its outliers."""
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity", no_wrap=True, min_width=len("estimation error"))
    table.add_column("", no_wrap=True)
    table.add_column("theory", justify="right", no_wrap=True)
    if measured is not None:
        title = f"trained, d = {measured.size}"
        table.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    table.add_column("", overflow="fold")
    for name, letter, meaning in QUANTITIES:
        cells = [name.replace("_", " "), letter, _predicted(prediction, name)]
        if measured is not None:
            cells.append(_measured(measured, name))
        table.add_row(*cells, meaning)
    blank = [""] * (2 if measured is None else 3)
    spectrum = prediction.describe()["spectrum"]
    edges = [f"[{low:.4g}, {high:.4g}]" for low, high in spectrum["edges"]]
    table.add_row("spectrum", *blank, escape(_first_of(edges)))
    if prediction.outliers:
        outliers = [f"{seen.location:.4g} (overlap {seen.overlap:.3g})" for seen in prediction.outliers]
        table.add_row("outliers", *blank, _first_of(outliers))
    return table


def _first_of(items: list[str]) -> str:
    """The first of a long list, and how many more there are."""
    more = [f"and {len(items) - MOST} more"] if len(items) > MOST else []
    return "  ".join(items[:MOST] + more)


def _predicted(prediction: Prediction, name: str) -> str:
    value = getattr(prediction, name)
    return "–" if value is None else with_error(value, (prediction.error or {}).get(name))


def _measured(measurement: Measurement, name: str) -> str:
    estimate = getattr(measurement, name, None)
    return "" if estimate is None else with_error(estimate.mean, estimate.standard_error)
