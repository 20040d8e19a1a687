"""The atlas: rows of audits of trained and of fresh models, as they ship or as a study wrote them.

`examples/atlas.toml` makes the rows that ship; `docs/scripts/make_atlas.py` gets its models and packs its
rows.

The numbers in which models are compared: one row per model, from the rows of audits, by one table.

A new column is a line of `COLUMNS`; the atlas has it at once, because it ships rows of matrices and layers.

What kind of model an audit is of: by its cross attention, else by its family.

A family stands in one line below, or nowhere: then its files do not tell (a bare `torch.nn.Transformer`, two
towers, names of one's own), and the kind is null.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.columns import LOCATION, VERSION
from attnlaw.analysis.fit.null import LEVEL
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import to_parquet, write_all
from attnlaw.core.quantity import Quantity
from attnlaw.core.result import Result
from attnlaw.core.tables import quantity_frame
from attnlaw.core.variants import by_name

if TYPE_CHECKING:
    from attnlaw.analysis.audit.audit import Audit

STORED, APPLIED = "stored", "applied"


@dataclass(frozen=True, eq=False)
class Column:
    """One number of a model: an expression over its rows of `table`, and how it is called and printed.

    `norms` tells a size of matrices as stored from one as applied; None where there is no such difference.
    """

    name: str
    label: str
    value: pl.Expr
    form: str = "#.3g"
    norms: str | None = None
    table: str = "matrices"

    def number_text(self, value: float) -> str:
        """The number as tables print it.

        >>> COLUMNS["rejected_share"].number_text(0.5), COLUMNS["median_outliers"].number_text(18)
        ('50.0%', '18')
        """
        return format(float(value), self.form).removesuffix(".")


def _median(name: str, kind: str) -> pl.Expr:
    """The median over the matrices of one kind: over all heads, or over all layers (and experts)."""
    return pl.col(name).filter(pl.col("kind") == kind).median()


def _size_columns(size: str, kind: str, matrix_label: str) -> Iterable[Column]:
    """A size of matrices twice: as stored, and as applied where the norm before is known."""
    label = f"{size.replace('_', ' ')} of {matrix_label}"
    yield Column(f"median_{size}_{kind}", label, _median(size, kind), norms=STORED)
    name = f"{size}_applied"
    yield Column(f"median_{size}_{kind}_applied", label, _median(name, kind), norms=APPLIED)


def _per_layer(name: str) -> pl.Expr:
    """The amplification by all layers above the first, over their number; none of a single layer."""
    above = pl.col("applications").sum() - 1
    return pl.when(above > 0).then(pl.col(name).first() / above)


COLUMNS = by_name(
    Column("rejected_share", "unlike noise", (pl.col("random_p_value") <= LEVEL).mean(), form=".1%"),
    Column("median_outliers", "values beyond the edge", pl.col("outliers").median(), form=".3g"),
    Column("median_effective_rank_qk", "effective rank of QK", _median("effective_rank", "qk")),
    *_size_columns("stable_rank", "qk", "QK"),
    *_size_columns("stable_rank", "vo", "VO"),
    *_size_columns("spectral_norm", "qk", "QK"),
    *_size_columns("spectral_norm", "vo", "VO"),
    *_size_columns("spectral_norm", "ffn_in", "FFN in"),
    *_size_columns("spectral_norm", "ffn_out", "FFN out"),
    *(
        Column(f"{name}_per_layer", "log10 α per layer", _per_layer(name), norms=norms, table="layers")
        for name, norms in (("log10_alpha", STORED), ("log10_alpha_applied", APPLIED))
    ),
)


def column_values(matrices: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """One row per model, in the order of the rows of matrices: every column of `COLUMNS`, null where missing.

    >>> matrices = pl.DataFrame(
    ...     {"model": "m", "kind": ["qk", "qk", "vo"], "stable_rank": [1.0, 3.0, 9.0]}
    ... ).with_columns(
    ...     pl.lit(None, dtype=pl.Float64).alias(name)
    ...     for name in (
    ...         "random_p_value", "outliers", "effective_rank", "spectral_norm",
    ...         "stable_rank_applied", "spectral_norm_applied",
    ...     )
    ... )
    >>> layers = pl.DataFrame({"model": "m", "applications": [1, 1], "log10_alpha": [4.0, 0.0]})
    >>> layers = layers.with_columns(log10_alpha_applied=None)
    >>> column_values(matrices, layers).select(
    ...     "model", "median_stable_rank_qk", "log10_alpha_per_layer", "rejected_share"
    ... ).row(0)
    ('m', 2.0, 4.0, None)
    """
    parts = [
        rows.group_by("model", maintain_order=True).agg(
            column.value.cast(pl.Float64).alias(column.name)
            for column in COLUMNS.values()
            if column.table == name
        )
        for name, rows in (("matrices", matrices), ("layers", layers))
    ]
    table = parts[0].join(parts[1], on="model", how="left", maintain_order="left")
    return table.select("model", *COLUMNS)


ENCODER_DECODER = "encoder-decoder"
# Families without cross attention; of those with it a part may be stored alone, and has no kind.
FAMILIES = {
    "encoder": (
        "albert, bert, deberta_v2, distilbert, esm, megatron_bert, modernbert, mpnet, nomic_bert, "
        "roberta_prelayernorm, xlm_roberta_xl"
    ),
    "decoder": (
        "apertus, arcee, biogpt, bitnet, bloom, codegen, cohere, cohere2, deepseek, exaone4, falcon, gemma4, "
        "glm, glm4_moe, gpt2, gpt_bigcode, gpt_neo, gpt_neox, gpt_oss, gptj, hunyuan, llama, llama4, "
        "minimax, mpt, nanogpt, nemotron, olmo, openai_gpt, opt, persimmon, phi, phi3, qwen3_next, stablelm, "
        "starcoder2, xglm"
    ),
    "vision": "dinov2, dinov3_vit, timm, videomae, vit",
    "audio": "wav2vec2",
}
KIND_OF = {family: kind for kind, families in FAMILIES.items() for family in families.split(", ")}


def model_kinds(matrices: pl.DataFrame) -> pl.DataFrame:
    """The kind of every model of a table of matrices: columns `model`, `kind`.

    >>> table = pl.DataFrame({"model": ["a", "b", "b"], "family": ["gpt2", "t5", "t5"]})
    >>> model_kinds(table.with_columns(kind=pl.Series(["qk", "qk", "cross_qk"]))).rows()
    [('a', 'decoder'), ('b', 'encoder-decoder')]
    """
    crossed = pl.col("kind").str.starts_with("cross_").any()
    by_family = pl.col("family").first().replace_strict(KIND_OF, default=None, return_dtype=pl.String)
    kind = pl.when(crossed).then(pl.lit(ENCODER_DECODER)).otherwise(by_family)
    return matrices.group_by("model", maintain_order=True).agg(kind=kind)


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
    LOCATION[0],
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


def atlas(audits: Result | None = None) -> Atlas:
    """Return the atlas that ships, or one of these audits, whose models are taken as trained.

    `attnlaw.load(DIR)` reads the audits of a study.

    >>> atlas()
    <Atlas of 9 trained and 7 fresh models>
    """
    return _shipped_atlas() if audits is None else atlas_of_audits(audits, {})


@cache
def _shipped_atlas() -> Atlas:
    names = ("models", "matrices", "layers")
    return Atlas(*(pl.read_parquet((FOLDER / f"{name}.parquet").read_bytes()) for name in names))


def atlas_of_audits(audits: Result, provenance: Mapping[str, Mapping[str, Any]]) -> Atlas:
    """Return the atlas of those audits that are of whole models, in the order of their rows.

    `provenance` has more of the columns of `models`, by the model's name.
    """
    if not isinstance(audits, Result) or audits.verb.name != "audit":
        raise InputError("an atlas is made of audits; give attnlaw.load(DIR) of a study of audits")
    whole = audits.rows.with_row_index("case").filter(
        pl.col("status") == str(Outcome.DONE), pl.col("layers").is_null(), pl.col("only").is_null()
    )
    if not whole.height:
        raise InputError("found no audit of a whole model; leave layers and only out of the study")
    names = dict(whole.select("case", "model").iter_rows())
    tables = []
    for table, shipped in SHIPPED_COLUMNS.items():
        rows = audits.tables[table].filter(pl.col("case").is_in(names))
        columns = [column.name for column in LOCATION if column.name in rows.columns]
        named = rows.with_columns(model=pl.col("case").replace_strict(names, return_dtype=pl.String))
        tables.append(named.select(*columns, *shipped))
    known = [{"trained": True, **row, **provenance.get(row["model"], {})} for row in whole.to_dicts()]
    return Atlas(quantity_frame(MODELS, known), *tables)
