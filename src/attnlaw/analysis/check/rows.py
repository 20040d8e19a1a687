"""The verdicts on a model as rows, by the tables of quantities."""

from __future__ import annotations

import polars as pl

from attnlaw import __version__
from attnlaw.analysis.check.columns import FINDINGS, VERDICT_VALUES, VERDICTS
from attnlaw.analysis.check.condition import value_text
from attnlaw.analysis.check.levels import OFF
from attnlaw.analysis.check.verdicts import Verdicts
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_frame, to_schema


def rule_table(verdicts: Verdicts) -> pl.DataFrame:
    """A row for each rule."""
    rows = [
        {
            **vars(rule),
            "model": verdicts.model,
            "value": rule.value if isinstance(rule.value, int | float) else None,
            "failures": [str(failure) for failure in rule.failures],
            "remark": None if rule.outcome == OFF else str(rule),
            "attnlaw_version": __version__,
        }
        for rule in verdicts.rules
    ]
    return to_frame(rows, to_schema(column_kinds(VERDICTS)))


def value_table(verdicts: Verdicts) -> pl.DataFrame:
    """A row for each rule with the value that it compared, which need not be a number."""
    rows = [
        {
            "model": verdicts.model,
            "rule": rule.rule,
            "found": None if rule.value is None else value_text(rule.value),
        }
        for rule in verdicts.rules
    ]
    return to_frame(rows, to_schema(column_kinds(VERDICT_VALUES)))


def finding_table(verdicts: Verdicts) -> pl.DataFrame:
    """A row for each finding."""
    rows = [
        {**vars(finding), **finding.place, "model": verdicts.model, "attnlaw_version": __version__}
        for finding in verdicts.findings
    ]
    return to_frame(rows, to_schema(column_kinds(FINDINGS)))
