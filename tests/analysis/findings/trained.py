"""Small models of three families, trained for a moment on sequences that repeat: before and after."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

FAMILIES = ("gpt2", "llama", "t5")
VOCABULARY, WIDTH, LAYERS, HEADS, STEPS = 64, 128, 4, 4, 300


@cache
def trained(family: str) -> tuple[Any, Any]:
    """A fresh model, and the same after some hundred steps."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY}
    plain = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    if family == "gpt2":
        config: Any = transformers.GPT2Config(
            **sizes,
            n_positions=64,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            bos_token_id=0,
            eos_token_id=0,
        )
        model: Any = transformers.GPT2LMHeadModel(config)
    elif family == "llama":
        config = transformers.LlamaConfig(**sizes, **plain, intermediate_size=256, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config)
    elif family == "t5":
        config = transformers.T5Config(
            **sizes,
            d_model=WIDTH,
            d_kv=32,
            d_ff=256,
            num_layers=LAYERS,
            num_heads=HEADS,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        raise ValueError(family)
    fresh = deepcopy(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        half = torch.randint(1, VOCABULARY, (32, 12), generator=generator)
        if family == "t5":
            loss = model(input_ids=half, labels=half.flip(1)).loss
        else:
            tokens = torch.cat([half, half], dim=1)
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return fresh.eval(), model.eval()
