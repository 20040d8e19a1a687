"""Evaluate the rules of a gate over rows, give every finding its level, and join both into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from attnlaw.analysis.check.locations import KEYS, location_of
from attnlaw.analysis.check.rules import BASELINE, OFF, GateRule, RuleFile, Tables
from attnlaw.analysis.check.tables import Baseline, identity
from attnlaw.analysis.check.verdicts import FAILED, PASSED, FailedRow, GateFinding, Verdict, Verdicts
from attnlaw.analysis.findings.detectors import Detector
from attnlaw.checkpoints.settings import layer_range

COMPARED, HOLDS, OLD, NUMBER = "__compared", "__holds", "__old", "__number"


def evaluate(rule: GateRule, rows: pl.DataFrame, old: pl.DataFrame | None = None) -> Verdict:
    """Return the verdict of a rule on the rows of its table, and on `old` rows at the same locations.

    A rule fails if it selects no row, or if a row of `old` is missing from `rows`. A missing value fails the
    rule, unless the rule skips missing values. A relative change has no value if the old value is 0 or null.
    """
    if rule.level == OFF:
        return _verdict(rule, OFF)
    subset = select(rule, _add_compared(rule, rows, old))
    lost = _lost_locations(rule, rows, old)
    gone = tuple(FailedRow(location, why="this model does not have it") for location in lost)
    known = subset.filter(pl.col(COMPARED).is_not_null())
    nulls = subset.filter(pl.col(COMPARED).is_null()) if rule.missing == "error" else subset.clear()
    if not known.height + nulls.height:
        reason = "all values are missing" if subset.height else "no row matches"
        remark = f'{reason}, so nothing was checked; correct "where", or remove the rule'
        return _verdict(rule, FAILED, failures=gone, remark=remark)
    missing = tuple(FailedRow(location_of(row), why="no value") for row in nulls.iter_rows(named=True))
    if rule.over is not None:
        return _judge_aggregate(rule, rule.over, known, (*gone, *missing))
    return _judge_rows(rule, known, gone, missing)


def _judge_aggregate(rule: GateRule, over: str, known: pl.DataFrame, lost: tuple[FailedRow, ...]) -> Verdict:
    """Judge one number of all rows. Rows in `lost` (gone, or no value) always fail."""
    value = getattr(known[COMPARED], over)() if known.height else None
    held = value is not None and bool(pl.select(rule.condition.holds(pl.lit(float(value)))).item())
    outcome = PASSED if held and not lost else FAILED
    return _verdict(rule, outcome, known.height + len(lost), known.height, value, lost)


def _judge_rows(
    rule: GateRule, known: pl.DataFrame, gone: tuple[FailedRow, ...], missing: tuple[FailedRow, ...]
) -> Verdict:
    """Judge every row. If rows are gone, the rule fails even if enough of the other rows hold."""
    judged = known.with_columns(rule.condition.holds(pl.col(COMPARED)).alias(HOLDS))
    failed = judged.filter(~pl.col(HOLDS)).iter_rows(named=True)
    bad = [FailedRow(location_of(row), row[COMPARED]) for row in failed]
    bad.sort(key=lambda failure: -rule.condition.violation(failure.value))
    selected, held = known.height + len(missing), known.height - len(bad)
    enough = held == selected if rule.mostly is None else held / selected >= rule.mostly
    ordered = known.height and rule.condition.ordered
    worst = max(known[COMPARED], key=rule.condition.violation) if ordered else None
    outcome = PASSED if enough and not gone else FAILED
    return _verdict(rule, outcome, selected, held, bad[0].value if bad else worst, (*gone, *missing, *bad))


def _verdict(rule: GateRule, outcome: str, *counted: Any, **more: Any) -> Verdict:
    return Verdict(rule.name, rule.of, str(rule), rule.level, outcome, *counted, **more)


def select(rule: GateRule, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that a rule applies to. Negative layer numbers in a rule count from the last layer."""
    chosen = [_plain(rows, name).is_in(list(values)) for name, values in rule.where.items()]
    if rule.layers is not None:
        depth = int(rows["layer"].max() or 0) + 1 if rows["layer"].count() else 0  # type: ignore[arg-type]
        wanted = [rule.layers] if isinstance(rule.layers, str) else rule.layers
        numbers = {layer for layers in wanted for layer in (layer_range(layers, depth) if depth else ())}
        chosen.append(pl.col("layer").is_in(sorted(numbers)))
    return rows.filter(*chosen) if chosen else rows


def _plain(rows: pl.DataFrame, name: str) -> pl.Expr:
    column = pl.col(name)
    return column.cast(pl.Float64) if rows.schema[name].is_numeric() else column


def _add_compared(rule: GateRule, rows: pl.DataFrame, old: pl.DataFrame | None) -> pl.DataFrame:
    """Add a column with the value to compare: the rule's column, or its relative change new / old - 1."""
    value = _value(rule)
    if old is None:
        return rows.with_columns(value.alias(COMPARED))
    keys, before = _keys(rule, rows), pl.col(OLD)
    old_values = _add_row_numbers(old, keys).with_columns(value.alias(OLD)).select(*keys, NUMBER, OLD)
    if keys:
        joined = _add_row_numbers(rows, keys).join(
            old_values, on=[*keys, NUMBER], how="left", nulls_equal=True, maintain_order="left"
        )
    else:  # one row that all are compared with
        joined = rows.with_columns(pl.lit(old_values[OLD].first(), dtype=pl.Float64).alias(OLD))
    change = pl.when(before != 0).then(value / before - 1)
    return joined.with_columns(change.fill_nan(None).alias(COMPARED))


def _lost_locations(rule: GateRule, rows: pl.DataFrame, old: pl.DataFrame | None) -> list[dict[str, Any]]:
    keys = _keys(rule, rows)
    if old is None or not keys:
        return []
    left = select(rule, _add_row_numbers(old, keys)).join(
        _add_row_numbers(rows, keys), on=[*keys, NUMBER], how="anti", nulls_equal=True
    )
    return [location_of(row) for row in left.iter_rows(named=True)]


def _keys(rule: GateRule, rows: pl.DataFrame) -> list[str]:
    return [] if rule.of == "steps" else [name for name in KEYS[rule.of] if name in rows.columns]


def _add_row_numbers(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Number the rows that have the same keys, such as the updates of several weights of one layer."""
    number = pl.int_range(pl.len()).over(keys) if keys else pl.int_range(pl.len())
    return rows.with_columns(number.alias(NUMBER))


def _value(rule: GateRule) -> pl.Expr:
    """Return the rule's column with null for NaN, because polars treats NaN as the largest number."""
    column = pl.col(rule.column.name)
    if rule.column.kind == "text" or (rule.column.kind == "bool" and rule.over is None):
        return column
    return column.cast(pl.Float64).fill_nan(None)


Rows = Callable[[str], pl.DataFrame]


def judge(
    rule_file: RuleFile,
    model: str,
    location: str,
    tables: Tables,
    rows: Rows,
    findings: pl.DataFrame | None = None,
    detectors: Mapping[str, Detector] | None = None,
    baseline: Baseline | None = None,
    can_look: Callable[[Detector], bool] = lambda detector: True,
) -> Verdicts:
    """Return the verdicts of a rule file on one model.

    Args:
        location: the file that reports point at.
        tables: declared columns by table.
        rows: a function that returns a table by its name, called only for tables that a rule needs.
        baseline: earlier results, whose findings count as known.
        can_look: whether a detector could look at the parts of the model that were measured.
    """
    known = set() if baseline is None else baseline.known_identities()
    wanted = [name for name in detectors or {} if _level(rule_file, name, "note") != OFF]
    looking = {name: detectors[name] for name in wanted if can_look(detectors[name])} if detectors else {}
    return Verdicts(
        model,
        location,
        tuple(_judge_rule(rule, tables, rows, baseline) for rule in rule_file.rules),
        () if findings is None else _findings_by_level(rule_file, findings, known),
        looking,
        rule_file.fail_on,
        None if baseline is None else baseline.folder,
        len(wanted) - len(looking),
    )


def _judge_rule(rule: GateRule, tables: Tables, rows: Rows, old: Baseline | None) -> Verdict:
    if rule.level == OFF:
        return evaluate(rule, pl.DataFrame())
    now = rows(rule.of)
    if rule.against != BASELINE or old is None:
        return evaluate(rule, now)
    return evaluate(rule, now, old.rows(rule, tables[rule.of], now))


def _level(rule_file: RuleFile, rule: str, default: str) -> str:
    return OFF if rule in rule_file.ignore else (rule_file.levels or {}).get(rule, default)


def _findings_by_level(
    rule_file: RuleFile, findings: pl.DataFrame, known: set[Any]
) -> tuple[GateFinding, ...]:
    gate_findings = []
    for row in findings.iter_rows(named=True):
        location = location_of(row)
        level = _level(rule_file, row["rule"], row["level"])
        if level != OFF:
            seen = identity(row["rule"], location) in known
            value, threshold, meaning = (row[name] for name in ("value", "threshold", "meaning"))
            gate_findings.append(GateFinding(row["rule"], level, location, value, threshold, meaning, seen))
    return tuple(gate_findings)
