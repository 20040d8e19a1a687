"""The atlas: rows of audits of trained and of fresh models, as they ship or as a study wrote them.

`examples/atlas.toml` makes the rows that ship; `docs/scripts/make_atlas.py` gets its models and packs its
rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.atlas.columns import column_values
from attnlaw.analysis.atlas.kinds import model_kinds
from attnlaw.analysis.audit.rows import schema
from attnlaw.analysis.columns import LAYERS, MATRICES, PLACE, VERSION
from attnlaw.core.errors import require_some
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import to_parquet, write_all
from attnlaw.core.quantity import Quantity
from attnlaw.core.result import Result
from attnlaw.core.result_files import STUDY_ROWS
from attnlaw.core.tables import read_table, to_frame

if TYPE_CHECKING:
    from attnlaw.analysis.audit.record import Audit

FOLDER = Path(__file__).parent
# Columns of audits that ship, beside those that tell the place of a row.
SHIPPED_COLUMNS = {
    "matrices": (
        "family", "rows", "cols", "inner", "spectral_norm", "frobenius_norm", "stable_rank", "effective_rank",
        "spectral_norm_applied", "stable_rank_applied", "random_p_value", "outliers", "null_draws",
    ),
    "layers": ("applications", "log10_alpha", "log10_alpha_applied"),
}  # fmt: skip
MODELS = (
    PLACE[0],
    Quantity("trained", "whether it was trained; else it was freshly initialised", kind="bool"),
    Quantity("family", "family of the model", kind="text"),
    Quantity("depth", "layers, each as often as it is applied", kind="int"),
    Quantity("hidden_size", "width of the layers", kind="int"),
    Quantity("head_count", "heads of the first layer", kind="int"),
    Quantity("matrix_count", "matrices measured", kind="int"),
    Quantity("source", "where it comes from, or of which config it is fresh", kind="text"),
    Quantity("licence", "of the trained weights, as their package states it", kind="text"),
    Quantity("sha256", "of the file of weights that was audited", kind="text"),
    Quantity("seed", "of a fresh model", kind="int"),
    Quantity("made_with", "what drew a fresh model", kind="text"),
    VERSION,
)


@dataclass(frozen=True, eq=False)
class Atlas:
    """Rows of audits: `models` (one each, with its provenance), `matrices` and `layers`."""

    models: pl.DataFrame
    matrices: pl.DataFrame
    layers: pl.DataFrame

    @cached_property
    def values(self) -> pl.DataFrame:
        """One row per model: whether it was trained, its kind, and the numbers that are compared."""
        kinds = model_kinds(self.matrices)
        numbers = column_values(self.matrices, self.layers)
        known = self.models.select("model", "trained").join(kinds, on="model", how="left")
        return known.join(numbers, on="model", how="left", maintain_order="left")

    def compare(self, audit: Audit | Result) -> dict[str, Any] | None:
        """Where an audited model lies among these: what `summary.json` has under `atlas`."""
        from attnlaw.analysis.atlas.compare import atlas_entry, comparison_table

        return atlas_entry(comparison_table(audit.record if isinstance(audit, Result) else audit, self))

    def save(self, folder: str | os.PathLike[str] = FOLDER) -> None:
        """Write the three tables, as they ship."""
        tables = {"models": self.models, "matrices": self.matrices, "layers": self.layers}
        write_all({Path(folder) / f"{name}.parquet": to_parquet(table) for name, table in tables.items()})

    def __repr__(self) -> str:
        trained = self.models["trained"].sum()
        return f"<Atlas of {trained} trained and {self.models.height - trained} fresh models>"


def atlas(study: str | os.PathLike[str] | None = None) -> Atlas:
    """The atlas that ships, or one of the audits of a study, whose models are taken as trained.

    >>> atlas()
    <Atlas of 9 trained and 7 fresh models>
    """
    return _shipped_atlas() if study is None else atlas_from_study(Path(study), {})


@cache
def _shipped_atlas() -> Atlas:
    names = ("models", "matrices", "layers")
    return Atlas(*(pl.read_parquet((FOLDER / f"{name}.parquet").read_bytes()) for name in names))


def atlas_from_study(folder: Path, provenance: Mapping[str, Mapping[str, Any]]) -> Atlas:
    """The whole audits that a study wrote to a directory, in the order of their rows.

    `provenance` has more of the columns of `models`, by the model's name.
    """
    remedy = "give the directory of: attnlaw study run FILE.toml --out DIR"
    require_some((folder / STUDY_ROWS).is_file(), folder, str(STUDY_ROWS), remedy)
    rows = read_table(folder / STUDY_ROWS, remedy, {name: pl.String() for name in ("verb", "task")})
    audits = rows.filter(pl.col("verb") == "audit", pl.col("status") == str(Outcome.DONE))
    whole = pl.all_horizontal(pl.col(name).is_null() for name in ("layers", "only") if name in rows.columns)
    done = audits.filter(whole).to_dicts()
    require_some(done, folder, "audit of a whole model", remedy)
    tables = [pl.concat([_table(folder, name, row, remedy) for row in done]) for name in SHIPPED_COLUMNS]
    known = [{"trained": True, **row, **provenance.get(row["model"], {})} for row in done]
    return Atlas(to_frame(known, schema(MODELS)), *tables)


def _table(folder: Path, name: str, row: Mapping[str, Any], remedy: str) -> pl.DataFrame:
    """What is kept of one table of one audit, under the name that the study's row has."""
    columns = schema({"matrices": MATRICES, "layers": LAYERS}[name])
    kept = {
        column: columns[column]
        for column in (*(quantity.name for quantity in PLACE), *SHIPPED_COLUMNS[name])
        if column in columns
    }
    table = read_table(folder / "tables" / name / f"{row['task']}.parquet", remedy, kept)
    return table.select(*kept).with_columns(model=pl.lit(row["model"]))
