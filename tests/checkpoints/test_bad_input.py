"""Wrong weights, sizes, shapes and architectures: one line that says what was found and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.spoiled import LAYER, QUERY, bert_state, config_with, refusal, write_good
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_good(tmp_path)


def test_the_good_checkpoint_is_read(folder: Path) -> None:
    assert len(open_model(folder).layers) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [QUERY, "encoder.layer.2.output.dense.weight"])
def test_nan_and_infinite_weights(folder: Path, value: float, name: str) -> None:
    state = bert_state()
    state[name][3, 5] = value
    save_file(state, folder / "model.safetensors")
    refusal(folder, str(folder / "model.safetensors"), name, "1 NaN or infinite", read=True)


def test_infinities_of_both_signs(folder: Path) -> None:
    state = bert_state()
    state[QUERY][0, 0], state[QUERY][1, 1] = float("inf"), float("-inf")
    refusal(state, QUERY, "2 NaN or infinite", heads=2, read=True)


def test_large_but_finite_weights_are_no_error(folder: Path) -> None:
    state = {name: value.double() for name, value in bert_state().items()}
    state[QUERY].fill_(1e308)
    model = open_model(state, heads=2)
    assert np.all(model.read(model.layers[0].attention.query) == 1e308)


def test_integers_in_place_of_weights() -> None:
    state = bert_state()
    state[QUERY] = torch.ones(8, 8, dtype=torch.int8)
    refusal(state, QUERY, "integers (int8) instead of a weight", "original weights", heads=2)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(8, 8).to_sparse(),
        torch.ones(8, 8, device="meta"),
    ],
    ids=["sparse", "meta"],
)
def test_tensors_that_are_not_plain_arrays(tensor: torch.Tensor) -> None:
    refusal(bert_state() | {QUERY: tensor}, QUERY, "not a plain array", heads=2, read=True)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"hidden_size": 16}, ("query.weight", "8 inputs", "16 (hidden_size)")),
        ({"intermediate_size": 32}, ("output.dense.weight", "12 inputs", "32 (intermediate_size)")),
        ({"head_dim": 8}, ("4 inputs per head", "8 (head_dim)")),
        ({"num_key_value_heads": 1}, ("key.weight", "2 key/value heads", "1 (num_key_value_heads)")),
        ({"num_attention_heads": 3}, ("8 inputs", "not divisible by 3 heads")),
        ({"num_attention_heads": 16}, ("8 inputs", "not divisible by 16 heads")),
        ({"num_attention_heads": 0}, ("num_attention_heads is 0", "positive integer")),
        ({"num_attention_heads": "two"}, ("num_attention_heads is 'two'", "positive integer")),
        ({"num_hidden_layers": 2}, ("expected 2 layers", "found layers 0-2")),
        ({"num_hidden_layers": 4}, ("expected 4 layers", "found layers 0-2")),
        ({"num_hidden_layers": 10**12}, ("expected 1000000000000 layers",)),
        ({"num_attention_heads": None}, ("attnlaw cannot find the number", "--heads")),
        ({"model_type": "gpt2"}, ("names of bert", "says gpt2")),
    ],
    ids=str,
)
def test_a_config_that_contradicts_the_tensors(
    folder: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    config_with(folder, **changes)
    refusal(folder, str(folder), *parts)


def test_a_config_that_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[1, 2]")
    refusal(folder, str(folder / "config.json"), "JSON object")


def test_no_config_asks_for_the_heads(folder: Path) -> None:
    (folder / "config.json").unlink()
    refusal(folder, "attnlaw cannot find the number", "8 inputs", "pass --heads H")
    assert open_model(folder, heads=4).heads == 4
    refusal(folder, "not divisible by 3", heads=3)
    refusal(folder, "--heads 0", heads=0)


def test_heads_that_contradict_the_config(folder: Path) -> None:
    refusal(folder, "--heads 4", "says 2", "leave --heads out", heads=4)


@pytest.mark.parametrize("name", [QUERY, "encoder.layer.2.attention.output.dense.weight"])
@pytest.mark.parametrize("with_config", [True, False])
def test_a_missing_tensor(folder: Path, name: str, with_config: bool) -> None:
    state = bert_state()
    del state[name]
    save_file(state, folder / "model.safetensors")
    if with_config:
        refusal(folder, f"tensor {name} is missing", "incomplete")
    else:
        refusal(state, f"tensor {name} is missing", "incomplete", heads=2)


@pytest.mark.parametrize("name", ["intermediate.dense.weight", "output.dense.weight"])
def test_a_missing_feed_forward_tensor(name: str) -> None:
    state = bert_state()
    del state[LAYER.format(0) + name]
    refusal(state, f"tensor {LAYER.format(0) + name} is missing", heads=2)


def test_a_missing_tensor_in_the_only_layer(folder: Path) -> None:
    state = bert_state(1)
    del state["encoder.layer.0.attention.self.key.weight"]
    save_file(state, folder / "model.safetensors")
    config_with(folder, num_hidden_layers=1)
    refusal(folder, "tensor encoder.layer.0.attention.self.key.weight is missing")


def test_a_missing_layer(folder: Path) -> None:
    state = {name: value for name, value in bert_state().items() if ".1." not in name}
    save_file(state, folder / "model.safetensors")
    refusal(folder, "expected 3 layers", "found layers 0, 2")
    refusal(state, "expected 3 layers", "found layers 0, 2", heads=2)


@pytest.mark.parametrize(
    ("name", "shape", "parts"),
    [
        ("encoder.layer.1.attention.self.query.weight", (8, 9), ("9 inputs", "8 (hidden_size)")),
        ("encoder.layer.1.attention.self.query.weight", (6, 8), ("6 outputs", "expected 8")),
        ("encoder.layer.1.attention.self.key.weight", (6, 8), ("6 outputs", "2 query heads of size 4")),
        ("encoder.layer.1.attention.self.value.weight", (4, 8), ("4 outputs", "expected 8")),
        ("encoder.layer.2.attention.output.dense.weight", (9, 8), ("8 inputs", "expected 9")),
        ("encoder.layer.2.intermediate.dense.weight", (11, 8), ("11 outputs", "expected 12")),
        ("encoder.layer.2.output.dense.weight", (9, 12), ("8 inputs", "expected 9")),
        (QUERY, (64,), ("shape [64]", "expected a matrix")),
        (QUERY, (0, 8), ("shape [0, 8]", "expected a matrix")),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit(
    folder: Path, name: str, shape: tuple[int, ...], parts: tuple[str, ...]
) -> None:
    save_file(bert_state() | {name: torch.ones(shape)}, folder / "model.safetensors")
    layer = name.split(".attention.")[0].split(".intermediate.")[0].split(".output.")[0]
    refusal(folder, str(folder / "model.safetensors"), layer, *parts)


def test_linear_weights_under_the_names_of_gpt2(folder: Path) -> None:
    """nanoGPT's layout: read where no config.json says that it is GPT-2's."""
    at = "transformer.h.0.attn."
    state = {f"{at}c_attn.weight": torch.randn(24, 8), f"{at}c_proj.weight": torch.randn(8, 8)}
    model = open_model(state, heads=2)
    assert model.family == "nanogpt"
    value = model.read(model.layers[0].attention.value)
    assert np.array_equal(value, state[f"{at}c_attn.weight"][16:].numpy().astype(np.float64).T)
    save_file(state, folder / "model.safetensors")
    config_with(folder, model_type="gpt2", num_hidden_layers=None, n_head=2)
    refusal(folder, f"{at}c_attn.weight")


def test_a_nanogpt_checkpoint(tmp_path: Path) -> None:
    """As its train.py saves it: weights under `model`, sizes under `model_args`, compiled names."""
    shapes = {"attn.c_attn": (24, 8), "attn.c_proj": (8, 8), "mlp.c_fc": (32, 8), "mlp.c_proj": (8, 32)}
    names = [f"_orig_mod.transformer.h.{layer}." for layer in range(2)]
    state = {f"{at}{name}.weight": torch.randn(shape) for at in names for name, shape in shapes.items()}
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 8, "block_size": 16, "bias": False, "vocab_size": 9}
    loss = torch.tensor(1.5)
    torch.save(
        {"model": state, "model_args": sizes, "best_val_loss": loss, "iter_num": 3}, tmp_path / "ckpt.pt"
    )
    model = open_model(tmp_path)
    assert (model.family, model.heads, len(model.layers)) == ("nanogpt", 4, 2)
    inner = model.layers[1].feed_forward.inner
    assert np.array_equal(model.read(inner), state[f"_orig_mod.{inner.tensor}"].numpy().astype(np.float64).T)


@pytest.mark.parametrize(("depth", "taken"), [(1000, True), (1001, False)])
def test_the_depth_of_shared_layers_is_bounded(tmp_path: Path, depth: int, taken: bool) -> None:
    """No file bounds it, and the cost of a bound grows with its square."""
    at = "encoder.albert_layer_groups.0.albert_layers.0."
    names = ("attention.query", "attention.key", "attention.value", "attention.dense", "ffn", "ffn_output")
    save_file({f"{at}{name}.weight": torch.ones(4, 4) for name in names}, tmp_path / "model.safetensors")
    config = {"model_type": "albert", "num_attention_heads": 2, "num_hidden_layers": depth}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if taken:
        assert open_model(tmp_path).network.applications == (0,) * depth
    else:
        refusal(tmp_path, "num_hidden_layers is 1001, expected at most 1000")


def test_albert_groups_that_are_missing() -> None:
    names = ("attention.query", "attention.key", "attention.value", "attention.dense")
    at = "encoder.albert_layer_groups.{}.albert_layers.0.{}.weight"
    state = {at.format(group, name): torch.ones(8, 8) for group in (0, 2) for name in names}
    refusal(state, "expected 3 x 1 layers", "found layers 0.0, 2.0", heads=2)


def test_an_unknown_architecture(folder: Path) -> None:
    config_with(folder, model_type="mamba")
    state = {"backbone.layers.0.mixer.in_proj.weight": torch.ones(4, 4)}
    save_file(state, folder / "model.safetensors")
    refusal(
        folder,
        "does not know this architecture (model_type mamba)",
        "mixer.in_proj",
        "known families; describe them in a file, and pass --map",
    )


def test_a_stranger_with_known_names_is_announced(folder: Path) -> None:
    config_with(folder, model_type="newbert")
    assert open_model(folder).warnings == (
        "attnlaw does not know model type newbert; it treats the model as bert, because the tensor names fit",
        "the config does not state the activation; attnlaw assumes gelu",
    )


def test_matrices_that_are_left_out_are_announced() -> None:
    expert = "encoder.layer.1.experts.gate_up_proj"
    model = open_model(bert_state() | {expert: torch.ones(2, 8, 8)}, heads=2)
    assert model.warnings == (
        "the config does not state the activation; attnlaw assumes gelu",
        f"attnlaw leaves out 1 matrix inside the layers, such as {expert}",
    )


def test_two_models_in_one_file() -> None:
    state = {f"{side}.{name}": value for side in ("left", "right") for name, value in bert_state().items()}
    refusal(state, "several models", "'left.', 'right.'", heads=2)


def test_modules_with_different_heads() -> None:
    parts = torch.nn.ModuleList([torch.nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 4)])
    refusal(parts, "different numbers of heads (2, 4)", "each part")


LORA = {f"base_model.model.{LAYER.format(0)}attention.self.query.lora_A.weight": torch.ones(2, 8)}


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"])
def test_a_lora_adapter_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    refusal(tmp_path, str(tmp_path), "LoRA adapter", "--adapter")


def test_a_lora_adapter_file(tmp_path: Path) -> None:
    save_file(LORA, tmp_path / "adapter_model.safetensors")
    refusal(tmp_path / "adapter_model.safetensors", "LoRA adapter", "--adapter")
    torch.save(LORA, tmp_path / "adapter_model.bin")
    refusal(tmp_path / "adapter_model.bin", "LoRA adapter", "--adapter")


@pytest.mark.parametrize(
    "name",
    [
        "qweight",
        "qzeros",
        "g_idx",
        "SCB",
        "weight.absmax",
        "weight.quant_state.bitsandbytes__nf4",
        "weight_packed",
        "weight_scale_inv",
        "weight_scale_2",
    ],
)
def test_a_lonely_part_of_a_code(name: str) -> None:
    coded = f"encoder.layer.0.attention.self.query.{name}"
    refusal(bert_state() | {coded: torch.ones(2)}, coded, "original weights", heads=2)


@pytest.mark.parametrize("method", ["exl3", "vptq", "a code of tomorrow"])
def test_a_config_that_names_another_code(folder: Path, method: str) -> None:
    config_with(folder, quantization_config={"quant_method": method})
    refusal(folder, f"quant_method {method}", "attnlaw reads GPTQ, AWQ, ", "use the original weights")


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_a_config_that_names_a_code_and_plain_weights(folder: Path, method: str) -> None:
    config_with(folder, quantization_config={"quant_method": method})
    assert open_model(folder).family == "bert"
