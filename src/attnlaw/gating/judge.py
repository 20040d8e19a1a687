"""The gate itself: every rule over its rows, every finding at its level, together one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.gating.baseline import Baseline, identity
from attnlaw.gating.evaluate import evaluate
from attnlaw.gating.levels import OFF
from attnlaw.gating.places import place_of
from attnlaw.gating.rules import BASELINE, Rule, RuleFile, Tables
from attnlaw.gating.verdicts import Found, Verdict, Verdicts

Rows = Callable[[str], pl.DataFrame]


def judge(
    asked: RuleFile,
    model: str,
    location: str,
    tables: Tables,
    rows: Rows,
    findings: pl.DataFrame | None = None,
    looked_for: Mapping[str, Any] | None = None,
    baseline: str | Path | None = None,
) -> Verdicts:
    """The verdict on a model whose tables `rows` gives by name, as they are declared in `tables`.

    `findings` has the columns of an audit's findings, `looked_for` the rules behind them, by name.
    """
    old = None if baseline is None else Baseline(Path(baseline))
    known = set() if old is None else old.known()
    return Verdicts(
        model,
        location,
        tuple(_verdict(rule, tables, rows, old) for rule in asked.rules),
        () if findings is None else _found(asked, findings, known),
        {name: one for name, one in (looked_for or {}).items() if _level(asked, name, "note") != OFF},
        asked.fail_on,
        None if old is None else str(old.folder),
    )


def _verdict(rule: Rule, tables: Tables, rows: Rows, old: Baseline | None) -> Verdict:
    if rule.level == OFF:
        return evaluate(rule, pl.DataFrame())
    now = rows(rule.of)
    if rule.against != BASELINE or old is None:
        return evaluate(rule, now)
    return evaluate(rule, now, old.rows(rule, tables[rule.of], now))


def _level(asked: RuleFile, rule: str, own: str) -> str:
    """The level of a finding as the rule file has it."""
    return OFF if rule in asked.ignore else (asked.levels or {}).get(rule, own)


def _found(asked: RuleFile, findings: pl.DataFrame, known: set[Any]) -> tuple[Found, ...]:
    found = []
    for row in findings.iter_rows(named=True):
        place = place_of(row)
        level = _level(asked, row["rule"], row["level"])
        if level != OFF:
            seen = identity(row["rule"], place) in known
            value, threshold, meaning = (row[name] for name in ("value", "threshold", "meaning"))
            found.append(Found(row["rule"], level, place, value, threshold, meaning, seen))
    return tuple(found)
