"""The tables of a monitored training run: names, order and types of their columns. Missing is null.

`steps` (steps.parquet): one row per measured step. Proxies are log10; `stable_rank_*` and `alpha_*` are
medians and `outliers_*` sums over the matrices of a group (`qk`, `vo`, `cross`, `ffn`). `seconds` is what the
measurement took, `overhead` what all measurements of the process took over its training time.

`step_matrices` (step_matrices.parquet): one row per measured step and matrix.
"""

from __future__ import annotations

import polars as pl

from attnlaw.base.schema import PLACE, Schema

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
