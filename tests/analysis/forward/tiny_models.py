"""Tiny Hugging Face models with every parameter drawn at random, biases and gains too, saved to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

SIZES = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
}
GPT2 = {"vocab_size": 20, "n_embd": 8, "n_layer": 2, "n_head": 4, "n_inner": 12, "n_positions": 10}
ROTARY = {**SIZES, "num_key_value_heads": 2}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", SIZES),
    "roberta": ("RobertaConfig", "RobertaModel", {**SIZES, "pad_token_id": 1}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {**GPT2, "activation_function": "gelu"}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**ROTARY, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**ROTARY, "sliding_window": 2}),
    "qwen2": ("Qwen2Config", "Qwen2Model", ROTARY),
}


def tiny_model(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A model of the kind in float32, as checkpoints are."""
    config, model, sizes = KINDS[kind]
    built = getattr(transformers, model)(getattr(transformers, config)(**{**sizes, **changes}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(built.named_parameters()):
            spread = 0.3 if parameter.ndim == 1 else 0.5
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.add_(1.0)  # the gain of a norm
    return built.eval()


def save_tiny(kind: str, folder: Path, seed: int = 0, **changes: Any) -> Path:
    """The directory of a saved tiny model."""
    tiny_model(kind, seed, **changes).save_pretrained(folder)
    return folder
