"""Print the verdicts on a model in the terminal: the answer, then the rules, then the findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.analysis.check.locations import location_of
from attnlaw.analysis.check.rule_file import nearest
from attnlaw.analysis.check.rules import is_at_least, value_text
from attnlaw.analysis.check.verdicts import FAILED, location_and_value
from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.errors import BadSetting, printable
from attnlaw.render.terminal.console import Column, output, print_json, print_table

if TYPE_CHECKING:
    from attnlaw import CheckResult

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
MOST_LOCATIONS = 5  # number of locations that are listed for one rule
EXPLAINED = ("name", "level", "threshold", "when", "meaning", "remedy")


def show_case(result: CheckResult, console: Console, details: bool = False) -> None:
    """Print the verdicts on one model.

    Text from the model's files never starts a line, so CI runners do not take it for a command.
    """
    row = result.row()
    console.print()
    console.print(Text(printable(row["model"]), style="bold"), soft_wrap=True)
    answer = Text(f"{row['headline']}.", style="bold green" if row["passed"] else "bold red")
    if row["not_checked"]:
        answer.append(f" Not checked from weights alone: {row['not_checked']}.", style="not bold default")
    console.print(answer, soft_wrap=True)
    if result.verdicts.height:
        console.print()
        _show_rules(result, console)
    findings = result.findings.rows(named=True)
    new = _by_severity(finding for finding in findings if not finding["known"])
    groups: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    for finding in (*new, *(finding for finding in findings if finding["known"])):
        groups.setdefault((finding["known"], finding["rule"]), []).append(finding)
    if groups:
        console.print()
    for (known, name), group in groups.items():
        level, meaning = group[0]["level"], group[0]["meaning"]
        heading = f"{level}, known" if known else level
        times = "once" if len(group) == 1 else f"{len(group)} times"
        _print_line(console, level, f"{heading}: {name} ({times}): {meaning}")
        lines = [location_and_value(location_of(row), row["value"], row["threshold"]) for row in group]
        _print_locations(console, lines)
    console.print()


def print_explanation(name: str, as_json: bool) -> None:
    """Print when a detector reports a finding, what the finding means, and what to do about it."""
    if name not in DETECTORS:
        raise BadSetting("explain", f"no such rule; {nearest(name, DETECTORS)}", name)
    detector = DETECTORS[name]
    if as_json:
        print_json({field: getattr(detector, field) for field in EXPLAINED})
        return
    threshold = "" if detector.threshold is None else f", threshold {value_text(detector.threshold)}"
    output.print(Text(f"{detector.name}: {detector.level}{threshold}", style="bold"), soft_wrap=True)
    lines = {"found when": detector.when, "means": detector.meaning, "what to do": detector.remedy}
    for title, text in lines.items():
        output.print(Text(f"{title}: {text}"))


def _show_rules(result: CheckResult, console: Console) -> None:
    rules, fail_on = result.verdicts.rows(named=True), result.row()["fail_on"]
    held = [f"{rule['held']} of {rule['selected']}" if rule["selected"] else "" for rule in rules]
    columns = [
        Column("", [_format_outcome(rule, fail_on) for rule in rules], is_text=True),
        Column("rule", [printable(rule["rule"]) for rule in rules], is_text=True),
        Column("asked for", [printable(rule["asked"]) for rule in rules], is_text=True),
        Column("rows that hold", held),
        Column("found", [printable(value or "") for value in result.verdict_values["found"]]),
    ]
    print_table(console, columns, ("rows that hold", "asked for"))
    for rule in _by_severity(rule for rule in rules if rule["outcome"] == FAILED):
        # A rule that selected no row says so, even if rows of the baseline are gone.
        reason = "" if rule["selected"] and rule["failures"] else f": {rule['remark']}"
        _print_line(console, rule["level"], f"{rule['level']}: {rule['rule']}{reason}")
        _print_locations(console, rule["failures"])


def _format_outcome(rule: dict[str, Any], fail_on: str) -> str:
    if rule["outcome"] != FAILED or is_at_least(rule["level"], fail_on):
        return str(rule["outcome"])
    return f"{FAILED} ({rule['level']})"


def _by_severity(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -LEVELS.index(row["level"]))


def _print_line(console: Console, level: str, text: str) -> None:
    console.print(Text(_harmless(text), style=STYLES[level]), soft_wrap=True)


def _print_locations(console: Console, locations: list[str]) -> None:
    for location in locations[:MOST_LOCATIONS]:
        console.print(Text(f"  at {_harmless(location)}"), soft_wrap=True)
    if len(locations) > MOST_LOCATIONS:
        console.print(Text(f"  and {len(locations) - MOST_LOCATIONS} more"), soft_wrap=True)


def _harmless(text: str) -> str:
    """Return text in which marks such as `##[error]`, which CI runners take for commands, are broken up."""
    return printable(text).replace("##[", "## [")
