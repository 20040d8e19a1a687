"""What kind of model an audit is of: by its cross attention, else by its family.

A family stands in one line below, or nowhere: then its files do not tell (a bare `torch.nn.Transformer`, two
towers, names of one's own), and the kind is null.
"""

from __future__ import annotations

import polars as pl

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
