"""Whole models: every matrix against a reference of its own, the order of rows, threads, selection."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest
from checkpoints.small import llama_weights
from oracles import extended_svd
from real_checkpoints import real_checkpoint
from scipy.linalg import svdvals

from attnlaw.checkpoints.network import GROUPS
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.numerics.threads import usable_cores
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.bounds.proxies import why_no_proxies

# Above this condition number the formed product is no longer a reference to 1e-9 of the small values.
MODEST = 1e4
MODELS = ["rxnfp-pretrained", "rxnfp-finetuned", "rxnfp-10k", "minilm", "whisper-tiny.en", "rxnmapper"]


def measured(model, selection=None, jobs=1, **more):
    """The selected leaves: place and spectrum, in order."""
    tree = measure(model, selection or Selection(), jobs, **more)
    return [(location, spectrum) for location, spectrum in tree.leaves() if spectrum is not None]


def chosen(model, **words):
    """What settings choose of a model."""
    return Selection.from_settings(ModelSettings(model="m", **words), model.network)


def maps(read, layer, kind, head):
    """The factors of one matrix, sliced out of the maps one column at a time."""
    block = layer.cross if kind.startswith("cross_") else layer.attention
    ffn = layer.feed_forward
    if kind.startswith("ffn"):
        return (read({"ffn_in": ffn.inner, "ffn_gate": ffn.gate, "ffn_out": ffn.outer}[kind]),)
    size = block.query.shape[1] // block.heads
    shared = head // (block.heads // block.kv_heads)
    indices = [head * size + i for i in range(size)]
    kept = [shared * size + i for i in range(size)]
    if kind.endswith("qk"):
        return read(block.query)[:, indices], read(block.key)[:, kept].T
    return read(block.value)[:, kept], read(block.output)[indices, :]


def check_every_value(name, layers=None):
    """1e-12 s_1 everywhere and 1e-9 of itself above 1e-4 s_1, against a dense float64 SVD of the formed
    matrix; heads of large condition in extended precision besides, to d_head eps s_1 in every value.
    How many heads those were."""
    model = open_model(real_checkpoint(name))
    read = lru_cache(maxsize=4)(model.read)
    ill = 0
    for location, spectrum in measured(model, layers and chosen(model, layers=layers)):
        parts = maps(read, model.layers[location.layer], location.kind, location.head)
        formed = parts[0] @ parts[1] if len(parts) == 2 else parts[0]
        ours, dense = spectrum.values, svdvals(formed)
        kept, top = ours.size, dense[0]
        assert kept == (parts[0].shape[1] if len(parts) == 2 else min(formed.shape))
        assert np.max(np.abs(ours - dense[:kept])) <= 1e-12 * top
        assert np.max(dense[kept:], initial=0.0) <= 1e-12 * top
        large = dense[:kept] > 1e-4 * top
        assert np.max(np.abs(ours[large] / dense[:kept][large] - 1)) <= 1e-9
        assert spectrum.norm_21 == pytest.approx(np.linalg.norm(formed, axis=0).sum(), rel=1e-12)
        assert spectrum.norm_11 == pytest.approx(np.abs(formed).sum(), rel=1e-8)  # summed in float32
        if len(parts) == 2 and spectrum.condition > MODEST and extended_svd.PRECISE:
            ill += 1
            exact = extended_svd.product_values(*parts)
            assert np.max(np.abs(ours - exact)) <= kept * np.finfo(float).eps * top
    return ill


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rxnfp-finetuned", "minilm", "rxnmapper"])
def test_every_singular_value_of_the_first_layer_of_a_trained_model(name):
    check_every_value(name, layers="0")


@pytest.mark.slow
def test_every_singular_value_of_a_decoder_layer_with_heads_of_large_condition():
    assert check_every_value("whisper-tiny.en", layers="4") > 0 or not extended_svd.PRECISE


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_every_singular_value_of_every_matrix_of_a_trained_model(name):
    check_every_value(name)


def tiny(heads=4, kv_heads=2, hidden=8, size=3, width=10, layers=2, seed=0):
    """A LLaMA-style state dict with grouped queries and a gated feed-forward."""
    rng = np.random.default_rng(seed)
    tensors = llama_weights(rng, layers, heads, kv_heads, hidden, size, width)
    return tensors | {"model.embed_tokens.weight": rng.standard_normal((11, hidden))}


def test_rows_come_in_the_models_order_and_are_bit_identical_for_any_number_of_threads():
    model = open_model(tiny(layers=5), heads=4)
    seen = []
    serial = measured(model, progress=lambda done, total: seen.append((done, total)))
    two = measured(model, jobs=2)
    locations = [(location.layer, location.kind, location.head) for location, _ in serial]
    by_head = [(kind, head) for kind in ("qk", "vo") for head in range(4)]
    in_layer = [*by_head, ("ffn_in", None), ("ffn_gate", None), ("ffn_out", None)]
    assert locations == [(layer, kind, head) for layer in range(5) for kind, head in in_layer]
    assert [location for location, _ in serial] == [location for location, _ in two]
    for (_, first), (_, second) in zip(serial, two, strict=True):
        assert np.array_equal(first.values, second.values)
        assert (first.norm_21, first.norm_11) == (second.norm_21, second.norm_11)
    assert seen == [(done, 25) for done in range(1, 26)]


@pytest.mark.slow
def test_a_real_model_is_bit_identical_for_any_number_of_threads():
    model = open_model(real_checkpoint("rxnmapper"))
    serial, two = (measured(model, jobs=jobs) for jobs in (1, 2))
    for (_, first), (_, second) in zip(serial, two, strict=True):
        assert np.array_equal(first.values, second.values)
        assert first.norm_11 == second.norm_11


def test_grouped_queries_share_their_key_and_value_head():
    tensors = tiny(layers=1)
    layer = measure(open_model(tensors, heads=4), Selection(), jobs=1).layers[0]
    stored = {name.split(".")[-2]: tensor for name, tensor in tensors.items() if "layers.0" in name}
    for head in range(4):
        head_rows, shared = slice(3 * head, 3 * head + 3), slice(3 * (head // 2), 3 * (head // 2) + 3)
        qk = stored["q_proj"][head_rows].T @ stored["k_proj"][shared]
        vo = stored["v_proj"][shared].T @ stored["o_proj"][:, head_rows].T
        for spectrum, formed in ((layer.attention.qk[head], qk), (layer.attention.vo[head], vo)):
            assert spectrum.values == pytest.approx(svdvals(formed)[:3], abs=1e-12)
            assert spectrum.norm_21 == pytest.approx(np.linalg.norm(formed, axis=0).sum(), rel=1e-12)


@pytest.mark.parametrize(("jobs", "expected"), [(1, 1), (3, 3), (None, usable_cores())])
def test_as_many_threads_as_jobs(monkeypatch, jobs, expected):
    made = []

    def pool(workers):
        made.append(workers)
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr("attnlaw.numerics.threads.ThreadPoolExecutor", pool)
    measure(open_model(tiny(), heads=4), Selection(), jobs=jobs)
    assert made == [expected]


def test_a_selection_measures_what_it_names_and_nothing_else():
    model = open_model(tiny(layers=4), heads=4)
    rows = measured(model, chosen(model, layers="1:3", only="vo,embedding"))
    assert {(location.layer, location.kind) for location, _ in rows} == {
        (1, "vo"),
        (2, "vo"),
        (None, "embedding"),
    }
    location, spectrum = rows[-1]
    expected = svdvals(tiny(layers=4)["model.embed_tokens.weight"])
    assert spectrum.values == pytest.approx(expected, rel=1e-12)
    assert (location.stack, location.head) == (None, None)
    assert model.network.outside_layers[0][1].tensors == ("model.embed_tokens.weight",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("0", [0]),
        ("3", [3]),
        ("-1", [3]),
        (-1, [3]),
        ("-4", [0]),
        ("0:2", [0, 1]),
        (":", [0, 1, 2, 3]),
        ("2:", [2, 3]),
        ("::2", [0, 2]),
        ("-1:", [3]),
        ("1:99", [1, 2, 3]),
    ],
)
def test_layers_are_parsed_as_slices(text, expected):
    layers = ModelSettings(model="m", layers=text).chosen_layers(depth=4)
    assert (layers if layers is None else list(layers)) == expected


@pytest.mark.parametrize("text", ["", "x", "1:x", "1:2:3:4", "::0", "4", "-5", "2:2", "9:"])
def test_layers_that_cannot_be_meant_are_refused_in_one_line(text):
    with pytest.raises(BadSetting, match=f"^layers: found '{text}', ") as caught:
        ModelSettings(model="m", layers=text).chosen_layers(depth=4)
    assert "\n" not in str(caught.value)
    assert re.search(r"or numbers such as 0,1$|none of the 4 layers \(0 to 3\)$", str(caught.value))


def test_only_names_groups_once_each_and_refuses_others():
    model = open_model(tiny(), heads=4)
    assert chosen(model, only="vo,qk,vo").groups == ("vo", "qk")
    assert chosen(model, layers=0, only=["vo", "qk"]) == Selection(range(1), ("vo", "qk"))
    with pytest.raises(BadSetting, match=r"only: found 'mlp', expected some of qk, vo, cross, ffn"):
        ModelSettings(model="m", only="qk,mlp")


def test_only_a_whole_selection_serves_the_bounds():
    block = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)}
    tensors = {f"layers.{i}.self_attn.{name}": value for i in range(3) for name, value in block.items()}
    tensors |= {f"layers.{i}.linear{j}.weight": np.eye(4) for i in range(3) for j in (1, 2)}
    model = open_model(tensors, heads=2)
    whole = [(None, None), (None, ",".join(GROUPS)), ("0:3", None), (None, "qk,vo,ffn")]
    partial = [("0:2", None), (None, "qk,vo"), ("0:3", "ffn")]
    for cases, has_proxies in ((whole, True), (partial, False)):
        for layers, only in cases:
            tree = measure(model, chosen(model, layers=layers, only=only), jobs=1)
            assert (why_no_proxies(tree) is None) == has_proxies


def test_what_was_not_selected_keeps_its_place():
    """A gate that is not measured is still a gate."""
    model = open_model(tiny(), heads=4)
    tree = measure(model, chosen(model, only="qk"), jobs=1)
    assert [location for location, _ in tree.leaves()] == [location for location, _ in model.network.leaves()]
    assert tree.layers[0].feed_forward.gated
    assert {location.kind for location, spectrum in tree.leaves() if spectrum is not None} == {"qk"}


def test_a_selection_without_matrices_is_refused():
    with pytest.raises(InputError, match=r"no matrices of kind cross"):
        measure(open_model(tiny(), heads=4), Selection(groups=("cross",)), jobs=1)


def test_weights_past_float64_are_refused_by_name():
    tensors = tiny(layers=1)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.full((10, 8), 1e308)
    expected = r"ffn_in from .*up_proj.*is too large for float64; training has diverged: use an earlier"
    with pytest.raises(InputError, match=expected):
        measure(open_model(tensors, heads=4), Selection(), jobs=1)
