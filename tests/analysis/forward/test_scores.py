"""Scores of a pass: the network's own attention, and its formula written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from analysis.forward.tiny_models import KINDS, save_tiny

from attnlaw.analysis.forward.blocks import attentions
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.trace import trace_forward

IDS = [3, 1, 4, 1, 5]
# transformers rounds the softmax of these to float32, whose numbers below 1 are 6e-8 apart.
ROUNDED = ("llama", "mistral", "qwen2")


@pytest.mark.parametrize("kind", KINDS)
def test_their_softmax_is_the_attention_of_the_network(tmp_path: Path, kind: str) -> None:
    passed = trace_forward(*load_base_model(save_tiny(kind, tmp_path)), IDS)
    for scores, block in zip(passed.scores, attentions(passed.chain), strict=True):
        attention = np.array([scores.attention(scores.logits(head)) for head in range(scores.heads)])
        error = 5e-7 if kind in ROUNDED else 1e-14
        np.testing.assert_allclose(attention, block.probabilities, rtol=0, atol=error)


@pytest.mark.parametrize("kind", KINDS)
def test_masks(tmp_path: Path, kind: str) -> None:
    scores = trace_forward(*load_base_model(save_tiny(kind, tmp_path)), IDS).scores[0]
    steps = np.arange(5)[:, None] - np.arange(5)
    window = {"bert": (-5, 5), "roberta": (-5, 5), "mistral": (0, 1)}.get(kind, (0, 5))
    np.testing.assert_array_equal(scores.allowed, (steps >= window[0]) & (steps <= window[1]))
    assert (scores.unmasked, scores.causal) == (window[0] < 0, window == (0, 5))


def test_a_decoder_that_is_told_to_look_both_ways(tmp_path: Path) -> None:
    """The mask is the one the network was given, not the one of its family."""
    passed = trace_forward(*load_base_model(save_tiny("llama", tmp_path, is_causal=False)), IDS)
    (block, *_) = attentions(passed.chain)
    assert passed.scores[0].unmasked == bool((block.probabilities > 0).all())


def test_grouped_queries_and_positions_by_hand(tmp_path: Path) -> None:
    """Four query heads on two key heads; a head of size 2 turns with its position."""
    kind, model = load_base_model(save_tiny("llama", tmp_path))
    scores = trace_forward(kind, model, IDS).scores[1]
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    at = "layers.1.self_attn."
    q = scores.inputs @ weights[at + "q_proj.weight"].T + weights[at + "q_proj.bias"]
    k = scores.inputs @ weights[at + "k_proj.weight"].T + weights[at + "k_proj.bias"]
    for head, group in enumerate((0, 0, 1, 1)):
        # A head of size 2 is one complex number, turned by one radian a position.
        a = (q[:, 2 * head] + 1j * q[:, 2 * head + 1]) * np.exp(1j * np.arange(5))
        b = (k[:, 2 * group] + 1j * k[:, 2 * group + 1]) * np.exp(1j * np.arange(5))
        expected = (a[:, None] * b.conj()).real / np.sqrt(2)
        # cos and sin of transformers are rounded to float32.
        np.testing.assert_allclose(scores.logits(head), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_scores_of_other_weights_are_those_of_the_formula(tmp_path: Path) -> None:
    scores = trace_forward(*load_base_model(save_tiny("bert", tmp_path)), IDS).scores[0]
    W_Q, W_K = np.random.default_rng(0).standard_normal((2, 8, 2))
    expected = np.einsum("ia,ab,jc,cb->ij", scores.inputs, W_Q, scores.inputs, W_K) / np.sqrt(2)
    np.testing.assert_allclose(scores.scores_with(W_Q, W_K), expected, rtol=1e-12, atol=1e-12)
