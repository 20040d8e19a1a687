"""float8 and int8 weights with scales next to them, compared with the product formed entry by entry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints.spoiled import bert_state, config_with, refusal
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model

NAME = "encoder.layer.1.intermediate.dense.weight"  # 12 x 8
BASE = NAME.removesuffix(".weight")
# name -> (shape of the scale, the block that shares a scale)
GRIDS: dict[str, tuple[tuple[int, ...], tuple[int, int]]] = {
    "one number": ((), (12, 8)),
    "one number in a list": ((1,), (12, 8)),
    "one number in a matrix": ((1, 1), (12, 8)),
    "rows": ((12,), (1, 8)),
    "rows as a column": ((12, 1), (1, 8)),
    "columns": ((1, 8), (12, 1)),
    "blocks, the last one cut": ((2, 2), (8, 4)),
    "blocks of ModelOpt": ((3, 1, 2, 1), (4, 4)),
}
FLOAT8 = {"quant_method": "fp8", "weight_block_size": [8, 4]}
SCALES = ["weight_scale", "weight_scale_inv", "scale", "qscale_weight", "scale_weight"]


def state_with(codes: torch.Tensor, **parts: torch.Tensor) -> dict[str, torch.Tensor]:
    return bert_state() | {NAME: codes} | {f"{BASE}.{name}": part for name, part in parts.items()}


def codes_of(kind: torch.dtype) -> torch.Tensor:
    draw = 20 * torch.randn(12, 8, generator=torch.manual_seed(3))
    return draw.round().to(kind) if kind == torch.int8 else draw.to(kind)


def numbers(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.manual_seed(seed)) + 0.1


def by_hand(codes: torch.Tensor, scale: torch.Tensor, block: tuple[int, int], zero: float = 0) -> np.ndarray:
    values, scales = codes.float().numpy(), scale.float().numpy().reshape(-(-12 // block[0]), -1)
    out = np.zeros((12, 8), np.float32)
    for i in range(12):
        for j in range(8):
            out[i, j] = (values[i, j] - np.float32(zero)) * scales[i // block[0], j // block[1]]
    return out


def read(folder: Path, state: dict[str, torch.Tensor], **quantization: object) -> np.ndarray:
    save_file(state, folder / "model.safetensors")
    config_with(folder, quantization_config=quantization or FLOAT8)
    model = open_model(folder)
    assert set(model.tensors.shapes) == set(bert_state())
    return model.tensors.read(NAME)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_weight_is_its_code_times_its_scale(tmp_path: Path, grid: str, kind: torch.dtype) -> None:
    shape, block = GRIDS[grid]
    codes, scale = codes_of(kind), numbers(shape)
    assert np.array_equal(
        read(tmp_path, state_with(codes, weight_scale=scale), **FLOAT8), by_hand(codes, scale, block)
    )


@pytest.mark.parametrize("name", SCALES)
def test_every_name_of_a_scale(tmp_path: Path, name: str) -> None:
    codes, scale = codes_of(torch.float8_e4m3fn), numbers((12, 1))
    assert np.array_equal(read(tmp_path, state_with(codes, **{name: scale})), by_hand(codes, scale, (1, 8)))


def test_the_config_can_make_weight_scale_inv_a_divisor(tmp_path: Path) -> None:
    codes, scale = codes_of(torch.float8_e4m3fn), torch.tensor([0.25])
    state = state_with(codes, weight_scale_inv=scale)
    divided = read(tmp_path, state, quant_method="fp8", weight_scale_semantics="inverse")
    assert np.array_equal(divided, codes.float().numpy() * 4)
    config_with(tmp_path, quantization_config={"quant_method": "fp8", "weight_scale_semantics": "log"})
    refusal(tmp_path, "weight_scale_semantics is 'log'")


@pytest.mark.parametrize("kind", [torch.uint8, torch.float8_e8m0fnu])
def test_exponents_are_powers_of_two(tmp_path: Path, kind: torch.dtype) -> None:
    """As in MXFP8 of compressed-tensors: 127 is the factor 1. Byte 0 is 2^-127, and not zero."""
    codes = codes_of(torch.float8_e4m3fn)
    bytes_ = torch.arange(24, dtype=torch.uint8).reshape(12, 2) * 5 + 70
    bytes_[0, 0] = 0
    groups = {"group_0": {"weights": {"group_size": 4}}}
    config = {"quant_method": "compressed-tensors", "config_groups": groups}
    ours = read(tmp_path, state_with(codes, weight_scale=bytes_.view(kind)), **config)
    powers = torch.ldexp(torch.ones(12, 2), bytes_.int() - 127)
    assert powers[0, 0] == 2.0**-127
    assert np.array_equal(ours, by_hand(codes, powers, (1, 4)))


def test_an_exponent_that_is_not_a_number(tmp_path: Path) -> None:
    scale = torch.full((12, 1), 255, dtype=torch.uint8)
    state = state_with(codes_of(torch.float8_e4m3fn), weight_scale=scale)
    refusal(state, f"{NAME}_scale", "NaN", heads=2, read=True)


def test_zero_points_are_subtracted(tmp_path: Path) -> None:
    codes, scale = codes_of(torch.int8), numbers((12, 1))
    state = state_with(codes, weight_scale=scale, weight_zero_point=torch.full((12, 1), -7, dtype=torch.int8))
    assert np.array_equal(read(tmp_path, state), by_hand(codes, scale, (1, 8), zero=-7))


def test_a_zero_point_that_the_config_announces_must_be_there(tmp_path: Path) -> None:
    weights = {"num_bits": 8, "type": "int", "symmetric": False, "strategy": "channel"}
    save_file(state_with(codes_of(torch.int8), weight_scale=numbers((12, 1))), tmp_path / "model.safetensors")
    declared = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    config_with(tmp_path, quantization_config=declared)
    refusal(tmp_path, f"{NAME}_zero_point", "symmetric is false")


def test_deepseeks_blocks_are_128_wide_unless_stated(tmp_path: Path) -> None:
    shapes = {"q_proj": (256, 200), "k_proj": (256, 200), "v_proj": (256, 200), "o_proj": (200, 256)}
    state: dict[str, torch.Tensor] = {}
    draw = torch.manual_seed(1)
    for name, shape in shapes.items():
        at = f"model.layers.0.self_attn.{name}.weight"
        state[at] = torch.randn(shape, generator=draw).to(torch.float8_e4m3fn)
        state[f"{at}_scale_inv"] = torch.rand(2, 2, generator=draw)
    save_file(state, tmp_path / "model.safetensors")
    model = open_model(tmp_path / "model.safetensors", heads=4)
    name = "model.layers.0.self_attn.q_proj.weight"
    scale = torch.kron(state[f"{name}_scale_inv"], torch.ones(128, 128))[:256, :200]
    expected = (state[name].float() * scale).numpy().T
    assert np.array_equal(model.read(model.layers[0].attention.query), expected)


@pytest.mark.parametrize("shape", [(7, 3), (3, 3), (12, 2), (3, 2, 1), (8,), (12, 8, 1, 1)])
def test_a_scale_that_does_not_fit(tmp_path: Path, shape: tuple[int, ...]) -> None:
    state = state_with(codes_of(torch.float8_e4m3fn), weight_scale=numbers(shape))
    save_file(state, tmp_path / "model.safetensors")
    config_with(tmp_path, quantization_config=FLOAT8)
    refusal(tmp_path, f"{NAME}_scale", str(list(shape)), "[12, 8]", "8 x 4")


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_scales_that_are_no_numbers(kind: torch.dtype) -> None:
    state = state_with(codes_of(torch.float8_e4m3fn), weight_scale=torch.ones(12, 1).to(kind))
    refusal(state, f"{NAME}_scale is {str(kind).removeprefix('torch.')}", "exponents in uint8", heads=2)


def test_scales_that_are_not_finite() -> None:
    scale = numbers((12, 1))
    scale[5] = torch.nan
    state = state_with(codes_of(torch.float8_e4m3fn), weight_scale=scale)
    refusal(state, f"{NAME}_scale", "NaN", heads=2, read=True)


@pytest.mark.parametrize("first", ["weight_scale", "scale", None])
@pytest.mark.parametrize("second", ["weight.scale", "weight_scale_2", "weight_global_scale", "rescale"])
def test_a_scale_that_nothing_reads(first: str | None, second: str) -> None:
    parts = {name: torch.ones(1) for name in (first, second) if name}
    refusal(state_with(codes_of(torch.float8_e4m3fn), **parts), f"{BASE}.{second} belongs to", NAME, heads=2)


def test_two_known_scales_are_one_too_many() -> None:
    state = state_with(codes_of(torch.int8), weight_scale=torch.ones(1), weight_scale_inv=torch.ones(1))
    refusal(state, f"{NAME}_scale belongs to", heads=2)


def test_a_scale_next_to_plain_weights() -> None:
    refusal(bert_state() | {f"{NAME}_scale": torch.ones(1)}, f"{NAME}_scale belongs to", heads=2)


def test_scales_of_activations_and_of_other_modules_are_not_scales_of_weights() -> None:
    activations = ("input_scale", "output_scale", "input_global_scale", "k_scale", "v_scale")
    state = state_with(codes_of(torch.float8_e4m3fn), weight_scale=torch.ones(1))
    state |= {f"{BASE}.{name}": torch.ones(()) for name in activations}
    state |= {"logit_scale": torch.ones(()), "encoder.layer.0.layer_scale1.lambda1": torch.ones(8)}
    state = {f"scaled.{name}": value for name, value in state.items()}
    assert open_model(state, heads=2).tensors.shapes[f"scaled.{NAME}"] == (12, 8)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_without_a_scale_needs_the_users_word(kind: torch.dtype) -> None:
    state = state_with(codes_of(kind))
    refusal(state, f"{NAME} is {str(kind).removeprefix('torch.')} and has no scale", "--unscaled", heads=2)
    model = open_model(state, heads=2, unscaled=True)
    assert np.array_equal(model.tensors.read(NAME).astype(np.float32), state[NAME].float().numpy())
    assert any("--unscaled" in text for text in model.warnings)
