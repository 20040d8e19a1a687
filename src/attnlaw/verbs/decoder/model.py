"""A small byte-level decoder and its recipe: GPT-2 of 4 layers, one token per byte, trained by AdamW.

`examples/train_tiny.py` trains the one that ships with it; the study `dynamics-training` a shorter run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.formats.torch_file import import_torch
from attnlaw.verbs.decoder import corpus as byte_corpus

Bytes = NDArray[np.integer[Any]]
CONTEXT = 128
BATCH = 16
LEARNING_RATE = 3e-3
WARMUP_STEPS = 100
WEIGHT_DECAY = 0.1
GRADIENT_NORM = 1.0


def build_decoder() -> Any:
    """The decoder, with GPT-2's initialisation; draws from torch's own generator."""
    import_torch("training a decoder")
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=byte_corpus.VOCABULARY,
            n_positions=CONTEXT,
            n_embd=128,
            n_layer=4,
            n_head=4,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def adamw(model: Any, learning_rate: float) -> Any:
    """AdamW with weight decay on matrices and none on biases and normalisation gains."""
    import torch

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def warmup_then_cosine(optimizer: Any, steps: int) -> Any:
    """Linear warm-up, then cosine down to a tenth of the learning rate."""
    import torch

    def factor(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        return min((step + 1) / WARMUP_STEPS, 1) * (0.1 + 0.9 * cosine)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def decoder_loss(model: Any, windows: Bytes) -> Any:
    """Mean loss in nats per byte of predicting windows[:, 1:] from windows[:, :-1]."""
    import torch

    tokens = torch.from_numpy(windows.astype(np.int64))
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def held_out_loss(model: Any, windows: Bytes) -> float:
    """The decoder's mean loss over all windows, which are of equal length."""
    import torch

    batches = [windows[i : i + 64] for i in range(0, len(windows), 64)]
    with torch.no_grad():
        total = sum(len(batch) * float(decoder_loss(model, batch).item()) for batch in batches)
    return total / len(windows)


def train_decoder(
    model: Any, text: Bytes, steps: int, seed: int, after: Callable[[int, float], object]
) -> None:
    """Train in place on random windows of the text; `after(step, loss)` is called after every step."""
    import torch

    rng = np.random.default_rng(seed)
    optimizer = adamw(model, LEARNING_RATE)
    schedule = warmup_then_cosine(optimizer, steps)
    for step in range(1, steps + 1):
        loss = decoder_loss(model, byte_corpus.random_windows(text, BATCH, CONTEXT + 1, rng))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        after(step, loss.item())
