"""The verdicts on a model as rows, by the tables of quantities."""

from __future__ import annotations

import polars as pl

from attnlaw import __version__
from attnlaw.base.quantity import columns
from attnlaw.base.tables import frame, schema_of
from attnlaw.gating.levels import OFF
from attnlaw.gating.quantities import FINDINGS, VERDICTS
from attnlaw.gating.verdicts import Verdicts


def rule_table(verdicts: Verdicts) -> pl.DataFrame:
    """A row for each rule."""
    rows = [
        {
            **vars(one),
            "model": verdicts.model,
            "value": one.value if isinstance(one.value, int | float) else None,
            "failures": [str(failure) for failure in one.failures],
            "remark": None if one.outcome == OFF else str(one),
            "attnlaw_version": __version__,
        }
        for one in verdicts.rules
    ]
    return frame(rows, schema_of(columns(VERDICTS)))


def finding_table(verdicts: Verdicts) -> pl.DataFrame:
    """A row for each finding."""
    rows = [
        {**vars(one), **one.place, "model": verdicts.model, "attnlaw_version": __version__}
        for one in verdicts.findings
    ]
    return frame(rows, schema_of(columns(FINDINGS)))
