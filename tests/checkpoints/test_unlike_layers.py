"""Models whose layers are unlike each other, or do more than QK and VO: against their own implementations.

Linear attention between softmax attention, gates, sinks, heads of several sizes, values that are the keys,
keys of earlier layers, experts that a router scales, norms inside blocks.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import SIZES, check, make, recording, require_transformers, tokens
from checkpoints.small import VOCABULARY
from checkpoints.spoiled import refusal
from safetensors.torch import load_file, save_file

from attnlaw import audit
from attnlaw.analysis.fit.effective_beta import effective_beta, effective_betas
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
GEMMA4 = SIZES | {
    "layer_types": [SLIDING, FULL],
    "global_head_dim": 12,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": VOCABULARY,
}
LLAMA4 = SIZES | {"num_local_experts": 3, "num_experts_per_tok": 2, "intermediate_size_mlp": 40}
QWEN = SIZES | {
    "num_hidden_layers": 4,
    "layer_types": [LINEAR, LINEAR, FULL, LINEAR],
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
}
ROUTED = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
OSS = SIZES | {"num_local_experts": 3, "num_experts_per_tok": 2}
XLNET = {"vocab_size": VOCABULARY, "d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 36}

# class, sizes, why there are no proxies (None: there are), what attnlaw says beyond a plain encoder
CASES: dict[str, tuple[str, dict[str, Any], str | None, set[str]]] = {
    "values are keys": (
        "Gemma4ForCausalLM",
        GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
        None,
        {"keys as values", "norms inside blocks"},
    ),
    "keys of earlier layers": (
        "Gemma4ForCausalLM",
        GEMMA4
        | {"num_hidden_layers": 5, "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL]}
        | {"num_kv_shared_layers": 2, "use_double_wide_mlp": True},
        "some layers use the keys and values of the layers 1-2",
        set(),
    ),
    "experts beside": (
        "Gemma4ForCausalLM",
        GEMMA4 | ROUTED | {"enable_moe_block": True, "top_k_experts": 2},
        "layers have blocks that the formulas do not cover (tensor router.per_expert_scale)",
        {"mixture of experts"},
    ),
    "inputs of layers": (
        "Gemma4ForCausalLM",
        GEMMA4 | {"hidden_size_per_layer_input": 6},
        "layers have blocks that the formulas do not cover (tensor per_layer_input_gate.weight)",
        set(),
    ),
    "scaled experts": (
        "Llama4ForCausalLM",
        LLAMA4 | {"interleave_moe_layer_step": 2, "no_rope_layers": [1, 0]},
        None,
        {"mixture of experts"},
    ),
    "no norms of queries": ("Llama4ForCausalLM", LLAMA4 | {"use_qk_norm": False}, None, set()),
    "gates": (
        "Qwen3NextForCausalLM",
        QWEN
        | ROUTED
        | {"shared_expert_intermediate_size": 28, "layer_types": [FULL] * 4, "mlp_only_layers": [0]},
        "gates multiply the output of the heads, and the formulas do not cover gates",
        {"gated attention"},
    ),
    "linear": (
        "Qwen3_5ForCausalLM",
        QWEN,
        "layers 0-1, 3 use linear attention and are not audited",
        {"gated attention"},
    ),
    "sinks": ("GptOssForCausalLM", OSS, None, {"attention sinks", "mixture of experts"}),
}


def opened(folder: Path, name: str, sizes: dict[str, Any]) -> tuple[torch.nn.Module, Model]:
    require_transformers("5.22", "these models in float64")
    module = make(name, **sizes)
    module.save_pretrained(folder)
    return module, open_model(folder)


def run_of(module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> Any:
    with recording(module, monkeypatch) as run:
        module(**tokens())
    return run


@pytest.mark.parametrize("case", CASES)
def test_each_is_the_models_own(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, sizes, unread, extensions = CASES[case]
    module, saved = opened(tmp_path, name, sizes)
    run = run_of(module, monkeypatch)
    for model in (saved, open_model(module)):
        check(model, run)
        assert model.network.unread == unread
        assert extensions <= set(model.extensions)


def without(model: Model, **changes: Any) -> Model:
    """The model with its attention changed in every layer."""
    layers = (
        dataclasses.replace(layer, attention=dataclasses.replace(layer.attention, **changes))
        for layer in model.layers
    )
    return dataclasses.replace(model, layers=tuple(layers))


@pytest.mark.parametrize(
    ("name", "sizes", "field"),
    [
        ("Qwen3_5ForCausalLM", QWEN, "gate"),
        ("Gemma4ForCausalLM", GEMMA4, "value_norm"),
        ("BitNetForCausalLM", {key: SIZES[key] for key in SIZES if key != "head_dim"}, "output_norm"),
    ],
)
def test_what_stands_between_the_maps_of_heads_is_told_and_needed(
    name: str, sizes: dict[str, Any], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, model = opened(tmp_path, name, sizes)
    run = run_of(module, monkeypatch)
    check(model, run)
    words = {
        "gate": "a gate (a sigmoid",
        "value_norm": "the model normalises values before",
        "output_norm": "the model has a norm",
    }
    assert any(words[field] in text for text in model.warnings)
    with pytest.raises(AssertionError):
        check(without(model, **{field: None}), run)


def test_sinks_and_alternating_experts_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, model = opened(tmp_path, "GptOssForCausalLM", OSS)
    run = run_of(module, monkeypatch)
    check(model, run)
    assert any("(an attention sink)" in text for text in model.warnings)
    assert not any("leaves out" in text for text in model.warnings)
    first = model.layers[0]
    scores = dataclasses.replace(first.attention.scores, sinks=None)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check(without(model, scores=scores), run)

    def halved(view: View) -> View:  # as if all gates stood before all inputs
        return dataclasses.replace(view, block=None, stride=None, start=view.start * view.shape[1])

    experts = (
        dataclasses.replace(expert, inner=halved(expert.inner), gate=halved(expert.gate))
        for expert in first.experts
    )
    wrong = dataclasses.replace(first, experts=tuple(experts))
    with pytest.raises(AssertionError):
        check(dataclasses.replace(model, layers=(wrong, *model.layers[1:])), run)


def test_layers_of_linear_attention_are_named_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    _, model = opened(tmp_path, "Qwen3_5ForCausalLM", QWEN)
    assert [layer.index for layer in model.layers] == [2]
    assert model.network.other_layers == (0, 1, 3)
    audit_result = audit(tmp_path, jobs=1)
    summary = audit_result.summary
    assert summary["warnings"][0] == "layers 0-1, 3 use linear attention and are not audited"
    assert audit_result.remark == "no proxies: layers 0-1, 3 use linear attention and are not audited"
    assert summary["proxies"] is None
    assert summary["log10_alpha"] is None
    assert (summary["layers"], summary["distinct_layers"]) == (4, 4)
    assert set(audit_result.matrices["layer"]) == set(audit_result.layers["layer"]) == {2}
    assert audit_result.layers["log10_alpha"].null_count() == 1
    query = load_file(tmp_path / "model.safetensors")["model.layers.2.self_attn.q_proj.weight"]
    key = load_file(tmp_path / "model.safetensors")["model.layers.2.self_attn.k_proj.weight"]
    # Of head 1: its query stands before its gate, and it reads the first of two key heads.
    expected = np.linalg.norm(query.numpy()[16:24].T @ key.numpy()[:8], 2)
    assert audit_result.matrices.filter(kind="qk", head=1)["spectral_norm"].item() == pytest.approx(expected)


@pytest.mark.slow
def test_numbers_of_layers_are_the_models_everywhere(tmp_path: Path) -> None:
    _, model = opened(tmp_path, "Qwen3_5ForCausalLM", QWEN)
    assert {beta.layer for beta in effective_betas(model)} == {2}
    assert effective_beta(model, 2, 1) == effective_betas(model)[1]
    with pytest.raises(InputError, match=r"no head 0 in layer 0; the model has layers 2 to 2"):
        effective_beta(model, 0, 0)
    for chosen in (2, "-2", "1:3"):
        assert set(audit(tmp_path, layers=chosen, jobs=1).matrices["layer"]) == {2}
    with pytest.raises(InputError, match="none of these layers has softmax attention"):
        audit(tmp_path, layers="0:2", jobs=1)
    with pytest.raises(InputError, match=r"none of the 4 layers \(0 to 3\)"):
        audit(tmp_path, layers=4, jobs=1)


def test_a_missing_layer_of_linear_attention_is_an_incomplete_checkpoint(tmp_path: Path) -> None:
    opened(tmp_path, "Qwen3_5ForCausalLM", QWEN)
    state = load_file(tmp_path / "model.safetensors")
    rest = {name: value for name, value in state.items() if "layers.1." not in name}
    save_file(rest, tmp_path / "model.safetensors")
    refusal(tmp_path, "expected 4 layers, found layers 0, 2-3", "download the checkpoint again")


def test_a_whole_layer_that_predicts_further_tokens_is_left_out(tmp_path: Path) -> None:
    """Qwen's files hold one beside the model, of the same names."""
    _, whole = opened(tmp_path, "Qwen3_5ForCausalLM", QWEN)
    state = load_file(tmp_path / "model.safetensors")
    layer_state = {name: value for name, value in state.items() if "layers.2." in name}
    extra = {
        name.replace("model.layers.2.", "mtp.layers.0."): value.clone() for name, value in layer_state.items()
    }
    save_file(state | extra, tmp_path / "model.safetensors")
    model = open_model(tmp_path)
    assert model.layers == whole.layers
    assert {*model.warnings} - {*whole.warnings} == {
        "attnlaw did not read the layers mtp.layers (7 matrices)"
    }


def test_sizes_of_some_layers_under_their_older_names(tmp_path: Path) -> None:
    """As the first Gemma 4 configs have them: one size for all layers that see all."""
    name, sizes, _, _ = CASES["values are keys"]
    _, expected = opened(tmp_path, name, sizes)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("per_layer_config") == {"1": {"head_dim": 12, "num_key_value_heads": 1}}
    for more, message in (
        ({"global_head_dim": 12, "num_global_key_value_heads": 1}, None),
        ({"global_head_dim": 16}, "12 inputs per head, but"),
        ({}, "1 key/value heads, but"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        if message is None:
            assert open_model(tmp_path).layers == expected.layers
        else:
            refusal(tmp_path, message)


def test_values_are_not_taken_for_keys_unless_the_config_says_so(tmp_path: Path) -> None:
    name, sizes, _, _ = CASES["values are keys"]
    opened(tmp_path, name, sizes)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"attention_k_eq_v": False}))
    refusal(tmp_path, "layers.1.self_attn.v_proj.weight is missing", "incomplete")


@pytest.mark.parametrize("chosen", [1, 2])
def test_no_sigmoids_that_scale_inputs_add_up_to_more(chosen: int, tmp_path: Path) -> None:
    """Saturated sigmoids reach the sum, one for each expert that is chosen."""
    module, model = opened(tmp_path, "Llama4ForCausalLM", LLAMA4 | {"num_experts_per_tok": chosen})
    router = module.model.layers[0].feed_forward.router
    with torch.no_grad():
        router.weight.copy_(torch.ones_like(router.weight))
        scores, _ = router(torch.full((1, 24), 40.0, dtype=torch.float64))
    assert float(scores.sum()) == pytest.approx(model.layers[0].router_sum, rel=1e-12)


# Classes, and the family that the names of a bare state dict must tell.
NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "XLNetLMHeadModel": (XLNET, "xlnet"),
    "Qwen3_5ForCausalLM": (QWEN, "qwen3_next"),
    "MiniMaxForCausalLM": (OSS | {"layer_types": [LINEAR, FULL]}, "minimax"),
    "GptOssForCausalLM": (OSS, "gpt_oss"),
    "Llama4ForCausalLM": (LLAMA4, "llama4"),
    "BitNetForCausalLM": ({key: SIZES[key] for key in SIZES if key != "head_dim"}, "bitnet"),
    "Gemma4ForCausalLM": (GEMMA4, "gemma4"),
    "LlamaForCausalLM": (SIZES, "llama"),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_alone_tell_the_family(name: str) -> None:
    sizes, family = NAMED[name]
    assert open_model(make(name, **sizes).state_dict(), heads=4).family == family
