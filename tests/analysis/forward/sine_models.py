"""Tiny models without a seed: parameter k, entry i is c sin(1.3 i + .7 k + 1); gains 1 + .1 sin(...)."""

from __future__ import annotations

from typing import Any

import torch
import transformers

IDS = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [2, 4, 6, 8, 10], [9, 3, 5]]


def bert(**changes: Any) -> Any:
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "max_position_embeddings": 8, "type_vocab_size": 1, "num_labels": 3}
    config = transformers.BertConfig(**{**sizes, **changes})
    return filled(transformers.BertForSequenceClassification(config), 0.5)


def gpt2(**changes: Any) -> Any:
    sizes = {"vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 8}
    config = transformers.GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **changes})
    return filled(transformers.GPT2LMHeadModel(config), 0.3)


def filled(model: Any, size: float) -> Any:
    model = model.double().eval()
    with torch.no_grad():
        for k, (name, parameter) in enumerate(model.named_parameters()):
            i = torch.arange(parameter.numel(), dtype=torch.float64)
            wave = torch.sin(1.3 * i + 0.7 * k + 1).reshape(parameter.shape)
            gain = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(1 + 0.1 * wave if gain else size * wave)
    return model
