"""The tables of a monitored training run: what stands in their columns, in order. Missing is null.

`STEPS` (steps.parquet): one row per measured step. `STEP_MATRICES` (step_matrices.parquet): one row per
measured step and matrix.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from attnlaw.auditing.quantities import OUTLIERS, PLACE, VERSION
from attnlaw.base.declare import Quantity, columns
from attnlaw.base.errors import InputError
from attnlaw.base.tables import read_table, require_columns, schema_of, without_nan
from attnlaw.bounds import BOUNDS
from attnlaw.models.network import LAYER_GROUPS

HEADS = ("qk", "vo")
# Columns of the steps by what they tell, with the names of their lines in a chart.
PANELS = {
    "log10 proxy": {f"log10_{bound.name}": bound.short for bound in BOUNDS.values() if bound.monitored},
    "stable rank, median": {f"stable_rank_{group}": group for group in LAYER_GROUPS},
    "outliers, total": {f"outliers_{group}": group for group in LAYER_GROUPS},
    "exponent α, median": {f"alpha_{group}": group for group in LAYER_GROUPS},
    "excess of the factors, median": {f"factor_excess_{group}": group for group in HEADS},
    "spread of logits, median": {"score_spread_qk": "qk"},
    "bound of logits, largest": {"logit_bound": "qk"},
    "mean log D of inputs": {"margins_mean_log": "D"},
}
STEPS = (
    Quantity("step", "of the optimizer", kind="int"),
    Quantity("model", "what rows call the model", kind="text"),
    *(
        Quantity(f"log10_{bound.name}", f"log10 of the proxy: {bound.label}")
        for bound in BOUNDS.values()
        if bound.monitored
    ),
    *(Quantity(f"stable_rank_{group}", f"median over the matrices of {group}") for group in LAYER_GROUPS),
    *(
        Quantity(f"outliers_{group}", f"sum over the matrices of {group}", kind="int")
        for group in LAYER_GROUPS
    ),
    *(Quantity(f"alpha_{group}", f"median over the matrices of {group}") for group in LAYER_GROUPS),
    *(
        Quantity(f"factor_excess_{group}", f"of the factors, median over the heads of {group}")
        for group in HEADS
    ),
    Quantity("score_spread_qk", "spread of logits over isotropic tokens (logit_typical), median over heads"),
    Quantity("logit_bound", "the largest bound of logits over the heads that have one"),
    Quantity("margins_mean_log", "mean of log D on the inputs that were given", error=True),
    Quantity("margins_median", "median of D on them"),
    Quantity("seconds", "that the measurement took"),
    Quantity("overhead", "of all measurements of the process over its training time"),
    Quantity("status", "done, or failed", kind="text"),
    Quantity("remark", "what is missing, and why", kind="text"),
    VERSION,
)
STEP_MATRICES = (
    STEPS[0],
    *PLACE,
    Quantity("spectral_norm", "the largest singular value", log=True),
    Quantity("log10_contribution", "what it adds to the proxy", "log₁₀ C(p*)"),
    Quantity("stable_rank", "Frobenius norm squared over spectral norm squared", log=True),
    Quantity("outliers", OUTLIERS.meaning, kind="int"),
    Quantity("alpha", "exponent of a power law of the upper eigenvalues", "α"),
    Quantity("factor_excess", "of the factors of a head over the smallest ones with its product"),
)
STEPS_SCHEMA, STEP_MATRICES_SCHEMA = schema_of(columns(STEPS)), schema_of(columns(STEP_MATRICES))


def read_steps(path: Path, remedy: str) -> pl.DataFrame:
    """The rows of a monitored training run: those of a step and model, its quantities numbers or null."""
    told = {name: STEPS_SCHEMA[name] for name in ("step", "model")}
    rows = read_table(path, remedy, told)
    known = STEPS_SCHEMA | STEP_MATRICES_SCHEMA
    present = {name: dtype for name, dtype in known.items() if name in rows.columns}
    rows = without_nan(require_columns(rows, present, str(path), remedy))
    for name in told:
        if rows[name].null_count():
            raise InputError(f"{path}: found a row without its {name}; {remedy}")
    return rows
