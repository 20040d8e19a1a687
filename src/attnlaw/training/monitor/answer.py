"""The answer of a monitored run in words: which steps were measured, and what changed most."""

from __future__ import annotations

import polars as pl

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.result import Result
from attnlaw.core.tables import nan_to_null, unique_short_names
from attnlaw.training.monitor.charts import largest_change_sentence, panel_order

MAX_RUNS = 8  # runs with lines of their own


def answer(result: Result) -> Answer:
    """Return, for each model, the steps that were measured, the failures, and the largest change."""
    lines: list[Line] = []
    rows = result.rows.head(MAX_RUNS)
    for case, name in enumerate(unique_short_names(rows["model"].fill_null("run"))):
        steps = result.tables["steps"].filter(case=case)
        prefix = f"{name}: " if len(result) > 1 else ""
        lines += [Line(f"{prefix}{line.text}", line.status) for line in _run_lines(nan_to_null(steps))]
    if len(result) > MAX_RUNS:
        lines.append(Line(f"{len(result) - MAX_RUNS} more runs are in the rows below."))
    return Answer(tuple(lines))


def _run_lines(steps: pl.DataFrame) -> list[Line]:
    numbers = steps["step"].sort()
    count = "One step was" if numbers.len() == 1 else f"{numbers.len()} steps were"
    lines = [Line(f"{count} measured{f', from {numbers[0]} to {numbers[-1]}' if numbers.len() > 1 else ''}.")]
    panels, order = panel_order(steps)
    if order and (sentence := largest_change_sentence(steps, panels[order[0]], order[0])):
        lines.append(Line(sentence))
    failed = steps.filter(pl.col("status") == "failed").sort("step")
    if failed.height:
        times = "step" if failed.height == 1 else f"{failed.height} steps, first step"
        first, reason = failed.select("step", "remark").row(0)
        what = f"The weights could not be measured at {times} {first}"
        lines.insert(0, Line(f"{what}: {reason}.", AnswerStatus.ERROR))
    return lines
