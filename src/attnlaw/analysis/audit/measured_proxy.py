"""Add scales that were measured on inputs to an audit, which otherwise only has those of the worst case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import polars as pl

from attnlaw.analysis.audit.audit import Audit
from attnlaw.analysis.forward.classifier import as_inputs, open_classifier
from attnlaw.analysis.forward.scales import log_scales, measure_at_scale, require_hidden_size
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.result import Result

COLUMNS = {
    "log10_scale_measured": pl.Float64(),
    "p_measured": pl.Float64(),
    "effective_directions": pl.Int64(),
}


def measured_proxy(
    audit: Audit | Result,
    model: str | os.PathLike[str] | Any,
    inputs: Any,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = no_progress,
) -> pl.DataFrame:
    """Return the matrices of an audit with three more columns, measured by running the model on inputs.

    The new columns describe single matrices. Do not add them up to rank models.

    They are `log10_scale_measured`, `p_measured` and `effective_directions`, which
    `attnlaw.analysis.forward.scales` defines, and null for matrices outside the layers.

    Args:
        audit: an audit of the same model, which may cover only some of the matrices.
        model: the classifier to run, or its path.
        positions: the positions whose predictions count, as in `measure_margins`.
    """
    audit = audit.record if isinstance(audit, Result) else audit
    given = as_inputs(inputs)
    scales = log_scales(open_classifier(model, given), given, positions, seed, progress)
    hidden_size = require_hidden_size(audit.tree)
    rows = [
        vars(
            measure_at_scale(
                spectrum, scales.get((location.layer, location.kind, location.head)), hidden_size
            )
        )
        for location, spectrum in audit.tree.leaves()
        if spectrum is not None
    ]
    return pl.concat([audit.matrices, pl.DataFrame(rows, schema=COLUMNS)], how="horizontal")
