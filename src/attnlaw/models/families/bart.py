"""BART and its relatives: encoder and decoder with cross attention, by the names that Whisper has too."""

from dataclasses import replace

from attnlaw.models.families.whisper import WHISPER

BART = replace(
    WHISPER,
    name="bart",
    model_types=("bart",),
    embedding=("shared.weight", "decoder.embed_tokens.weight"),
    unembedding=("lm_head.weight",),
    pre_norm=False,
)

MBART = replace(
    BART,
    name="mbart",
    model_types=("mbart", "pegasus", "m2m_100"),
    default_activation="relu",
    pre_norm=True,
)
