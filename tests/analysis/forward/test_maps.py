"""Block norms exactly and by probes, causal zeros, and rollout in loops."""

from __future__ import annotations

import numpy as np
import pytest
from analysis.forward.tiny_models import save_tiny

from attnlaw.analysis.forward import operator as operator_module
from attnlaw.analysis.forward import token_maps as maps
from attnlaw.analysis.forward.blocks import attentions
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.token_maps import rollout, token_map
from attnlaw.analysis.forward.trace import Trace, trace_forward
from attnlaw.core.errors import InputError

IDS = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> dict[str, Trace]:
    kinds = ("bert", "gpt2", "llama")
    return {
        kind: trace_forward(*load_base_model(save_tiny(kind, tmp_path_factory.mktemp(kind))), IDS)
        for kind in kinds
    }


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_norms_are_those_of_the_dense_blocks(passes, kind, monkeypatch):
    operator, s = passes[kind].operator, len(IDS)
    monkeypatch.setattr(operator_module, "BATCH_ENTRIES", 3 * operator.size)
    norm_map = token_map(operator)
    matrix = operator.dense()
    expected = np.array([[np.linalg.norm(matrix[i::s, j::s]) for j in range(s)] for i in range(s)])
    np.testing.assert_allclose(norm_map.norms, expected, rtol=1e-12, atol=1e-13 * expected.max())
    assert norm_map.probes is None
    assert not norm_map.errors.any()
    np.testing.assert_allclose(norm_map.shares.sum(axis=1), 1, rtol=1e-14)


def test_probes_estimate_the_norms_within_their_errors(passes):
    operator = passes["bert"].operator
    exact = token_map(operator).norms
    norm_map = token_map(operator, seed=1, probes=200)
    deviations = (norm_map.norms - exact) / norm_map.errors
    # 25 approximately normal deviations, dependent within a column: one passes 4 with chance 0.2%.
    assert np.abs(deviations).max() < 4
    assert 0.3 < np.sqrt((deviations**2).mean()) < 2
    assert norm_map.probes == 200
    np.testing.assert_array_equal(token_map(operator, seed=1, probes=200).norms, norm_map.norms)


def test_squared_estimates_have_no_bias(passes):
    operator = passes["bert"].operator
    exact = token_map(operator).norms ** 2
    runs = np.array([token_map(operator, seed=seed, probes=8).norms ** 2 for seed in range(100)])
    error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert np.abs((runs.mean(axis=0) - exact) / error).max() < 4


def test_large_operators_are_estimated(passes, monkeypatch):
    monkeypatch.setattr(maps, "DENSE_LIMIT", 39)  # one below the operator's size
    norm_map = token_map(passes["bert"].operator)
    assert norm_map.probes == 64
    assert (norm_map.errors > 0).all()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_causal_mask_leaves_the_upper_triangle_empty(passes, kind):
    operator = passes[kind].operator
    for norm_map in (token_map(operator), token_map(operator, probes=4)):
        above = np.triu_indices(len(IDS), k=1)
        assert not norm_map.norms[above].any()
        assert not norm_map.errors[above].any()
        assert (norm_map.norms[np.tril_indices(len(IDS))] > 0).all()


def test_an_encoder_fills_the_map(passes):
    assert (token_map(passes["bert"].operator).norms > 0).all()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_rollout_in_loops(passes, kind):
    s = len(IDS)
    expected = np.eye(s)
    for block in attentions(passes[kind].chain):
        mixing = np.zeros((s, s))
        for i in range(s):
            for j in range(s):
                mean = sum(head[i, j] for head in block.probabilities) / len(block.probabilities)
                mixing[i, j] = 0.5 * mean + 0.5 * (i == j)
        expected = mixing @ expected
    rollout_map = rollout(attentions(passes[kind].chain))
    np.testing.assert_allclose(rollout_map, expected, rtol=1e-12)
    np.testing.assert_allclose(rollout_map.sum(axis=1), 1, rtol=1e-12)


def test_progress_and_bad_probes(passes):
    seen: list[tuple[int, int]] = []
    token_map(passes["bert"].operator, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 5) for done in range(1, 6)]
    with pytest.raises(InputError, match="probes: found 1, expected a whole number of at least 2"):
        token_map(passes["bert"].operator, probes=1)
