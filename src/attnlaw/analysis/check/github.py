"""Verdicts as GitHub's workflow commands: one annotation for each rule that failed or found something.

What stands in them is escaped as the runner reads it back: names from a file cannot end a line and begin a
command of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlaw.analysis.check.markdown import markdown
from attnlaw.analysis.check.verdicts import Verdicts
from attnlaw.core.errors import as_input_error, printable

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
SUMMARY = "GITHUB_STEP_SUMMARY"


def escaped(text: str, value: bool = False) -> str:
    """Text of a workflow command; `value`: of one of its properties, where colons and commas are marks.

    >>> escaped("50%\\n::error::x"), escaped("a:b,c", value=True)
    ('50%25%0A::error::x', 'a%3Ab%2Cc')
    """
    marks = {"%": "%25", "\r": "%0D", "\n": "%0A"} | ({":": "%3A", ",": "%2C"} if value else {})
    return "".join(marks.get(char, char) for char in text)


def commands(verdicts: Verdicts) -> list[str]:
    """The commands, the gravest first: a step shows ten of each level."""
    messages: dict[str, tuple[str, str]] = {}
    for rule in verdicts.failed_rules:
        messages[rule.rule] = rule.level, str(rule)
    by_rule: dict[str, list[str]] = {}
    for finding in verdicts.new_findings:
        by_rule.setdefault(finding.rule, []).append(str(finding))
        messages.setdefault(finding.rule, (finding.level, ""))
    for name, places in by_rule.items():
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        messages[name] = messages[name][0], f"{places[0]}{more}"
    order = sorted(messages.items(), key=lambda pair: list(COMMANDS).index(pair[1][0]))
    model = printable(verdicts.model)
    return [
        f"::{COMMANDS[level]} title={escaped(f'attnlaw: {printable(name)}', value=True)}::"
        f"{escaped(f'{model}: {printable(text)}')}"
        for name, (level, text) in order
    ]


def add_to_summary(models: Sequence[Verdicts], environment: Mapping[str, str] = os.environ) -> None:
    """Add the Markdown to the job's summary, where a runner has one."""
    if path := environment.get(SUMMARY):
        with (
            as_input_error(f"{path}: cannot be written", f"check ${SUMMARY}"),
            Path(path).open("a", encoding="utf-8") as file,
        ):
            file.write(f"{markdown(models)}\n")
