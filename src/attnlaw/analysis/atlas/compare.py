"""Compare a model with the atlas.

For every number, attnlaw reports its range over trained models of the same kind, and how many of them are
below this model. The atlas has few models, and they are not a random sample. So a value outside a range does
not mean that something is wrong with the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from attnlaw.analysis.atlas.columns import COLUMNS, AtlasColumn, column_values, model_kinds
from attnlaw.analysis.columns import ATLAS
from attnlaw.core.tables import quantity_frame

if TYPE_CHECKING:
    from attnlaw.analysis.atlas.atlas import Atlas
    from attnlaw.analysis.audit.audit import Audit

# A model is compared with models of its kind if the atlas has at least this many other trained ones, else
# with
# models of all kinds.
LEAST = 3
# Two models are the same if all their Frobenius norms differ by less, relatively. The norms of a copy
# rounded to
# 4 bits (MiniLM, Q4_1) differ by at most 0.011, those of a light fine-tune (rxnfp-10k) by 0.058. Untrained
# models
# of one shape have nearly the same norms for any seed, so untrained models need a much smaller tolerance.
SAME_TRAINED, SAME_FRESH = 0.02, 1e-6


def comparison_table(audit: Audit, atlas: Atlas) -> pl.DataFrame | None:
    """Return a table with one row for each compared number; None if a matrix of a layer was not measured."""
    if not audit.layers.height or not _is_whole(audit):
        return None
    kind = model_kinds(audit.matrices)["kind"][0]
    left_out = same_models(audit.matrices, atlas)
    others = atlas.values.filter(~pl.col("model").is_in(left_out))
    alike = others.filter(pl.col("kind") == pl.lit(kind, dtype=pl.String))
    among = kind if alike["trained"].sum() >= LEAST else None
    taken = alike if among else others
    trained, fresh = taken.filter("trained"), taken.filter(~pl.col("trained"))
    values = column_values(audit.matrices, audit.layers).row(0, named=True)
    norms = (None, audit.quantities["norms"])
    rows = (
        {
            "column": name,
            "value": values[name],
            **_range("trained", trained[name]),
            "trained_below": int((trained[name] < values[name]).sum()),
            **_range("fresh", fresh[name]),
            "kind": kind,
            "among": among,
            "trained": trained["model"].to_list(),
            "fresh": fresh["model"].to_list(),
            "left_out": left_out,
        }
        for name, column in COLUMNS.items()
        if column.norms in norms and values[name] is not None and trained[name].count()
    )
    return quantity_frame(ATLAS, rows)


def atlas_entry(table: pl.DataFrame | None) -> dict[str, Any] | None:
    """Convert the rows of `comparison_table` to the entry `atlas` of summary.json.

    `left_out` names the models of the atlas that are the audited model itself. `below` counts the trained
    models with a smaller value. Returns None if there are no rows.
    """
    if table is None or not table.height:
        return None
    rows = table.to_dicts()
    return {
        **{name: rows[0][name] for name in ("kind", "among", "trained", "fresh", "left_out")},
        "columns": {
            row["column"]: {
                "value": row["value"],
                "trained": {name: row[f"trained_{name}"] for name in ("low", "high", "models", "below")},
                "fresh": {name: row[f"fresh_{name}"] for name in ("low", "high", "models")},
            }
            for row in rows
        },
    }


def same_models(matrices: pl.DataFrame, atlas: Atlas) -> list[str]:
    """Return the names of the models of the atlas that are the audited model itself.

    A model is the same if all its matrices have the same kinds and nearly the same Frobenius norms.
    """
    kinds, norms = matrices["kind"].to_list(), matrices["frobenius_norm"].to_numpy()
    trained = dict(atlas.models.select("model", "trained").iter_rows())
    names = []
    for (model,), rows in atlas.matrices.group_by("model", maintain_order=True):
        near = SAME_TRAINED if trained[str(model)] else SAME_FRESH
        if rows["kind"].to_list() == kinds and np.allclose(
            norms, rows["frobenius_norm"].to_numpy(), rtol=near, atol=0
        ):
            names.append(str(model))
    return names


def _is_whole(audit: Audit) -> bool:
    """Return whether every matrix of every layer was measured, so that medians can be compared."""
    return all(
        spectrum is not None for location, spectrum in audit.tree.leaves() if location.layer is not None
    )


def _range(whose: str, values: pl.Series) -> dict[str, Any]:
    return {
        f"{whose}_low": values.min(),
        f"{whose}_high": values.max(),
        f"{whose}_models": values.count(),
    }


def ranges_sentence(entry: dict[str, Any]) -> str:
    """Return a sentence that says what the numbers are and which models the ranges cover.

    >>> ranges_sentence({"among": "decoder", "trained": ["a", "b"], "fresh": ["c"], "left_out": ["d"]})
    'Ranks and norms are medians; ranges over 2 trained decoders, 1 fresh; without d, this one or near it.'
    """
    kind = f"{entry['among']}s" if entry["among"] else "models of any kind"
    without = ", ".join(entry["left_out"])
    return (
        f"Ranks and norms are medians; ranges over {len(entry['trained'])} trained {kind}, "
        f"{len(entry['fresh'])} fresh{f'; without {without}, this one or near it' if without else ''}."
    )


def range_lines(entry: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return the lines of the table that compares a model with the atlas.

    Each line has a label, the value of the model, the range over trained models, how many trained models are
    below the value, and the range over untrained models.
    """
    lines = []
    for name, comparison in entry["columns"].items():
        if name in COLUMNS:  # another version may have had more columns
            column, trained = COLUMNS[name], comparison["trained"]
            below = f"{trained['below']} of {trained['models']}"
            ranges = _format_range(column, trained), below, _format_range(column, comparison["fresh"])
            lines.append((column.label, column.number_text(comparison["value"]), *ranges))
    return lines


def _format_range(column: AtlasColumn, part: dict[str, Any]) -> str:
    """Format a range as "low to high", as one number if both ends look the same, or empty if unknown."""
    ends = [column.number_text(part[end]) for end in ("low", "high") if part[end] is not None]
    return " to ".join(dict.fromkeys(ends))
