"""Small models of every family, as config.json has them, with tokens that show what they are made of."""

from __future__ import annotations

from typing import Any

COMMON = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 40}
ROTARY = {**COMMON, "intermediate_size": 40, "initializer_range": 0.3}
# By name: the keys of config.json.
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 40,
        "n_positions": 16,
        "initializer_range": 0.3,
    },
    "llama": {"model_type": "llama", **ROTARY, "num_key_value_heads": 2},
    "llama3": {
        "model_type": "llama",
        **ROTARY,
        "head_dim": 8,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "mistral": {"model_type": "mistral", **ROTARY, "num_key_value_heads": 2},
    "mixtral": {"model_type": "mixtral", **ROTARY, "num_key_value_heads": 2, "num_local_experts": 4},
    "qwen2": {"model_type": "qwen2", **ROTARY, "num_key_value_heads": 4, "pad_token_id": 3},
    "qwen3": {"model_type": "qwen3", **ROTARY, "num_key_value_heads": 2, "head_dim": 8},
    "granite": {
        "model_type": "granite",
        **ROTARY,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.3,
        "logits_scaling": 2.0,
    },
    "gemma": {"model_type": "gemma", **ROTARY, "num_key_value_heads": 1, "head_dim": 8},
    "gemma2": {
        "model_type": "gemma2",
        **ROTARY,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "query_pre_attn_scalar": 6,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 1.5,
    },
    "bert": {"model_type": "bert", **COMMON, "intermediate_size": 40, "initializer_range": 0.2},
    "gpt_neox": {"model_type": "gpt_neox", **ROTARY, "hidden_size": 32, "rotary_pct": 0.5},
    "opt": {"model_type": "opt", **COMMON, "ffn_dim": 40, "init_std": 0.3, "word_embed_proj_dim": 24},
    "opt_post": {
        "model_type": "opt",
        **COMMON,
        "ffn_dim": 40,
        "init_std": 0.3,
        "word_embed_proj_dim": 24,
        "do_layer_norm_before": False,
    },
    "phi": {"model_type": "phi", **ROTARY, "hidden_size": 32},
}
