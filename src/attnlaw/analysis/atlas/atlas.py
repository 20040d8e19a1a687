"""The `Atlas` record: rows of audits of trained and untrained models.

The rows ship with attnlaw or come from your own study. `examples/atlas.toml` computes the rows that ship.
`docs/scripts/make_atlas.py` downloads its models and packs the rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.atlas.columns import column_values, model_kinds
from attnlaw.analysis.atlas.compare import atlas_entry, comparison_table
from attnlaw.analysis.columns import LOCATION, VERSION, Text
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import to_parquet, write_all
from attnlaw.core.quantity import Quantity
from attnlaw.core.result import Result
from attnlaw.core.tables import quantity_frame

if TYPE_CHECKING:
    from attnlaw.analysis.audit.audit import Audit

FOLDER = Path(__file__).parent
# Columns of the audits' tables that ship, in addition to the columns of `LOCATION`.
SHIPPED_COLUMNS = {
    "matrices": (
        "family", "rows", "cols", "inner", "spectral_norm", "frobenius_norm", "stable_rank", "effective_rank",
        "spectral_norm_applied", "stable_rank_applied", "random_p_value", "outliers", "null_draws",
    ),
    "layers": ("applications", "log10_alpha", "log10_alpha_applied"),
}  # fmt: skip
MODELS = (
    LOCATION[0],
    Quantity(
        "trained", "whether the model was trained; false if it only has random initial weights", kind="bool"
    ),
    Text("family", "model family, such as gpt2"),
    Quantity("depth", "number of layers; a layer that is used several times counts each time", kind="int"),
    Quantity("hidden_size", "width of the layers (hidden size)", kind="int"),
    Quantity("head_count", "number of attention heads in the first layer", kind="int"),
    Quantity("matrix_count", "number of weight matrices that were measured", kind="int"),
    Text("source", "where the weights come from; for an untrained model, where its config comes from"),
    Text("licence", "licence of the trained weights, as their package states it"),
    Text("sha256", "SHA-256 hash of the weight file"),
    Quantity("seed", "random seed with which an untrained model was initialised", kind="int"),
    Text("made_with", "library that initialised an untrained model"),
    VERSION,
)


@dataclass(frozen=True, eq=False)
class Atlas:
    """The audits of several models: where each comes from (`models`), and the rows of the audits."""

    models: pl.DataFrame
    matrices: pl.DataFrame
    layers: pl.DataFrame

    @cached_property
    def values(self) -> pl.DataFrame:
        """A table that shows for each model whether it was trained, its kind, and its numbers."""
        kinds = model_kinds(self.matrices)
        numbers = column_values(self.matrices, self.layers)
        known = self.models.select("model", "trained").join(kinds, on="model", how="left")
        return known.join(numbers, on="model", how="left", maintain_order="left")

    def compare(self, audit: Audit | Result) -> dict[str, Any] | None:
        """Compare an audited model with the models of this atlas, as the entry `atlas` of `summary.json`.

        Returns None if not every matrix of every layer was measured, or if there is nothing to compare.
        """
        return atlas_entry(comparison_table(audit.record if isinstance(audit, Result) else audit, self))

    def save(self, folder: str | os.PathLike[str] = FOLDER) -> None:
        """Write the three tables as parquet files, by default over those that ship with attnlaw."""
        tables = {"models": self.models, "matrices": self.matrices, "layers": self.layers}
        write_all({Path(folder) / f"{name}.parquet": to_parquet(table) for name, table in tables.items()})

    def __repr__(self) -> str:
        trained = self.models["trained"].sum()
        return f"<Atlas of {trained} trained and {self.models.height - trained} untrained models>"


def load_atlas(audits: Result | None = None) -> Atlas:
    """Return the atlas that ships with attnlaw, or an atlas of your own audits.

    `attnlaw.load(DIR)` opens the audits of a study. All their models count as trained.

    >>> load_atlas()
    <Atlas of 9 trained and 7 untrained models>
    """
    return _shipped_atlas() if audits is None else atlas_of_audits(audits, {})


@cache
def _shipped_atlas() -> Atlas:
    names = ("models", "matrices", "layers")
    return Atlas(*(pl.read_parquet((FOLDER / f"{name}.parquet").read_bytes()) for name in names))


def atlas_of_audits(audits: Result, provenance: Mapping[str, Mapping[str, Any]]) -> Atlas:
    """Return an atlas of the audits that measured a whole model, with `provenance` by the model's name."""
    if not isinstance(audits, Result) or audits.verb.name != "audit":
        raise InputError(
            "found no audits of a study; pass attnlaw.load(DIR), where DIR is the directory of the study"
        )
    whole = audits.rows.with_row_index("case").filter(
        pl.col("status") == str(Outcome.DONE), pl.col("layers").is_null(), pl.col("only").is_null()
    )
    if not whole.height:
        raise InputError(
            "every audit of this study covers only a part of a model; remove the keys "
            "layers and only from the study file"
        )
    names = dict(whole.select("case", "model").iter_rows())
    tables = []
    for table, shipped in SHIPPED_COLUMNS.items():
        rows = audits.tables[table].filter(pl.col("case").is_in(names))
        columns = [column.name for column in LOCATION if column.name in rows.columns]
        named = rows.with_columns(model=pl.col("case").replace_strict(names, return_dtype=pl.String))
        tables.append(named.select(*columns, *shipped))
    known = [{"trained": True, **row, **provenance.get(row["model"], {})} for row in whole.to_dicts()]
    return Atlas(quantity_frame(MODELS, known), *tables)
