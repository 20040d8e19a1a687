"""The proxies of real and made models against published figures and a slow oracle in mpmath."""

import json
import math

import numpy as np
import pytest
from checkpoints.small import llama_weights
from mpmath import log10, mp
from oracles import bounds as oracle
from real_checkpoints import audited, real_checkpoint
from safetensors.numpy import load_file, save_file

from attnlaw import audit

# What the dense route's round-off leaves in a logarithm: far below 1e-9 of it.
CLOSE = 1e-9


def torch_state(path, key=None):
    import torch

    stored = torch.load(path, map_location="cpu", weights_only=True)
    stored = stored[key] if key else stored
    return {name: tensor.double().numpy() for name, tensor in stored.items() if tensor.is_floating_point()}


def logarithm(value):
    """log10 of an mpmath number: of a plain one wherever float64 holds it, which is much faster."""
    plain = float(value)
    return math.log10(plain) if 1e-290 < plain < 1e290 else float(log10(value))


def assert_equal(audit_result, expected, proxies="proxies"):
    """Every proxy, alpha and row of an audit against the oracle, in log10 to 1e-9 relative."""
    proxies = audit_result.summary[proxies]
    for name in ("spectrum_adaptive", "edelman", "trauger_tewari"):
        assert proxies[name]["log10"] == pytest.approx(logarithm(expected[name]), rel=CLOSE), name
    for p, value in expected["fixed"].items():
        assert proxies["fixed_p"][str(p)]["log10"] == pytest.approx(logarithm(value), rel=CLOSE), p


def assert_rows_equal(audit_result, expected):
    alpha = [logarithm(value) for value in expected["alpha"]]
    assert audit_result.summary["log10_alpha"] == pytest.approx(alpha, rel=CLOSE, abs=CLOSE)
    assert audit_result.summary["value_of_adaptivity"] == pytest.approx(
        float(expected["adaptivity"]), rel=CLOSE
    )
    rows = audit_result.matrices.rows(named=True)
    assert len(rows) == len(expected["rows"])
    for row, other in zip(rows, expected["rows"], strict=True):
        assert (row["layer"], row["kind"], row["head"]) == (other["layer"], other["kind"], other["head"])
        assert row["p"] == pytest.approx(other["p"], abs=1e-12)
        for name in ("gamma", "alpha", "scale"):
            assert row[f"log10_{name}"] == pytest.approx(logarithm(other[name]), rel=CLOSE, abs=CLOSE)
        curve = np.array([logarithm(value) for value in other["curve"]])
        ours = np.array(row["log10_curve"])
        assert ours.shape == curve.shape
        assert (np.abs(ours - curve) <= CLOSE * np.maximum(np.abs(curve), 1.0)).all()
        assert row["log10_contribution"] == pytest.approx(curve.min(), rel=CLOSE)


@pytest.mark.slow
def test_rxnfp_against_its_published_figures():
    """PyPI package rxnfp 0.1.0, bert_pretrained: values by the scripts published with arXiv 2605.07297."""
    audit_result = audited("rxnfp-pretrained")
    proxies = audit_result.summary["proxies"]
    assert proxies["spectrum_adaptive"]["log10"] == pytest.approx(np.log10(18435.4641016151), rel=CLOSE)
    assert proxies["edelman"]["log10"] == pytest.approx(np.log10(4.441569743771e38), rel=CLOSE)
    assert audit_result.summary["log10_alpha"][0] == pytest.approx(np.log10(1.055783199148e34), rel=CLOSE)
    assert audit_result.summary["rank_count"]
    assert audit_result.matrices["p"].to_list() == [0.0] * 120
    assert audit_result.summary["value_of_adaptivity"] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.slow
def test_rxnfp_pretrained_and_fine_tuned_count_the_same_ranks():
    """With every rank full, 8 head products and 2 feed-forward matrices in each of 12 layers, N = 256."""
    by_hand = 12 * (8 * np.sqrt(64 * 256) + 2 * 256) + np.sqrt(12)
    for name in ("rxnfp-pretrained", "rxnfp-finetuned"):
        log10_proxy = audited(name).summary["proxies"]["spectrum_adaptive"]["log10"]
        assert log10_proxy == pytest.approx(np.log10(by_hand), rel=1e-12)


@pytest.mark.long
def test_rxnfp_fine_tuned_against_the_oracle():
    folder = real_checkpoint("rxnfp-finetuned")
    state = torch_state(folder / "pytorch_model.bin")
    expected = oracle.evaluate(oracle.bert(state, 12, 4, prefix=""), range(12), 256, 1.13)
    audit_result = audited("rxnfp-finetuned")
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)


@pytest.mark.slow
def test_two_layers_of_whisper_with_cross_attention_against_the_oracle(tmp_path):
    import torch

    whole = torch.load(
        real_checkpoint("whisper-tiny.en") / "tiny.en.pt", map_location="cpu", weights_only=True
    )
    state = {
        name: tensor
        for name, tensor in whole["model_state_dict"].items()
        if ".blocks." not in name or ".blocks.0." in name
    }
    dims = whole["dims"] | {"n_audio_layer": 1, "n_text_layer": 1}
    torch.save({"dims": dims, "model_state_dict": state}, tmp_path / "tiny.pt")
    layers = oracle.whisper({name: tensor.double().numpy() for name, tensor in state.items()}, 1, 1, 6)
    expected = oracle.evaluate(layers, range(2), 384, 1.13)
    audit_result = audit(tmp_path / "tiny.pt", jobs=1)
    assert "cross attention" in audit_result.summary["extensions"]
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)


@pytest.mark.slow
def test_minilm_against_the_oracle():
    folder = real_checkpoint("minilm")
    expected = oracle.evaluate(
        oracle.bert(load_file(folder / "model.safetensors"), 6, 12, prefix=""), range(6), 384, 1.13
    )
    audit_result = audited("minilm")
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)


@pytest.mark.long
def test_whisper_with_cross_attention_against_the_oracle():
    folder = real_checkpoint("whisper-tiny.en")
    state = torch_state(folder / "tiny.en.pt", "model_state_dict")
    expected = oracle.evaluate(oracle.whisper(state, 4, 4, 6), range(8), 384, 1.13)
    audit_result = audited("whisper-tiny.en")
    assert "cross attention" in audit_result.summary["extensions"]
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)


@pytest.mark.slow
def test_a_shared_layer_against_the_oracle_in_both_counts():
    folder = real_checkpoint("rxnmapper")
    layers = oracle.albert(torch_state(folder / "pytorch_model.bin"), heads=8)
    expected = oracle.evaluate(layers, [0] * 12, 256, 1.13)
    audit_result = audited("rxnmapper")
    assert "shared layers" in audit_result.summary["extensions"]
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)
    each = oracle.evaluate(layers, [0] * 12, 256, 1.13, per_application=True)
    assert_equal(audit_result, each, proxies="per_application")


def made_bert(layers, hidden, width, decay, size, seed=0):
    """A BERT state dict whose matrices have power-law spectra, `size` k^-`decay`."""
    rng = np.random.default_rng(seed)
    shapes = {
        **{f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")},
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (width, hidden),
        "output.dense": (hidden, width),
    }
    state = {}
    for index in range(layers):
        for name, (rows, cols) in shapes.items():
            rank = min(rows, cols)
            left = np.linalg.qr(rng.standard_normal((rows, rank)))[0]
            right = np.linalg.qr(rng.standard_normal((cols, rank)))[0]
            values = size * np.arange(1.0, rank + 1) ** (-decay * rng.uniform(0.5, 1.5))
            state[f"bert.encoder.layer.{index}.{name}.weight"] = (left * values) @ right.T
    return state


def test_a_shallow_model_with_decaying_spectra_takes_many_indices():
    state = made_bert(layers=2, hidden=48, width=96, decay=1.5, size=1.1)
    expected = oracle.evaluate(oracle.bert(state, 2, 4), range(2), 48, 1.13)
    audit_result = audit(state, heads=4, jobs=1)
    assert audit_result.matrices["p"].n_unique() >= 6
    assert not audit_result.summary["rank_count"]
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)
    assert audit_result.summary["value_of_adaptivity"] > 1.001


@pytest.mark.slow
def test_eighty_layers_pass_float64_and_stay_finite():
    state = made_bert(layers=80, hidden=16, width=32, decay=0.3, size=5.0)
    expected = oracle.evaluate(oracle.bert(state, 80, 1), range(80), 16, 1.13)
    assert expected["alpha"][0] > mp.mpf(10) ** 308
    audit_result = audit(state, heads=1, jobs=1)
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)
    assert audit_result.summary["proxies"]["edelman"]["log10"] > 308
    assert audit_result.matrices["log10_scale"].is_finite().all()


@pytest.mark.parametrize("gain", [0.2, 1.0])
def test_grouped_queries_and_a_gate_against_the_oracle(gain):
    drawn = llama_weights(np.random.default_rng(0), 3, heads=6, kv_heads=2, hidden=24, size=5, width=40)
    state = {name: gain * weight / np.sqrt(weight.shape[1]) for name, weight in drawn.items()}
    expected = oracle.evaluate(oracle.llama(state, 3, 6, 2), range(3), 24, 1.10)
    audit_result = audit(state, heads=6, jobs=1)
    assert {"grouped-query attention", "gated feed-forward"} <= set(audit_result.summary["extensions"])
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)


def test_shared_groups_of_layers_against_the_oracle(tmp_path):
    """Two groups, six applications: 0 0 0 1 1 1."""
    rng = np.random.default_rng(5)
    shapes = {
        "attention.query": (12, 12),
        "attention.key": (12, 12),
        "attention.value": (12, 12),
        "attention.dense": (12, 12),
        "ffn": (20, 12),
        "ffn_output": (12, 20),
    }
    state = {
        f"albert.encoder.albert_layer_groups.{group}.albert_layers.0.{name}.weight": 0.3
        * rng.standard_normal(shape)
        for group in range(2)
        for name, shape in shapes.items()
    }
    config = {"model_type": "albert", "num_hidden_layers": 6, "num_hidden_groups": 2, "hidden_size": 12}
    config |= {"num_attention_heads": 3, "hidden_act": "gelu_new"}
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    second = {name.replace("groups.1.", "groups.0."): w for name, w in state.items() if "groups.1." in name}
    layers = oracle.albert(state, 3) + oracle.albert(second, 3)
    audit_result = audit(tmp_path, jobs=1)
    expected = oracle.evaluate(layers, [0, 0, 0, 1, 1, 1], 12, 1.13)
    assert_equal(audit_result, expected)
    assert_rows_equal(audit_result, expected)
    each = oracle.evaluate(layers, [0, 0, 0, 1, 1, 1], 12, 1.13, per_application=True)
    assert_equal(audit_result, each, proxies="per_application")
