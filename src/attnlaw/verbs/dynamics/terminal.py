"""A trajectory in the terminal: when the target is found, then some of its times as rows."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_with_error
from attnlaw.render.terminal.console import column_table, print_message, print_table

ROWS = 12  # times shown; JSON and --out have them all
DROPPABLE_COLUMNS = ("trace", "norm q", "overlap m")


def show(result: Any, console: Console) -> None:
    """Print one trajectory."""
    console.print(Text(_headline(result), style="bold"), soft_wrap=True)
    rows = result.rows
    step = max(-(-(len(rows) - 1) // (ROWS - 1)), 1)
    chosen = [0, *range((len(rows) - 2) % step + 1, len(rows), step)]
    names = {
        "time": "time τ",
        "samples": "samples/d²",
        "alignment": "alignment ρ",
        "estimation_error": "error E",
        "prediction_error": "loss",
        "overlap": "overlap m",
        "norm": "norm q",
        "trace": "trace",
    }
    cells = {
        title: [_cell(rows[i], name) for i in chosen]
        for name, title in names.items()
        if any(row[name] is not None for row in rows)
    }
    print_table(console, lambda left_out: column_table(cells, left_out), DROPPABLE_COLUMNS)
    for row in result.tracks[-1:]:
        if row.get("location") is not None:
            place = f"the spike {row['target']:g} stands at {row['location']:.4g}"
            detail = f"{place}, overlap² {row['squared_overlap']:.3f}; the bulk ends at {row['edge']:.4g}"
            console.print(Text(f"At the last time {detail}."), soft_wrap=True)
    if result.remark:
        print_message(f"dynamics: {result.outcome}: {result.remark}")


def _headline(result: Any) -> str:
    """When the alignment reaches its levels, and what kind of training that is."""
    if "recovery_time" not in result.quantities:
        path = result.path
        run = f"η = {path.schedule.learning_rate:g}, batch {path.batch}, {path.steps} steps"
        return f"Trained: {path.seeds} students by SGD at d = {path.size}, {run}, {path.sensing} sensing"
    known, eta = result.quantities, result.path.schedule.learning_rate
    kind = "gradient flow of the population loss (η = 0)" if eta == 0 else f"one-pass SGD, η = {eta:g}"
    reached = [
        f"{level} at τ = {known[name]:.4g}" + ("" if eta == 0 else f" ({known[name] / eta:.4g} d² samples)")
        for level, name in ((0.5, "recovery_time"), (0.9, "recovery_time_90"))
        if known[name] is not None
    ]
    summary = f"the alignment reaches {' and '.join(reached)}" if reached else _not_reached(result)
    flat = "".join(f"; no progress from {low:.3g} to {high:.3g}" for low, high in result.path.plateaus)
    return f"{kind[0].upper()}{kind[1:]}: {summary}{flat}"


def _not_reached(trajectory: Any) -> str:
    alignment, lost = trajectory.quantities["alignment"], trajectory.path.divergence_time
    if lost is not None:
        return f"the student has run away from the target by τ = {lost:.4g}"
    if alignment is None:
        return "a target proportional to the identity has no alignment"
    last = trajectory.path.time[-1]
    return f"the alignment does not reach 0.5 by τ = {last:.4g}, where it is {alignment.value:.3f}"


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return ""
    error = row.get(f"{name}_error")
    return format_with_error(value, error) if error else f"{value:.4g}"
