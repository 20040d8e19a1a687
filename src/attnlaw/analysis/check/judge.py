"""The gate itself: every rule over its rows, every finding at its level, together one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from attnlaw.analysis.check.baseline import Baseline, identity
from attnlaw.analysis.check.evaluate import evaluate
from attnlaw.analysis.check.levels import OFF
from attnlaw.analysis.check.locations import place_of
from attnlaw.analysis.check.rules import BASELINE, GateRule, RuleFile, Tables
from attnlaw.analysis.check.verdicts import GateFinding, Verdict, Verdicts

Rows = Callable[[str], pl.DataFrame]


def judge(
    rule_file: RuleFile,
    model: str,
    location: str,
    tables: Tables,
    rows: Rows,
    findings: pl.DataFrame | None = None,
    rules_for_findings: Mapping[str, Any] | None = None,
    baseline: Baseline | None = None,
) -> Verdicts:
    """The verdict on a model whose tables `rows` gives by name, as they are declared in `tables`.

    `findings` has the columns of an audit's findings, `rules_for_findings` the rules behind them, by name.
    """
    known = set() if baseline is None else baseline.known_identities()
    return Verdicts(
        model,
        location,
        tuple(_judge_rule(rule, tables, rows, baseline) for rule in rule_file.rules),
        () if findings is None else _findings_by_level(rule_file, findings, known),
        {
            name: finding_rule
            for name, finding_rule in (rules_for_findings or {}).items()
            if _level(rule_file, name, "note") != OFF
        },
        rule_file.fail_on,
        None if baseline is None else baseline.folder,
    )


def _judge_rule(rule: GateRule, tables: Tables, rows: Rows, old: Baseline | None) -> Verdict:
    if rule.level == OFF:
        return evaluate(rule, pl.DataFrame())
    now = rows(rule.of)
    if rule.against != BASELINE or old is None:
        return evaluate(rule, now)
    return evaluate(rule, now, old.rows(rule, tables[rule.of], now))


def _level(rule_file: RuleFile, rule: str, default: str) -> str:
    """The level of a finding as the rule file has it."""
    return OFF if rule in rule_file.ignore else (rule_file.levels or {}).get(rule, default)


def _findings_by_level(
    rule_file: RuleFile, findings: pl.DataFrame, known: set[Any]
) -> tuple[GateFinding, ...]:
    gate_findings = []
    for row in findings.iter_rows(named=True):
        place = place_of(row)
        level = _level(rule_file, row["rule"], row["level"])
        if level != OFF:
            seen = identity(row["rule"], place) in known
            value, threshold, meaning = (row[name] for name in ("value", "threshold", "meaning"))
            gate_findings.append(GateFinding(row["rule"], level, place, value, threshold, meaning, seen))
    return tuple(gate_findings)
