"""Effective beta: against the logits themselves, against Gaussian inputs, and on a trained model."""

from __future__ import annotations

import numpy as np
import pytest
from real_checkpoints import real_checkpoint

from attnlaw.checkpoints.open import open_model
from attnlaw.errors import InputError
from attnlaw.fits.effective_beta import effective_beta, effective_betas


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
    found = effective_beta(model, layer, head)
    assert found.value == pytest.approx(rows.mean(), rel=1e-10)
    assert found.spread == pytest.approx(rows.std(), rel=1e-8)
    assert found.tokens == X.shape[0]
    assert found.extension.startswith("effective beta")


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


def test_what_cannot_be_measured_is_refused() -> None:
    model = open_model(gaussian_model(32, 50, 0.1), heads=4)
    with pytest.raises(InputError, match="no head 4 of layer 0"):
        effective_beta(model, 0, 4)
    with pytest.raises(InputError, match="embeddings have 128 entries"):
        effective_betas(open_model(real_checkpoint("rxnmapper")))
