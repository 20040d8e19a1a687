"""The data of an audit's page: plain values for JSON, labels of the declaration, and long arrays as packed
little-endian 32-bit floats in base64. The page unpacks one matrix at a time, so that of a large model is
small."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.analysis.fit import LAWS
from attnlaw.core.result import Result
from attnlaw.render.pages.page import explorer_data, pack_arrays
from attnlaw.verbs.audit import VERB

LOCATION = ("case", "layer", "stack", "head", "expert", "kind")
# Quantities that a map leaves out if they are constant.
LEFT_OUT_IF_CONSTANT = ("p", "share")
SAME_TOLERANCE = 1e-3  # relative difference of values that count as the same
# Columns that are shown elsewhere on the page or sent as packed arrays.
LEFT_OUT = ("family", "log10_curve", "singular_values_applied", "attnlaw_version")
# Headings of the table that must be short.
SHORT_HEADINGS = {
    "spectral_norm_applied": "norm, applied",
    "share": "share",
    "law": "law",
    "random_p_value": "p-value",
    "alpha": "tail exponent",
    "tail_share": "tail share",
}
# Columns of the page's table; the download has all columns.
TABLE_COLUMNS = (
    *("model", "stack", "layer", "head", "expert", "kind", "spectral_norm_applied", "spectral_norm"),
    *("stable_rank", "effective_rank", "p", "share", "law", "outliers", "random_p_value", "alpha"),
    "tail_share",
)
BRIGHT = "Bright cells stretch one direction strongly. Look for a single bright cell or row."
NEAR_ONE = "Dark cells are near 1: a single direction carries the matrix."
MOVED = "At 1, a matrix is as large as at initialisation. Training enlarged the bright cells most."
# Quantities that can be mapped, how to read such a map, and how its colours are chosen. `stored` is the
# quantity to show if the one with gains is not known.
MAPPED: dict[str, dict[str, Any]] = {
    "spectral_norm_applied": {"read": BRIGHT, "stored": "spectral_norm"},
    "spectral_norm": {"read": BRIGHT},
    "stable_rank_applied": {"read": NEAR_ONE, "stored": "stable_rank"},
    "stable_rank": {"read": NEAR_ONE},
    "frobenius_norm_over_initial": {"read": MOVED},
    "score_spread_over_initial": {"read": MOVED},
    "effective_rank": {"read": "Dark cells use only few of their directions."},
    "p": {
        "read": "At 0 the proxy counts the rank, at 2 it uses the Frobenius norm. Values in between mean "
        "that the singular values decay.",
        "domain": [0, 2],
    },
    "share": {"read": "Bright cells contribute most."},
    "law": {"read": ". ".join(f"{name}: {law.description}" for name, law in LAWS.items()), "category": True},
    "outliers": {"read": "Training made these directions stronger than chance would.", "zero": True},
    "random_p_value": {"read": "Dark cells differ from random matrices. Bright cells look random."},
    "alpha": {
        "read": "A small exponent means a heavy tail. Trust the exponent only if the p-value of the fit is "
        "large."
    },
}
# Numbers that the page shows about the chosen matrix.
FACTS = (
    *("spectral_norm_applied", "spectral_norm", "frobenius_norm_applied", "frobenius_norm"),
    *("frobenius_norm_over_initial", "score_spread_over_initial"),
    *("stable_rank_applied", "stable_rank", "effective_rank", "p", "share", "law", "outliers"),
    *("random_p_value", "alpha", "alpha_p_value", "tail_share"),
)


def audit_payload(result: Result, names: dict[int, str], applied: bool) -> dict[str, Any]:
    """Return the data that the page's script draws, as values for JSON. `names` maps cases to models."""
    matrices = result.finished_table("matrices")
    rows = _join_by_location(matrices, result.finished_table("spectra"))
    if "fits" in result.tables:
        fits = result.finished_table("fits").rename({"status": "fit_status", "seed": "fit_seed"})
        rows = _join_by_location(rows, fits)
    constant = constant_quantities(matrices)
    leading = "spectral_norm_applied" if applied else "spectral_norm"  # the quantity that is shown first
    order = sorted(MAPPED, key=lambda name: name != leading)
    mapped = {name: MAPPED[name] for name in order if name not in constant}
    curves = rows["log10_curve"].to_list()
    data = explorer_data(VERB, names, rows.drop("singular_values", *LEFT_OUT, strict=False), mapped, FACTS)
    return data | {
        "spectra": pack_arrays(rows["singular_values"].to_list()),
        "curves": pack_arrays(curve if curve and None not in curve else None for curve in curves),
        "fits": _fits_payload(rows, result.finished_table("curves"))
        if "curves" in result.tables and "null_shape" in rows.columns
        else None,
        "shown": [
            (name, SHORT_HEADINGS.get(name, VERB.label(name)))
            for name in TABLE_COLUMNS
            if name not in constant and (applied or name != "spectral_norm_applied")
        ],
        "leading": leading,
    }


def constant_quantities(matrices: pl.DataFrame) -> list[str]:
    """Return those quantities of `LEFT_OUT_IF_CONSTANT` that are equal for all matrices of each kind."""
    constant = []
    for name in LEFT_OUT_IF_CONSTANT:
        known = matrices.drop_nulls(name)
        spread = known.group_by("kind").agg(low=pl.col(name).min(), high=pl.col(name).max())
        same = spread["high"] - spread["low"] <= SAME_TOLERANCE * spread["high"].abs()
        constant += [name] if known.height > 1 and same.all() else []
    return constant


def _join_by_location(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of another table about the same matrices, which may share a location in this order."""
    new = [name for name in others.columns if name not in rows.columns]
    turn = pl.int_range(pl.len()).over(LOCATION).alias("turn")
    joined = rows.with_columns(turn).join(
        others.select(*LOCATION, *new).with_columns(turn),
        on=[*LOCATION, "turn"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return joined.drop("turn")


def _fits_payload(rows: pl.DataFrame, curves: pl.DataFrame) -> dict[str, Any]:
    """Return packed curves (first x, then densities): a null for each shape, and a law for each matrix."""
    flat = curves.with_columns(points=pl.concat_list("x", "density"))
    nulls = flat.filter(pl.col("curve") == "null").unique("null_shape", keep="first", maintain_order=True)
    number = {shape: i for i, shape in enumerate(nulls["null_shape"])}
    laws = flat.filter(pl.col("curve") == "law").select(*LOCATION, drawn="law", points="points")
    # A curve that could belong to several matrices is not drawn.
    matrix_laws = _join_by_location(rows.select(LOCATION), laws.filter(pl.struct(LOCATION).is_unique()))
    return {
        "nulls": pack_arrays(nulls["points"].to_list()),
        "shape": [number.get(shape) for shape in rows["null_shape"]],
        "scale": rows["null_scale"].to_list(),
        "laws": pack_arrays(matrix_laws["points"].to_list()),
        "drawn": matrix_laws["drawn"].to_list(),
    }
