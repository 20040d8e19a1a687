"""Mixtures of experts and latent attention against their own implementations, saved and in memory.

Every expert is read on its own: the router is made to send all tokens to one expert with weight one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import (
    Names,
    check_attention,
    check_norm,
    close,
    make,
    recording,
    require_transformers,
    tokens,
)
from checkpoints.small import LATENT, PLAIN, VOCABULARY
from checkpoints.spoiled import refusal
from safetensors.torch import load_file, save_file

from attnlaw import audit
from attnlaw.checkpoints.blocks import FeedForward
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model

SIZES = PLAIN | {"vocab_size": VOCABULARY, "num_experts_per_tok": 1}
GROUPED = SIZES | {"num_key_value_heads": 2}
DEEPSEEK = SIZES | LATENT
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
# class, sizes, layers with experts, weight of the shared expert (a sigmoid gate at 0 in Qwen2)
CASES: dict[str, tuple[str, dict[str, Any], list[int], float]] = {
    "mixtral": ("MixtralForCausalLM", GROUPED | {"num_local_experts": 3}, [0, 1], 0.0),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        GROUPED
        | {"num_experts": 3, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28}
        | {"mlp_only_layers": [0]},
        [1],
        0.5,
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        GROUPED | {"num_experts": 3, "moe_intermediate_size": 20},
        [0, 1],
        0.0,
    ),
    "deepseek_v3": ("DeepseekV3ForCausalLM", DEEPSEEK, [1], 1.0),
    "deepseek_v3 yarn": ("DeepseekV3ForCausalLM", DEEPSEEK | {"rope_parameters": YARN}, [1], 1.0),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        DEEPSEEK | {"q_lora_rank": None, "topk_method": "greedy", "routed_scaling_factor": 1.0},
        [1],
        1.0,
    ),
}


def apply(model: Model, block: FeedForward, x: np.ndarray) -> np.ndarray:
    assert block.gate
    gate = torch.nn.functional.silu(torch.from_numpy(x @ model.read(block.gate))).numpy()
    return (gate * (x @ model.read(block.inner))) @ model.read(block.outer)


def send_to(layer: Any, expert: int) -> Any:
    """Make the router of a layer choose one expert with weight one, whatever it is asked."""

    def forced(_module: Any, _inputs: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        logits, weights, indices = output
        return logits, torch.ones_like(weights), torch.full_like(indices, expert)

    return layer.mlp.gate.register_forward_hook(forced)


@pytest.mark.parametrize("case", CASES)
def test_every_expert_is_the_models_own(case: str, tmp_path: Path) -> None:
    class_name, sizes, routed, shared = CASES[case]
    if case.startswith("deepseek"):
        require_transformers("5.22", "a router of three outputs")
    module = make(class_name, **sizes)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("shared_expert_gate.weight"):
                parameter.zero_()
    module.save_pretrained(tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 24))
    for model in (open_model(tmp_path), open_model(module)):
        assert model.family == case.split()[0]
        assert model.warnings == (() if case != "qwen3_moe" else model.warnings[:1])
        assert "mixture of experts" in model.extensions
        assert [layer.index for layer in model.layers if layer.experts] == routed
        for index in routed:
            layer, theirs = model.layers[index], module.model.layers[index]
            assert len(layer.experts) == 3
            assert (layer.feed_forward is not None) == (shared > 0)
            base = shared * apply(model, layer.feed_forward, x) if layer.feed_forward else 0.0
            for number, expert in enumerate(layer.experts):
                handle = send_to(theirs, number)
                with torch.no_grad():
                    output = theirs.mlp(torch.from_numpy(x)[None])[0].numpy()
                handle.remove()
                close(base + apply(model, expert, x), output)


@pytest.mark.parametrize("case", CASES)
def test_attention_beside_experts(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms, scores and heads, latent attention too; and the norm that experts read."""
    class_name, sizes, routed, _ = CASES[case]
    module = make(class_name, **sizes)
    with recording(module, monkeypatch) as run:
        module(**tokens())
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    check_attention(model, run)
    for index in routed:
        (x,) = run.inputs[f"model.layers.{index}.mlp"]
        for expert in model.layers[index].experts:
            check_norm(model, expert.norm, x[0].numpy(), run, Names(model, module))


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize("case", ["deepseek_v3", "deepseek_v2", "qwen3_moe"])
def test_no_weights_of_a_router_add_up_to_more(case: str, renormalised: bool, tmp_path: Path) -> None:
    """The weights that reach the experts: random tokens stay below the sum; saturated sigmoids reach it."""
    require_transformers("5.22", "the weights as an argument of the experts")
    class_name, sizes, _, _ = CASES[case]
    changes = {"num_experts_per_tok": 2, "norm_topk_prob": renormalised, "routed_scaling_factor": 1.5}
    module = make(class_name, **sizes | changes)
    module.save_pretrained(tmp_path)
    limit = open_model(tmp_path).layers[1].router_sum
    part = module.model.layers[1].mlp
    seen: list[torch.Tensor] = []
    part.experts.register_forward_hook(lambda _m, args, _o: seen.append(args[2].sum(dim=-1).max()))
    with torch.no_grad():
        part(torch.randn(1, 50, 24, dtype=torch.float64, generator=torch.manual_seed(1)))
        part.gate.weight.copy_(torch.ones_like(part.gate.weight))
        part(torch.full((1, 1, 24), 40.0, dtype=torch.float64))
    top = float(torch.stack(seen).max())
    rounding = 4 * 2.0**-24  # routers compute in float32: two weights, their sum, the factor
    assert top <= limit * (1 + rounding)
    if case == "deepseek_v3":
        assert top == pytest.approx(limit, rel=rounding)


def test_the_stretch_of_positions_under_its_older_name(tmp_path: Path) -> None:
    """DeepSeek's own files say `rope_scaling`; 1.873854 = (ln(40) / 10 + 1)^2 is V3's factor."""
    make("DeepseekV3ForCausalLM", **DEEPSEEK).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"rope_parameters": None}
    for weight, expected in ((1.0, 1.873854), (0, 1.0), (None, 1.0)):
        stretch = {"type": "yarn", "factor": 40, "mscale_all_dim": weight}
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": stretch}))
        scale = open_model(tmp_path).layers[0].attention.scores.scale
        assert scale == pytest.approx(expected * 10**-0.5, rel=3e-7)  # heads of 6 + 4; seven digits
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": {"mscale_all_dim": "x"}}))
    refusal(tmp_path, "rope_scaling: mscale_all_dim is 'x', expected a positive number")


def test_latent_heads_are_thin_products_of_full_width(tmp_path: Path) -> None:
    module = make("DeepseekV3ForCausalLM", **DEEPSEEK)
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert {"latent attention", "rotary positions", "mixture of experts"} <= set(model.extensions)
    assert model.layers[1].router_sum == module.config.routed_scaling_factor == 2.5
    audit_result = audit(tmp_path, jobs=1)
    lengths = {kind: set() for kind in ("qk", "vo")}
    for kind, values in audit_result.spectra.select("kind", "singular_values").rows():
        if kind in lengths:
            lengths[kind].add(len(values))
    assert lengths == {"qk": {10}, "vo": {5}}  # 6 + 4 of keys, 5 of values
    names = audit_result.matrices.filter(layer=0, kind="qk", head=0)["tensors"][0].to_list()
    short = [name.split(".")[-2] for name in names]
    assert short == ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "kv_a_proj_with_mqa"]


def test_stacked_and_numbered_experts_give_the_same_rows(tmp_path: Path) -> None:
    module = make("MixtralForCausalLM", **CASES["mixtral"][1])
    module.save_pretrained(tmp_path / "numbered")
    (tmp_path / "stacked").mkdir()
    state = {name: value.contiguous() for name, value in module.state_dict().items()}
    save_file(state, tmp_path / "stacked" / "model.safetensors")
    module.config.save_pretrained(tmp_path / "stacked")
    numbered, stacked = (audit(tmp_path / name, name="m", jobs=1) for name in ("numbered", "stacked"))
    names = load_file(tmp_path / "numbered" / "model.safetensors")
    assert any("block_sparse_moe.experts.2.w1" in name for name in names)
    assert numbered.matrices.drop("tensors").equals(stacked.matrices.drop("tensors"))
    assert numbered.summary == stacked.summary
    rows = numbered.matrices.filter(kind="ffn_gate")
    assert rows["expert"].to_list() == [0, 1, 2] * 2
    assert rows["head"].null_count() == 6


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    """DeepSeek-V3's files hold one more layer than the model has."""
    module = make("DeepseekV3ForCausalLM", **DEEPSEEK)
    module.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    last = {name: value for name, value in state.items() if "layers.1." in name}
    extra = {name.replace("layers.1.", "layers.2."): value.clone() for name, value in last.items()}
    save_file(state | extra, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    for declared in (None, 0):
        (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": declared}))
        refusal(tmp_path, "expected 2 layers, found layers 0-2")
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    model = open_model(tmp_path)
    assert len(model.layers) == 2
    assert model.warnings == ("attnlaw leaves out the layers for multi-token prediction: 1",)


def experts(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    state = {f"self_attn.{name}_proj.weight": torch.randn(8, 8) for name in "qkvo"}
    for number in range(3):
        for name, shape in (("gate", (6, 8)), ("up", (6, 8)), ("down", (8, 6))):
            state[f"mlp.experts.{number}.{name}_proj.weight"] = torch.randn(shape)
    return {f"layers.0.{name}": value for name, value in (state | changes).items()}


def test_experts_that_do_not_fit() -> None:
    assert len(open_model(experts(), heads=2).layers[0].experts) == 3
    state = experts()
    del state["layers.0.mlp.experts.2.up_proj.weight"]
    refusal(state, "tensor layers.0.mlp.experts.2.up_proj.weight is missing", heads=2)
    state = experts() | {"layers.0.mlp.experts.1.down_proj.weight": torch.randn(9, 6)}
    refusal(state, "experts.1.up_proj.weight has 8 inputs, expected 9", heads=2)


def test_stacks_of_experts_that_do_not_fit() -> None:
    attention = {name: value for name, value in experts().items() if "self_attn" in name}
    stacks = {"gate_up_proj": torch.randn(3, 12, 8), "down_proj": torch.randn(3, 8, 6)}
    state = attention | {f"layers.0.mlp.experts.{name}": value for name, value in stacks.items()}
    assert len(open_model(state, heads=2).layers[0].experts) == 3
    fewer = state | {"layers.0.mlp.experts.down_proj": torch.randn(2, 8, 6)}
    refusal(fewer, "down_proj has 2 experts, expected 3", heads=2)
    flat = state | {"layers.0.mlp.experts.gate_up_proj": torch.randn(36, 8)}
    refusal(flat, "gate_up_proj has shape [36, 8]", "stack of matrices", heads=2)
