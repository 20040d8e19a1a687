"""The tables of a monitored training run: names, order and types of their columns. Missing is null.

`steps` (steps.parquet): one row per measured step. Proxies are log10; `stable_rank_*` and `alpha_*` are
medians and `outliers_*` sums over the matrices of a group (`qk`, `vo`, `cross`, `ffn`). `seconds` is what the
measurement took, `overhead` what all measurements of the process took over its training time.

`step_matrices` (step_matrices.parquet): one row per measured step and matrix.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from attnlaw.base.errors import InputError
from attnlaw.base.schema import PLACE
from attnlaw.base.tables import Schema, read_table, require_columns, without_nan

PROXIES = ("spectrum_adaptive", "edelman", "trauger_tewari")
STEP_GROUPS = ("qk", "vo", "cross", "ffn")

STEPS: Schema = {
    "step": pl.Int64(),
    "model": pl.String(),
    **{f"log10_{name}": pl.Float64() for name in PROXIES},
    **{f"stable_rank_{group}": pl.Float64() for group in STEP_GROUPS},
    **{f"outliers_{group}": pl.Int64() for group in STEP_GROUPS},
    **{f"alpha_{group}": pl.Float64() for group in STEP_GROUPS},
    "seconds": pl.Float64(),
    "overhead": pl.Float64(),
    "status": pl.String(),
    "attnlaw_version": pl.String(),
}

STEP_MATRICES: Schema = {
    "step": pl.Int64(),
    **PLACE,
    "spectral_norm": pl.Float64(),
    "log10_contribution": pl.Float64(),
    "stable_rank": pl.Float64(),
    "outliers": pl.Int64(),
    "alpha": pl.Float64(),
}


def read_steps(path: Path, remedy: str) -> pl.DataFrame:
    """The rows of a monitored training run: those of a step and model, its quantities numbers or null."""
    told: Schema = {"step": pl.Int64(), "model": pl.String()}
    rows = read_table(path, remedy, told)
    known = {name: dtype for name, dtype in (STEPS | STEP_MATRICES).items() if name in rows.columns}
    rows = without_nan(require_columns(rows, known, str(path), remedy))
    for name in told:
        if rows[name].null_count():
            raise InputError(f"{path}: found a row without its {name}; {remedy}")
    return rows
