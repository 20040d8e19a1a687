"""Heads in stacks against QR factorisations of each head by itself."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from analysis.forward.tiny_models import tiny_model

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.spectra import measure as measuring
from attnlaw.spectra import stacked
from attnlaw.spectra.factored import triangular_factor
from attnlaw.spectra.measure import Selection, measure
from attnlaw.spectra.stacked import FactorStack

WIDER = {
    "bert": {"hidden_size": 24, "intermediate_size": 30},
    "gpt2": {"n_embd": 24, "n_inner": 30},
    "llama": {"hidden_size": 32, "intermediate_size": 30},
}


def heads_of(model):
    return [
        (location, spectrum)
        for location, spectrum in measure(model, Selection(), jobs=1).leaves()
        if location.head is not None
    ]


def one_by_one(model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "LARGEST_STACK", 0)
        return heads_of(model)


def numbers(record):
    """All numbers in a record, depth first."""
    if is_dataclass(record):
        for field in fields(record):
            yield from numbers(getattr(record, field.name))
    elif isinstance(record, tuple):
        for part in record:
            yield from numbers(part)
    elif isinstance(record, np.ndarray | float | int):
        yield np.atleast_1d(np.asarray(record, dtype=float))


def assert_equal_heads(model, monkeypatch, tolerance=1e-11):
    fast, slow = heads_of(model), one_by_one(model, monkeypatch)
    assert len(fast) == len(slow) > 0
    for (location, spectrum), (_, expected) in zip(fast, slow, strict=True):
        assert (spectrum.scores is None) == (expected.scores is None)
        mine, theirs = (np.concatenate(list(numbers(record))) for record in (spectrum, expected))
        # Errors are those of the largest value.
        assert np.abs(mine - theirs).max() <= tolerance * np.abs(theirs).max(), location
        assert spectrum.values == pytest.approx(expected.values, rel=1e-9)
        assert spectrum.norm_11 == pytest.approx(expected.norm_11, rel=1e-13)
    return fast, slow


# Norms with and without a mean, biases, tensors stored either way, grouped queries, rotary planes.
@pytest.mark.parametrize("kind", WIDER)
def test_stacked_heads_have_the_numbers_of_single_ones(kind, monkeypatch):
    fast, slow = assert_equal_heads(open_model(tiny_model(kind, **WIDER[kind])), monkeypatch)
    assert {spectrum.route for _, spectrum in fast} == {"cholesky"}
    assert {spectrum.route for _, spectrum in slow} == {"qr"}
    assert any(spectrum.scores is not None for _, spectrum in fast)
    assert all(spectrum.applied is not None for _, spectrum in fast)


def state_of(heads=4, size=5, width=24, seed=0):
    rng = np.random.default_rng(seed)
    names = dict.fromkeys(("q", "k", "v"), (heads * size, width)) | {"o": (width, heads * size)}
    return {
        f"model.layers.0.self_attn.{name}_proj.weight": rng.standard_normal(shape)
        for name, shape in names.items()
    } | {
        "model.layers.0.mlp.up_proj.weight": rng.standard_normal((8, width)),
        "model.layers.0.mlp.gate_proj.weight": rng.standard_normal((8, width)),
        "model.layers.0.mlp.down_proj.weight": rng.standard_normal((width, 8)),
        "model.layers.0.input_layernorm.weight": 1 + 0.3 * rng.standard_normal(width),
        "model.layers.0.post_attention_layernorm.weight": np.ones(width),
    }


def routes(model):
    return {(place.kind, place.head): spectrum.route for place, spectrum in heads_of(model)}


def test_only_a_head_of_large_condition_is_factorised_by_itself(monkeypatch):
    state = state_of()
    query = state["model.layers.0.self_attn.q_proj.weight"]
    query[7] = query[6] * (1 + 1e-7)  # two rows of head 1
    query[10:15] = 0.0  # head 2 is zero
    query[15:20] *= 1e-20  # products of head 3 leave float32
    model = open_model(state, heads=4)
    assert [routes(model)["qk", head] for head in range(4)] == ["cholesky", "qr", "qr", "qr"]
    assert {route for (kind, _), route in routes(model).items() if kind == "vo"} == {"cholesky"}
    fast, slow = heads_of(model), one_by_one(model, monkeypatch)
    for (_, spectrum), (_, expected) in zip(fast, slow, strict=True):
        assert spectrum.values == pytest.approx(expected.values, rel=1e-9)


def test_a_gain_that_spoils_a_condition_sends_its_heads_to_qr(monkeypatch):
    state = state_of()
    state["model.layers.0.input_layernorm.weight"][4:] = 1e-9  # four of five directions are left
    model = open_model(state, heads=4)
    assert {route for (kind, _), route in routes(model).items() if kind == "qk"} == {"qr"}
    for (_, spectrum), (_, expected) in zip(heads_of(model), one_by_one(model, monkeypatch), strict=True):
        # The Cholesky factors of `factored` fail there too, so both are QR.
        assert spectrum.applied.values == pytest.approx(expected.applied.values, rel=1e-6)


def test_a_gain_past_float64_is_one_line():
    state = state_of()
    state["model.layers.0.input_layernorm.weight"][:] = 1e308
    with pytest.raises(InputError, match="too large for float64"):
        heads_of(open_model(state, heads=4))


@pytest.mark.parametrize("mean", [0.0, 1.0, 300.0])
def test_a_folded_mean_loses_no_digits(mean):
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((3, 6, 40)) + mean
    fold = NormFold(1 + 0.2 * rng.standard_normal(40), centred=True)
    if mean:  # the mean over inputs, with the gain, is what the norm subtracts
        factors /= fold.gain
    stack = FactorStack.of(factors, [0, 1, 2], fold)
    for factor, root in zip(factors, stack.folded, strict=True):
        expected, scale = triangular_factor(fold(factor.T))
        # Both are triangular factors of one Gram matrix: equal up to signs of rows.
        assert np.abs(root) == pytest.approx(np.abs(expected) * scale, abs=1e-11 * np.abs(expected).max())


def test_large_blocks_are_not_stacked(monkeypatch):
    model = open_model(state_of(), heads=4)
    monkeypatch.setattr(stacked, "_gram", None)
    monkeypatch.setattr(measuring, "LARGEST_STACK", 8 * 2 * 20 * 24)
    assert set(routes(model).values()) == {"qr"}
