"""Variants that configs choose, against the models' own forward pass as the types of the table are."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoints.forward_pass import require_transformers
from checkpoints.test_family_table import TABLE

# By type: changes of the sizes in the table, and a name for the variant.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one key for all heads": (
        "falcon",
        {"new_decoder_architecture": False, "multi_query": True, "parallel_attn": True},
    ),
    "serial, with biases of positions": (
        "falcon",
        {"new_decoder_architecture": False, "multi_query": False, "parallel_attn": False}
        | {"alibi": True, "bias": True, "num_kv_heads": 4},
    ),
    "one norm for both blocks": ("falcon", {"num_ln_in_parallel_attn": 1}),
    "parallel": ("stablelm", {"use_parallel_residual": True}),
    "serial": ("gpt_neox", {"use_parallel_residual": False}),
    "keys of their own": ("gpt_bigcode", {"multi_query": False}),
    "pre-norm": ("wav2vec2", {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}),
    "pre-norm of wavlm": ("wavlm", {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}),
    "post-norm": ("opt", {"do_layer_norm_before": False}),
    "gated": ("dinov2", {"use_swiglu_ffn": True}),
    "gated, with registers": (
        "dinov3_vit",
        {"use_gated_mlp": True, "hidden_act": "silu", "num_register_tokens": 2},
    ),
    "gated t5": ("t5", {"feed_forward_proj": "gated-gelu"}),
    "rotary": ("esm", {"position_embedding_type": "rotary", "emb_layer_norm_before": True}),
    "norms of queries": ("phi", {"qk_layernorm": True}),
    "no norms of queries": ("cohere", {"use_qk_norm": False}),
    "norms of queries of glm": ("glm4_moe", {"use_qk_norm": True}),
    "positions everywhere": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "two terms of positions": ("deberta-v2", {"pos_att_type": ["p2c", "c2p"]}),
    "a scale": ("mpt", {"attn_config": {"softmax_scale": 0.3}}),
    "biases": (
        "modernbert",
        {"num_hidden_layers": 4, "norm_bias": True, "attention_bias": True, "mlp_bias": True},
    ),
    "biases of granite": ("granite", {"attention_bias": True, "mlp_bias": True}),
    "no biases": ("videomae", {"qkv_bias": False, "qv_bias": False}),
    "a share of the head": ("minimax_m2", {"rotary_dim": 4}),
    "experts in some layers": ("qwen2_moe", {"mlp_only_layers": [0]}),
}
FEW = ("keys of their own", "gated", "pre-norm", "serial, with biases of positions")


def run(variant: str) -> None:
    require_transformers("5.22", "these models in float64")
    name, changes = VARIANTS[variant]
    small = TABLE.TYPES[name]
    inputs = TABLE.masked if changes.get("alibi") else small.inputs
    comparison = TABLE.outcome(name, TABLE.Small(small.kind, small.sizes | changes, inputs))
    assert comparison.error is not None, comparison.line


@pytest.mark.parametrize("variant", FEW)
def test_some_variants(variant: str) -> None:
    run(variant)


@pytest.mark.long
@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - set(FEW)))
def test_all_other_variants(variant: str) -> None:
    run(variant)
