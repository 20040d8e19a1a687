"""The answer of `attnlaw fit`: which law each kind of matrix follows, and what that means."""

from __future__ import annotations

from dataclasses import replace

from attnlaw.analysis.fit.summary import certainty_line, law_line, training_line
from attnlaw.core.answer import Answer, Line
from attnlaw.core.estimate import Outcome
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.verbs.typed import typed_command


def answer(result: Result) -> Answer:
    """Return whether the matrices of each model look trained, and which laws they follow."""
    pairs = zip(short_names(model_names(result)).values(), result, strict=True)
    cases = {name: case for name, case in pairs if case.row()["status"] != Outcome.FAILED}
    lines: list[Line] = []
    for name, case in cases.items():
        some = case_lines(case)
        lines += some if len(cases) == 1 else [replace(line, text=f"{name}: {line.text}") for line in some]
    sure = certainty_line(result.finished_table("fits"))
    return Answer((*lines, *([sure] if sure else [])), next_commands(result))


def case_lines(case: Result) -> list[Line]:
    """Return the lines about one model."""
    rows = case.finished_table("fits")
    return [training_line(case.row()), *([law_line(rows)] if rows.height else [])]


def next_commands(result: Result) -> dict[str, str]:
    """Return commands that show more about the same models."""
    command, audit = typed_command(result), typed_command(result, "audit")
    if command is None or audit is None:
        return {}
    return {
        f"{command} --out results": "map of all heads in results/report.html",
        f"{command} --details": "a map of heads, and the fitted numbers for each kind of matrix",
        audit: "norms, ranks, and a search for problems",
    }
