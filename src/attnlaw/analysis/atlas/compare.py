"""Compare a model with the atlas: the range of every number over trained models of its kind, and its place.

The atlas has few models, and they are not a random sample. A value outside a range is a fact about these
models, not a verdict on this one.
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

# A model is compared with its own kind if the atlas has this many other trained models of it, else with all.
LEAST = 3
# Two models are the same if all their Frobenius norms differ by less. Those of a copy rounded to 4 bits
# (MiniLM, Q4_1) differ by at most 0.011, those of a light fine-tune (rxnfp-10k) by 0.058. Untrained models of
# one shape have nearly the same norms whatever the seed, so only the same draw counts as the same model.
SAME_TRAINED, SAME_FRESH = 0.02, 1e-6


def comparison_table(audit: Audit, atlas: Atlas) -> pl.DataFrame | None:
    """Return a row for each number that is compared; None if not every matrix of every layer was measured."""
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
    """Convert the rows of `comparison_table` to the entry `atlas` of a summary; None if there are none.

    `left_out` names models of the atlas that are this one. `below` counts the trained models with a smaller
    value.
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
    """Return the models of the atlas that are this one under any name: all kinds and norms agree."""
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
    """Return whether every matrix of every layer was measured. Medians over some cannot be compared."""
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
    """Say what the numbers are, and which models the ranges cover.

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
    """Return (label, this model, range of trained models, how many are below, range of untrained models)."""
    lines = []
    for name, comparison in entry["columns"].items():
        if name in COLUMNS:  # another version may have had more columns
            column, trained = COLUMNS[name], comparison["trained"]
            below = f"{trained['below']} of {trained['models']}"
            ranges = _format_range(column, trained), below, _format_range(column, comparison["fresh"])
            lines.append((column.label, column.number_text(comparison["value"]), *ranges))
    return lines


def _format_range(column: AtlasColumn, part: dict[str, Any]) -> str:
    """Format a range: one number if both ends are the same, empty if there is none."""
    ends = [column.number_text(part[end]) for end in ("low", "high") if part[end] is not None]
    return " to ".join(dict.fromkeys(ends))
