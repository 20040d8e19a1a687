"""The verdict on a model in the terminal: the answer, then the rules, then the findings."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from attnlaw.analysis.check.condition import value_text
from attnlaw.analysis.check.levels import OFF
from attnlaw.analysis.check.verdicts import FAILED, GateFinding, Verdict, Verdicts
from attnlaw.analysis.findings import FindingRule
from attnlaw.core.errors import printable
from attnlaw.render.terminal.console import column_table, print_table

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
MOST_PLACES = 5  # of one rule


def show(verdicts: Verdicts, console: Console) -> None:
    """Print the verdict on one model. What comes from its files never begins a line."""
    console.print()
    console.print(Text(printable(verdicts.model), style="bold"), soft_wrap=True)
    answer = Text(verdicts.headline, style="bold green" if verdicts.passed else "bold red")
    console.print(answer, soft_wrap=True)
    if verdicts.rules:
        console.print()
        _show_rules(verdicts, console)
    shown: dict[tuple[bool, str], list[GateFinding]] = {}
    for finding in (*verdicts.new_findings, *(finding for finding in verdicts.findings if finding.known)):
        shown.setdefault((finding.known, finding.rule), []).append(finding)
    if shown:
        console.print()
    for (known, name), findings in shown.items():
        level = f"{findings[0].level}, known" if known else findings[0].level
        _line(console, findings[0].level, f"{level}: {name} ({_times(len(findings))}): {findings[0].meaning}")
        _places(console, [finding.place_and_value for finding in findings])
    console.print()


def explain(rule: FindingRule, console: Console) -> None:
    """Print when a rule of findings finds something, what that means, and what to do."""
    threshold = "" if rule.threshold is None else f", threshold {value_text(rule.threshold)}"
    console.print(Text(f"{rule.name}: {rule.level}{threshold}", style="bold"), soft_wrap=True)
    for title, text in (("found when", rule.when), ("means", rule.meaning), ("what to do", rule.remedy)):
        console.print(Text(f"{title}: {text}"))


def _show_rules(verdicts: Verdicts, console: Console) -> None:
    rules = verdicts.rules
    cells = {
        "": [_outcome(rule, verdicts) for rule in rules],
        "rule": [printable(rule.rule) for rule in rules],
        "asked for": [printable(rule.asked) for rule in rules],
        "rows that hold": [_held(rule) for rule in rules],
        "found": ["" if rule.value is None else printable(value_text(rule.value)) for rule in rules],
    }
    texts = ("", "rule", "asked for")
    print_table(
        console, lambda left_out: column_table(cells, left_out, texts), ("rows that hold", "asked for")
    )
    for rule in verdicts.failed_rules:
        places = [str(failure) for failure in rule.failures]
        reason = rule.remark or ("" if places else str(rule))
        _line(console, rule.level, f"{rule.level}: {rule.rule}{f': {reason}' if reason else ''}")
        _places(console, places)


def _outcome(rule: Verdict, verdicts: Verdicts) -> str:
    if rule.outcome != FAILED:
        return rule.outcome
    return FAILED if rule in verdicts.gate_failures else f"{FAILED} ({rule.level})"


def _held(rule: Verdict) -> str:
    return "" if rule.outcome == OFF or rule.remark else f"{rule.held} of {rule.selected}"


def _line(console: Console, level: str, text: str) -> None:
    console.print(Text(_harmless(text), style=STYLES[level]), soft_wrap=True)


def _places(console: Console, places: list[str]) -> None:
    for place in places[:MOST_PLACES]:
        console.print(Text(f"  at {_harmless(place)}"), soft_wrap=True)
    if len(places) > MOST_PLACES:
        console.print(Text(f"  and {len(places) - MOST_PLACES} more"), soft_wrap=True)


def _harmless(text: str) -> str:
    """Text that no runner takes for a command: some read `##[error]` wherever it stands in a line."""
    return printable(text).replace("##[", "## [")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
