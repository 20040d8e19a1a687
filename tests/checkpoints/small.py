"""Small models, by the sizes of their configs, by their weights alone, or by a map of their names."""

from __future__ import annotations

from typing import Any

import numpy as np

VOCABULARY = 40
SPECIAL = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
PLAIN = {"num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 36, "hidden_size": 24}
BART = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 36,
    "decoder_ffn_dim": 30,
    "max_position_embeddings": 16,
    "decoder_start_token_id": 2,
    **SPECIAL,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "d_kv": 5,  # heads times this is not the hidden size
    "d_ff": 36,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
WHISPER = BART | {"num_mel_bins": 8, "max_source_positions": 9, "max_target_positions": 16}
# Beside the sizes of a plain model: latent attention and experts, as DeepSeek has them.
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 3,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 10,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
}
# llama.cpp's names of maps, and those of Hugging Face.
TO_HUGGING_FACE = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# A map for examples/tiny-decoder, or for a model of other names in its place.
DECODER_MAP = """
name = "mine"
stored_out_in = false
[[stacks]]
layer = "h.{layer}."
heads = "n_head"
depth = ["n_layer"]
attention = { "query,key,value" = "attn.c_attn.weight", output = "attn.c_proj.weight" }
feed_forward = [{ in = "mlp.c_fc.weight", out = "mlp.c_proj.weight" }]
"""


def llama_weights(
    rng: np.random.Generator, layers: int, heads: int, kv_heads: int, hidden: int, size: int, width: int
) -> dict[str, Any]:
    """Standard Gaussian maps with grouped queries and a gated feed-forward."""
    shapes = {
        "self_attn.q_proj": (heads * size, hidden),
        "self_attn.k_proj": (kv_heads * size, hidden),
        "self_attn.v_proj": (kv_heads * size, hidden),
        "self_attn.o_proj": (hidden, heads * size),
        "mlp.gate_proj": (width, hidden),
        "mlp.up_proj": (width, hidden),
        "mlp.down_proj": (hidden, width),
    }
    return {
        f"model.layers.{layer}.{name}.weight": rng.standard_normal(shape)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def bert_weights(rng: np.random.Generator, layers: int, width: int, gain: float = 1.0) -> dict[str, Any]:
    """Gaussian maps of standard deviation `gain`, feed-forward blocks twice as wide as the rest."""
    shapes = {
        **{f"attention.self.{part}": (width, width) for part in ("query", "key", "value")},
        "attention.output.dense": (width, width),
        "intermediate.dense": (2 * width, width),
        "output.dense": (width, 2 * width),
    }
    return {
        f"bert.encoder.layer.{layer}.{name}.weight": gain * rng.standard_normal(shape)
        for layer in range(layers)
        for name, shape in shapes.items()
    }
