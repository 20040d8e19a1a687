"""The numbers in which the atlas compares models, and the kinds of models.

Each number is computed from the rows of an audit. To add one, add a line to `COLUMNS`. The atlas that ships
then has it too, because it ships rows of matrices and layers.

A model with cross attention is an encoder-decoder. The kind of any other model (decoder, encoder, ...)
follows from its family. If the family does not determine it, the kind is null. Examples are a bare
`torch.nn.Transformer`, a model with two towers, and tensors with names that attnlaw does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from attnlaw.analysis.fit.null import LEVEL
from attnlaw.core.variants import by_name

STORED, APPLIED = "stored", "applied"


@dataclass(frozen=True, eq=False)
class AtlasColumn:
    """A number on which models are compared. `form` is the format specification for printing it."""

    name: str  # name in `summary.json`
    label: str  # name in printed tables
    value: pl.Expr  # expression that computes the number from a model's rows of `table`
    description: str  # what the number means
    term: str = ""  # what the description defines, if that is not the label
    form: str = "#.3g"
    norms: str | None = None  # "stored" or "applied" for a size of matrices; None for other numbers
    table: str = "matrices"  # "matrices" or "layers"

    def number_text(self, value: float) -> str:
        return format(float(value), self.form).removesuffix(".")


SIZES = {
    "stable_rank": ("stable rank", "number of directions that carry most of a head"),
    "effective_rank": ("effective rank", "number of directions that a head uses, including weak ones"),
    "spectral_norm": ("norm", "largest singular value: the most that a matrix can stretch a direction"),
}


def _median(name: str, kind: str) -> pl.Expr:
    return pl.col(name).filter(pl.col("kind") == kind).median()


def _size_columns(size: str, kind: str, matrix_label: str) -> Iterable[AtlasColumn]:
    """Yield two columns for a size: the size as stored and the size as applied."""
    term, meaning = SIZES[size]
    for norms, column in ((STORED, size), (APPLIED, f"{size}_applied")):
        name, label = f"median_{size}_{kind}{column.removeprefix(size)}", f"{matrix_label} {term}"
        yield AtlasColumn(name, label, _median(column, kind), meaning, term=term, norms=norms)


def _per_layer(name: str) -> pl.Expr:
    """Return log10 amplification by all layers above the first, over their number; null if there is none."""
    above = pl.col("applications").sum() - 1
    return pl.when(above > 0).then(pl.col(name).first() / above)


COLUMNS = by_name(
    AtlasColumn(
        "rejected_share",
        "unlike random",
        (pl.col("random_p_value") <= LEVEL).mean(),
        "share of weight matrices that differ from random ones",
        form=".1%",
    ),
    AtlasColumn(
        "median_outliers",
        "strong directions",
        pl.col("outliers").median(),
        "number of singular values that are larger than those of a random matrix",
        form=".3g",
    ),
    AtlasColumn(
        "median_effective_rank_qk",
        "QK effective rank",
        _median("effective_rank", "qk"),
        SIZES["effective_rank"][1],
        term=SIZES["effective_rank"][0],
    ),
    *_size_columns("stable_rank", "qk", "QK"),
    *_size_columns("stable_rank", "vo", "VO"),
    *_size_columns("spectral_norm", "qk", "QK"),
    *_size_columns("spectral_norm", "vo", "VO"),
    *_size_columns("spectral_norm", "ffn_in", "FFN-in"),
    *_size_columns("spectral_norm", "ffn_out", "FFN-out"),
    *(
        AtlasColumn(
            f"{name}_per_layer",
            "log10 α per layer",
            _per_layer(name),
            "how much the later layers can enlarge an error, as a power of ten",
            norms=norms,
            table="layers",
        )
        for name, norms in (("log10_alpha", STORED), ("log10_alpha_applied", APPLIED))
    ),
)


def column_values(matrices: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Compute every column of `COLUMNS` for each model, or null without the numbers for it."""
    first, second = (
        rows.group_by("model", maintain_order=True).agg(
            column.value.cast(pl.Float64).alias(column.name)
            for column in COLUMNS.values()
            if column.table == name
        )
        for name, rows in (("matrices", matrices), ("layers", layers))
    )
    return first.join(second, on="model", how="left", maintain_order="left").select("model", *COLUMNS)


# Families without cross attention, by kind. Other families have no kind here: if only a part of such a model
# is stored, its kind is not known.
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
    """Return a table with the columns `model` and `kind`, such as "decoder"."""
    crossed = pl.col("kind").str.starts_with("cross_").any()
    by_family = pl.col("family").first().replace_strict(KIND_OF, default=None, return_dtype=pl.String)
    kind = pl.when(crossed).then(pl.lit("encoder-decoder")).otherwise(by_family)
    return matrices.group_by("model", maintain_order=True).agg(kind=kind)
