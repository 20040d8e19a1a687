"""The answer of an audit in words: problems, whether the model is trained, and what is unusual."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.atlas.compare import Unusual, unusual_numbers
from attnlaw.analysis.audit.remarks import (
    comparison_line,
    findings_sentence,
    is_comparable,
    model_facts,
    note_lines,
    skipped_checks,
    training_line,
)
from attnlaw.analysis.findings.apply import FindingGroup, checks_text, group_findings
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.estimate import Outcome
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import lines_about_models, model_names
from attnlaw.verbs.typed import typed_command

if TYPE_CHECKING:
    from attnlaw import AuditResult

DETAILS = "details"
REPORT, ALL_NUMBERS = "interactive report", "all other numbers"
# The status of findings by level. A note is no news, so it belongs to the line that reports no problems.
STATUSES = {"error": AnswerStatus.ERROR, "warning": AnswerStatus.WARNING}
Summaries = dict[str, dict[str, Any]]


def answer(result: AuditResult) -> Answer:
    """Return the lines about the models (problems first) and the commands to try next."""
    cases, summaries = finished_cases(result)
    lines: list[Line] = []
    sound: list[str] = []  # models without problems and without notes
    for name, case in cases.items():
        problems = finding_lines(case, summaries[name])
        if len(cases) == 1:
            lines += problems
        elif [(line.status, line.details) for line in problems] == [(AnswerStatus.OK, ())]:
            sound.append(name)
        else:
            lines += [replace(line, text=f"{name}: {line.text}") for line in problems]
    if sound:
        # Models without experts run checks that others skip.
        fewest = min((summaries[name] for name in sound), key=lambda summary: summary["findings"]["rules"])
        checks = checks_text(fewest["findings"]["rules"], skipped_checks(fewest))
        lines.append(Line(f"No problems found in {', '.join(sound)} ({checks}).", AnswerStatus.OK))
    return Answer((*lines, *model_lines(cases, summaries)), next_commands(result))


def finished_cases(result: AuditResult) -> tuple[dict[str, AuditResult], Summaries]:
    """Return the cases that did not fail, and their summaries, keyed by the short name of the model."""
    pairs = zip(short_names(model_names(result)).values(), result, strict=True)
    cases = {name: case for name, case in pairs if case.row()["status"] != Outcome.FAILED}
    return cases, {name: case.summary for name, case in cases.items()}


def finding_lines(case: AuditResult, summary: dict[str, Any]) -> list[Line]:
    """Return a line for each kind of problem in one model, or a single line that says that there is none."""
    rows = case.findings.iter_rows(named=True) if "findings" in case.tables else ()
    groups = group_findings(rows)
    problems = [finding_line(group) for group in groups if group.level in STATUSES]
    notes = tuple(f"Note: {_problem(group)}" for group in groups if group.level not in STATUSES)
    sentence = findings_sentence(summary)
    if problems:
        return [*problems, *map(Line, notes)]
    return [] if sentence is None else [Line(sentence, AnswerStatus.OK, notes)]


def finding_line(group: FindingGroup) -> Line:
    """Return a description of a problem: its place, its size, and what to do about it."""
    remedy = (f"Fix: {DETECTORS[group.rule].remedy}.",) if group.rule in DETECTORS else ()
    return Line(_problem(group), STATUSES[group.level], remedy)


def _problem(group: FindingGroup) -> str:
    return f"{group.where}: {group.sentence} ({group.rule})"


def model_lines(cases: dict[str, AuditResult], summaries: Summaries) -> list[Line]:
    """Return the lines about training, comparison with other models, and limits of the numbers."""
    if len(cases) == 1:
        ((name, case),) = cases.items()
        summary = summaries[name]
        lines = [training_line(summary), *note_lines(summary), comparison_line(summary, head_size(case))]
        return [line for line in lines if line is not None]
    notes = {name: [line.text for line in note_lines(summary)] for name, summary in summaries.items()}
    return [
        *_training_lines(summaries),
        *map(Line, lines_about_models(notes)),
        *_comparison_lines(summaries),
    ]


def _training_lines(summaries: Summaries) -> list[Line]:
    known = {name: line for name, summary in summaries.items() if (line := training_line(summary))}
    trained = [name for name, line in known.items() if line.status == AnswerStatus.OK]
    others = [
        Line(f"{name}: {line.text}", line.status) for name, line in known.items() if name not in trained
    ]
    if not trained:
        return others
    if len(trained) == 1:
        return [*others, Line(f"{trained[0]}: {known[trained[0]].text}", AnswerStatus.OK)]
    whose = "all models" if len(trained) == len(summaries) else ", ".join(trained)
    shares = [f"{name} {summaries[name]['rejected_share']:.0%}" for name in trained]
    text = f"Trained: {whose}. Weight matrices that differ from random ones: {', '.join(shares)}"
    return [*others, Line(f"{text} (chance alone: about 1%).", AnswerStatus.OK)]


def _comparison_lines(summaries: Summaries) -> list[Line]:
    known: dict[str, Unusual] = {
        name: unusual_numbers(summary["atlas"])
        for name, summary in summaries.items()
        if is_comparable(summary)
    }
    if not known:
        return []
    unusual = {name: each for name, each in known.items() if each.is_unusual}
    if not unusual:
        return [Line("All models are within the usual range of trained models.", AnswerStatus.OK)]
    counts = [f"{name} {len(each.lines)} of {each.compared}" for name, each in unusual.items()]
    expected = max(each.expected for each in unusual.values())
    return [
        Line(
            f"Numbers outside the range of the trained reference models: {', '.join(counts)} "
            f"(chance alone: about {expected:.0f}).",
            AnswerStatus.UNUSUAL,
            ("Unusual does not mean wrong.",),
        )
    ]


def facts_of(result: AuditResult, summary: dict[str, Any]) -> str:
    """Return a short description of the model, such as "gpt2 · 4 layers × 4 heads · width 128"."""
    stacks = dict(
        result.layers.group_by("stack", maintain_order=True).agg(pl.col("applications").sum()).iter_rows()
    )
    experts = result.matrices["expert"].drop_nulls().n_unique()
    return model_facts(summary, stacks, experts, some_experts=result.row().get("experts") is not None)


def head_size(case: AuditResult) -> int | None:
    """Return the head size, if all heads have the same."""
    if "matrices" not in case.tables:
        return None
    sizes = case.matrices.filter(pl.col("kind") == "qk")["inner"].drop_nulls().unique()
    return int(sizes[0]) if sizes.len() == 1 else None


def next_commands(result: AuditResult) -> dict[str, str]:
    """Return the commands (or Python calls, for models in memory) that show more about the same models."""
    command = typed_command(result)
    if command is None:
        return {'result.save("results")': REPORT, f"result.show({DETAILS}=True)": ALL_NUMBERS}
    return {f"{command} --out results": REPORT, f"{command} --{DETAILS}": ALL_NUMBERS}


def page_commands(result: AuditResult) -> dict[str, str]:
    """Return the commands to try after the report was read."""
    purposes = {
        "check": "the same checks with an exit status, for scripts",
        "fit": "which random-matrix law each spectrum follows",
    }
    commands = {typed_command(result, verb): purpose for verb, purpose in purposes.items()}
    return {command: purpose for command, purpose in commands.items() if command is not None}


def outside_range(summary: dict[str, Any]) -> str:
    """Return how many numbers are outside the range of the reference models, or "" without such models.

    >>> outside_range({"atlas": None})
    ''
    """
    if not is_comparable(summary):
        return ""
    unusual = unusual_numbers(summary["atlas"])
    return f"{len(unusual.lines)} of {unusual.compared}"
