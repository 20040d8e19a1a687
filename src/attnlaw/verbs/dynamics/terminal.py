"""A trajectory in the terminal: when the student finds the target, and a table of some times."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_with_error
from attnlaw.render.terminal.console import Column, print_message, print_table
from attnlaw.theory.learn.attention import ATTENTIONS

if TYPE_CHECKING:
    from attnlaw import DynamicsResult

ROWS = 12  # times shown; JSON and --out have all of them
TITLES = {
    "time": "time τ",
    "samples": "samples/d²",
    "alignment": "alignment ρ",
    "estimation_error": "error E",
    "prediction_error": "loss",
    "overlap": "overlap m",
    "norm": "norm q",
    "trace": "trace",
}


def show_case(result: DynamicsResult, console: Console, details: bool = False) -> None:
    """Print one trajectory, either of the theory or of trained students."""
    console.print(Text(_headline(result), style="bold"), soft_wrap=True)
    rows = _times(result)
    step = max(-(-(len(rows) - 1) // (ROWS - 1)), 1)
    chosen = [0, *range((len(rows) - 2) % step + 1, len(rows), step)]
    columns = [
        Column(title, [_cell(rows[i], name) for i in chosen])
        for name, title in TITLES.items()
        if any(row[name] is not None for row in rows)
    ]
    print_table(console, columns, ("trace", "norm q", "overlap m"))
    for spike in result.tracks[-1:].iter_rows(named=True) if "tracks" in result.tables else ():
        if spike["location"] is not None:
            place = f"the spike {spike['target']:g} stands at {spike['location']:.4g}"
            detail = f"{place}, overlap² {spike['squared_overlap']:.3f}; the bulk ends at {spike['edge']:.4g}"
            console.print(Text(f"At the last time {detail}."), soft_wrap=True)
    row = result.row()
    if row["remark"]:
        print_message(f"dynamics: {row['status']}: {row['remark']}")


def _times(result: DynamicsResult) -> list[dict[str, Any]]:
    return result.tables["runs" if "runs" in result.tables else "trajectory"].rows(named=True)


def _headline(result: DynamicsResult) -> str:
    """Return a sentence that says how the student is trained and when its alignment reaches 0.5 and 0.9."""
    row = result.row()
    eta = row["learning_rate"]
    if "runs" in result.tables:
        run = f"η = {eta:g}, batch {row['batch']}, {row['steps']} steps"
        sensing = row["sensing"] or ATTENTIONS[row["attention"]].gaussian
        return f"Trained: {row['seeds']} students by SGD at d = {row['simulate']}, {run}, {sensing} sensing"
    kind = "gradient flow of the population loss (η = 0)" if eta == 0 else f"one-pass SGD, η = {eta:g}"
    reached = [
        f"{level} at τ = {row[name]:.4g}" + ("" if eta == 0 else f" ({row[name] / eta:.4g} d² samples)")
        for level, name in ((0.5, "recovery_time"), (0.9, "recovery_time_90"))
        if row[name] is not None
    ]
    summary = f"the alignment reaches {' and '.join(reached)}" if reached else _not_reached(result)
    ends = row["plateaus"] or []
    pairs = zip(ends[::2], ends[1::2], strict=True)
    flat = "".join(f"; no progress from {low:.3g} to {high:.3g}" for low, high in pairs)
    return f"{kind[0].upper()}{kind[1:]}: {summary}{flat}"


def _not_reached(result: DynamicsResult) -> str:
    rows, alignment = _times(result), result.row()["alignment"]
    lost = [row["time"] for row in rows if row["norm"] is None or not isfinite(row["norm"])]
    if lost:
        return f"the student has run away from the target by τ = {lost[0]:.4g}"
    if alignment is None:
        return "a target proportional to the identity has no alignment"
    return f"the alignment does not reach 0.5 by τ = {rows[-1]['time']:.4g}, where it is {alignment:.3f}"


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return ""
    error = row.get(f"{name}_error")
    return format_with_error(value, error) if error else f"{value:.4g}"
