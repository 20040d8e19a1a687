"""The data of an audit's page: plain values for JSON, long arrays as packed 32-bit floats.

A page of a large model stays small: spectra and curves travel as base64 of little-endian float32; the page
unpacks one matrix at a time. What its quantities, kinds of matrix and laws are called comes with the data,
from the declaration of the verb.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.core.tables import short_names
from attnlaw.render.pages.payload import pack_arrays, plain_columns
from attnlaw.verbs.audit.constants import constant_quantities
from attnlaw.verbs.audit.frames import AUDIT, COLUMN_QUANTITIES, KINDS, LAWS, LOCATION_COLUMNS, AuditRows

# Said elsewhere on the page, or packed.
LEFT_OUT = ("family", "log10_curve", "singular_values_applied", "attnlaw_version")
# Headings of the table that must be short.
SHORT_HEADINGS = {
    "spectral_norm_applied": "norm, applied",
    "share": "share",
    "law": "law",
    "random_p_value": "p random",
    "alpha": "α",
    "tail_share": "α covers",
}
# Columns of the page's table; the download has all.
TABLE_COLUMNS = (
    *("model", "stack", "layer", "head", "expert", "kind", "spectral_norm_applied", "spectral_norm"),
    *(
        "stable_rank",
        "effective_rank",
        "p",
        "share",
        "law",
        "outliers",
        "random_p_value",
        "alpha",
        "tail_share",
    ),
)
BRIGHT = "Bright cells stretch some direction most; a bright row is a layer whose heads all do."
NEAR_ONE = "Near 1, one direction carries the matrix; dark cells are nearly rank one."
MOVED = "1 is as large as it was drawn; bright cells are those that training has enlarged most."
# Quantities that can be mapped, how a map of them is read, and how its colours are chosen. `stored` is shown
# where a quantity is not known as applied.
MAPPED: dict[str, dict[str, Any]] = {
    "spectral_norm_applied": {"read": BRIGHT, "stored": "spectral_norm"},
    "spectral_norm": {"read": BRIGHT},
    "stable_rank_applied": {"read": NEAR_ONE, "stored": "stable_rank"},
    "stable_rank": {"read": NEAR_ONE},
    "frobenius_norm_over_initial": {"read": MOVED},
    "score_spread_over_initial": {"read": MOVED},
    "effective_rank": {"read": "Dark cells use few of the dimensions they have."},
    "p": {
        "read": "0 counts ranks, 2 uses the Frobenius norm; values in between mean a spectrum that decays.",
        "domain": [0, 2],
    },
    "share": {"read": "Bright cells are the ones that keep the proxy large."},
    "law": {"read": ". ".join(f"{name}: {law.description}" for name, law in LAWS.items()), "category": True},
    "outliers": {"read": "Each is a direction that random entries do not explain.", "zero": True},
    "random_p_value": {"read": "Dark: unlike random entries; bright: as good as random."},
    "alpha": {
        "read": "Small α is a heavy tail where it covers a tail: read it with its p-value and its share."
    },
}
# Numbers of the chosen matrix.
FACTS = (
    *("spectral_norm_applied", "spectral_norm", "frobenius_norm_applied", "frobenius_norm"),
    *("frobenius_norm_over_initial", "score_spread_over_initial"),
    *("stable_rank_applied", "stable_rank", "effective_rank", "p", "share", "law", "outliers"),
    *("random_p_value", "alpha", "alpha_p_value", "tail_share"),
)


def audit_payload(audit: AuditRows) -> dict[str, Any]:
    """Everything that the page's script draws, as values that JSON can hold."""
    index = {name: i for i, name in enumerate(audit.names)}
    short = short_names(audit.names)
    rows = _rows_with_fits(audit)
    curves = audit.tables.get("curves")
    constant = constant_quantities(audit.matrices)
    known = explorer_schema(audit.norms_applied)
    return {
        **known,
        "quantities": [quantity for quantity in known["quantities"] if quantity["key"] not in constant],
        "models": [{"name": name, "short": short[name]} for name in audit.names],
        "columns": _columns_payload(rows.drop("singular_values", *LEFT_OUT, strict=False), index),
        "spectra": pack_arrays(rows["singular_values"].to_list()),
        "curves": pack_arrays(_complete_curve(curve) for curve in rows["log10_curve"].to_list()),
        "fits": None if curves is None or "null_shape" not in rows.columns else _fits_payload(rows, curves),
        "shown": [
            (name, SHORT_HEADINGS.get(name, AUDIT.label(name)))
            for name in TABLE_COLUMNS
            if name not in constant and (audit.norms_applied or name != "spectral_norm_applied")
        ],
        "leading": "spectral_norm_applied" if audit.norms_applied else "spectral_norm",
    }


def explorer_schema(applied: bool = True) -> dict[str, Any]:
    """What the script calls things, how it colours them, and what it says of them.

    The first quantity is shown first: the spectral norm, as applied or as stored.
    """
    first = "spectral_norm_applied" if applied else "spectral_norm"
    order = sorted(MAPPED, key=lambda name: name != first)
    mapped = [
        {"key": name, "name": COLUMN_QUANTITIES[name].label, "log": COLUMN_QUANTITIES[name].log}
        | {"says": f"{_sentence(COLUMN_QUANTITIES[name].description)} {how['read']}", **how}
        for name, how in ((name, MAPPED[name]) for name in order)
    ]
    return {
        "quantities": mapped,
        "facts": [(name, AUDIT.label(name)) for name in FACTS],
        "names": {"kind": {name: kind.label for name, kind in KINDS.items()}},
        "groups": {name: kind.group for name, kind in KINDS.items()},
        "laws": {name: f"var(--c{law.colour})" for name, law in LAWS.items()},
    }


def _sentence(meaning: str) -> str:
    return f"{meaning[:1].upper()}{meaning[1:]}."


def _rows_with_fits(audit: AuditRows) -> pl.DataFrame:
    """One row per matrix with its spectrum and, where laws were fitted, its fit."""
    rows = _join_by_location(audit.matrices, audit.tables["spectra"])
    fits = audit.tables.get("fits")
    if fits is None:
        return rows
    return _join_by_location(rows, fits.rename({"status": "fit_status", "seed": "fit_seed"}, strict=False))


def _join_by_location(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """The rows with the columns that they lack of another table's row for the same matrix.

    Matrices that the other table cannot tell apart are taken in their order.
    """
    place = [name for name in LOCATION_COLUMNS if name in rows.columns and name in others.columns]
    new = [name for name in others.columns if name in place or name not in rows.columns]
    turn = pl.int_range(pl.len()).over(place).alias("turn")
    joined = rows.with_columns(turn).join(
        others.select(new).with_columns(turn),
        on=[*place, "turn"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return joined.drop("turn")


def _fits_payload(rows: pl.DataFrame, curves: pl.DataFrame) -> dict[str, Any]:
    """The nulls, kept once per shape, and the fitted law of every matrix: x, then density, in one array."""
    flat = curves.with_columns(points=pl.concat_list("x", "density"))
    nulls = flat.filter(pl.col("curve") == "null").unique("null_shape", keep="first", maintain_order=True)
    number = {shape: i for i, shape in enumerate(nulls["null_shape"])}
    place = [name for name in LOCATION_COLUMNS if name in rows.columns and name in curves.columns]
    laws = flat.filter(pl.col("curve") == "law").select(*place, drawn="law", points="points")
    # A curve that could belong to several matrices is not drawn.
    matrix_laws = _join_by_location(rows.select(place), laws.filter(pl.struct(place).is_unique()))
    return {
        "nulls": pack_arrays(nulls["points"].to_list()),
        "shape": [number.get(shape) for shape in rows["null_shape"]],
        "scale": rows["null_scale"].to_list(),
        "laws": pack_arrays(matrix_laws["points"].to_list()),
        "drawn": matrix_laws["drawn"].to_list(),
    }


def _columns_payload(table: pl.DataFrame, index: dict[str, int]) -> dict[str, list[Any]]:
    """Column by column; models by their number."""
    columns = plain_columns(table)
    columns["model"] = [index[name] for name in columns["model"]]
    return columns


def _complete_curve(curve: list[float | None] | None) -> list[float] | None:
    """The curve; None where it or one of its points is missing."""
    known = [value for value in curve or [] if value is not None]
    return known if curve and len(known) == len(curve) else None
