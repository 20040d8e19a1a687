"""Effective beta: against the logits themselves, against Gaussian inputs, and on a trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from real_checkpoints import real_checkpoint

from attnlaw.analysis.fit.effective_beta import effective_beta, effective_betas
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError


@pytest.mark.slow
def test_agrees_with_the_logits_of_all_pairs() -> None:
    model = open_model(real_checkpoint("rxnfp-pretrained"))
    layer, head = 3, 1
    attention = model.layers[layer].attention
    d = attention.head_size
    columns = slice(head * d, (head + 1) * d)
    X = model.embedding()
    X = X - X.mean(axis=1, keepdims=True)
    X = X[X.std(axis=1) > 0]
    X = X / X.std(axis=1, keepdims=True)
    q, k = X @ model.read(attention.query)[:, columns], X @ model.read(attention.key)[:, columns]
    rows = (q @ k.T / np.sqrt(d)).std(axis=1)
    beta = effective_beta(model, layer, head)
    assert beta.value == pytest.approx(rows.mean(), rel=1e-10)
    assert beta.spread == pytest.approx(rows.std(), rel=1e-8)
    assert beta.tokens == X.shape[0]
    assert beta.extension.startswith("effective beta")


def gaussian_model(width: int, tokens: int, std: float) -> dict[str, np.ndarray]:
    """A one-layer decoder in GPT-2's names with independent Gaussian entries."""
    rng = np.random.default_rng(5)
    return {
        "wte.weight": rng.normal(size=(tokens, width)),
        "wpe.weight": rng.normal(size=(8, width)),
        "h.0.attn.c_attn.weight": std * rng.normal(size=(width, 3 * width)),
        "h.0.attn.c_attn.bias": np.zeros(3 * width),
        "h.0.attn.c_proj.weight": rng.normal(size=(width, width)),
        "h.0.mlp.c_fc.weight": rng.normal(size=(width, 4 * width)),
        "h.0.mlp.c_proj.weight": rng.normal(size=(4 * width, width)),
    }


def test_gaussian_weights_have_the_beta_of_their_variance() -> None:
    width, std = 128, 0.05
    betas = effective_betas(open_model(gaussian_model(width, 3000, std), heads=2))
    # Queries and keys have variance N std^2 per entry, so beta is N std^2. The traces of their Gram matrices
    # (N d_head squares each) move by sqrt(2/(128 64)) = 1.6 %, and the mean of roots is 1 % below the root.
    assert len(betas) == 2
    for beta in betas:
        assert beta.value == pytest.approx(width * std**2, rel=3 * 0.016 * np.sqrt(2) + 0.01)
        assert 0 < beta.spread < beta.value


def test_all_heads_equal_one_by_one() -> None:
    model = open_model(gaussian_model(32, 50, 0.1), heads=4)
    assert effective_betas(model) == tuple(effective_beta(model, 0, head) for head in range(4))


def inputs(module: torch.nn.Module) -> torch.Tensor:
    """The embeddings, normalised row by row."""
    rows = module.get_input_embeddings().weight.detach()
    rows = rows - rows.mean(dim=1, keepdim=True)
    return rows / rows.std(dim=1, keepdim=True, correction=0)


def latent_heads(part: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """DeepSeek's logits without rotation and norms: 6 of a key are the head's own, 4 are shared."""
    queries = part.q_b_proj(part.q_a_proj(x)).reshape(-1, 4, 10)
    narrow, shared = part.kv_a_proj_with_mqa(x).split([8, 4], dim=1)
    keys = part.kv_b_proj(narrow).reshape(-1, 4, 11)[..., :6]
    return [part.scaling * queries[:, h] @ torch.cat([keys[:, h], shared], dim=1).T for h in range(4)]


def plain_heads(part: torch.nn.Module, x: torch.Tensor, size: int, scale: float) -> list[torch.Tensor]:
    query, key = (
        getattr(part, name)(x) for name in (("q", "k") if hasattr(part, "q") else ("q_proj", "k_proj"))
    )
    shared = query.shape[1] // key.shape[1]
    queries, keys = query.split(size, dim=1), key.split(size, dim=1)
    return [scale * q @ keys[head // shared].T for head, q in enumerate(queries)]


SMALL = {"vocab_size": 40, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
LATENT = {"q_lora_rank": 10, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
GEMMA = SMALL | {
    "num_key_value_heads": 2,
    "head_dim": 10,
    "query_pre_attn_scalar": 7,
    "intermediate_size": 30,
}
# class, sizes, and the logits of every head in the words of the model's own code
MODELS: dict[str, tuple[str, dict[str, Any], Callable[..., list[torch.Tensor]]]] = {
    "latent": (
        "DeepseekV3Model",
        SMALL | LATENT | {"num_key_value_heads": 4, "first_k_dense_replace": 2, "rope_parameters": YARN},
        lambda module, layer, x: latent_heads(module.layers[layer].self_attn, x),
    ),
    "no division": (
        "T5EncoderModel",
        {"vocab_size": 40, "d_model": 24, "d_kv": 5, "d_ff": 30, "num_layers": 2, "num_heads": 4},
        lambda module, layer, x: plain_heads(
            module.encoder.block[layer].layer[0].SelfAttention, x, size=5, scale=1.0
        ),
    ),
    "another size": (
        "Gemma2Model",
        GEMMA,
        lambda module, layer, x: plain_heads(module.layers[layer].self_attn, x, size=10, scale=7**-0.5),
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_the_models_own_keys_and_factor(case: str) -> None:
    """Against the logits of all pairs from the modules themselves, in float64."""
    name, sizes, logits = MODELS[case]
    torch.manual_seed(2)
    kind = getattr(transformers, name)
    module = kind(kind.config_class(pad_token_id=None, **sizes)).double()
    betas = effective_betas(open_model(module))
    with torch.no_grad():
        rows = [head.std(dim=1, correction=0) for n in range(2) for head in logits(module, n, inputs(module))]
    assert len(betas) == len(rows) == 8
    for beta, row in zip(betas, rows, strict=True):
        assert beta.value == pytest.approx(float(row.mean()), rel=1e-10)
        assert beta == effective_beta(open_model(module), beta.layer, beta.head)


@pytest.mark.slow
def test_what_cannot_be_measured_is_refused() -> None:
    model = open_model(gaussian_model(32, 50, 0.1), heads=4)
    with pytest.raises(InputError, match="no head 4 in layer 0"):
        effective_beta(model, 0, 4)
    with pytest.raises(InputError, match="embeddings have 128 entries"):
        effective_betas(open_model(real_checkpoint("rxnmapper")))
