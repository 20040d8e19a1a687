"""float8 weights with the scales that quantisers store beside them, against the product formed by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.spoiled import CONFIG, bert_state, config_with, refusal
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model

NAME = "encoder.layer.1.intermediate.dense.weight"  # 12 x 8
SHAPES: dict[str, tuple[int, ...]] = {
    "one number": (),
    "one number in a list": (1,),
    "rows": (12,),
    "rows as a column": (12, 1),
    "blocks": (3, 2),  # of 5 x 4: the last rows of blocks are cut
}


def coded(scales: dict[str, torch.Tensor], suffix: str = "_scale") -> dict[str, torch.Tensor]:
    state = {name: value.to(torch.float8_e4m3fn) for name, value in bert_state().items()}
    return state | {name + suffix: value for name, value in scales.items()}


def by_hand(weight: torch.Tensor, scale: torch.Tensor) -> np.ndarray:
    values, scales = weight.double().numpy(), scale.double().numpy()
    out = np.zeros(values.shape)
    for i in range(12):
        for j in range(8):
            if scales.size == 1:
                factor = scales.ravel()[0]
            elif scales.ndim == 2 and scales.shape[1] == 2:
                factor = scales[i // 5, j // 4]
            else:
                factor = scales.ravel()[i]
            out[i, j] = values[i, j] * factor
    return out


@pytest.mark.parametrize("suffix", ["_scale", "_scale_inv"])
@pytest.mark.parametrize("layout", SHAPES)
def test_a_weight_is_its_code_times_its_scale(tmp_path: Path, layout: str, suffix: str) -> None:
    scale = torch.rand(SHAPES[layout], generator=torch.manual_seed(0)) + 0.1
    others = {name: torch.tensor(0.5) for name in bert_state() if "layer" in name}
    state = coded(others | {NAME: scale}, suffix)
    save_file(state, tmp_path / "model.safetensors")
    config_with(tmp_path, quantization_config={"quant_method": "fp8", "weight_block_size": [5, 4]})
    model = open_model(tmp_path)
    inner = model.layers[1].feed_forward
    assert inner
    assert inner.inner.tensor == NAME
    assert np.array_equal(model.read(inner.inner), by_hand(state[NAME], scale).T)
    query = model.layers[0].attention.query
    assert np.array_equal(model.read(query), state[query.tensor].double().numpy().T * 0.5)
    (said,) = [text for text in model.warnings if "activation" not in text]
    assert "few bits (float8_e4m3fn with scales)" in said


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
    blocks = torch.ones(128, 128, dtype=torch.float64)
    scale = torch.kron(state[f"{name}_scale_inv"].double(), blocks)[:256, :200]
    expected = (state[name].double() * scale).numpy().T
    assert np.array_equal(model.read(model.layers[0].attention.query), expected)


def test_a_scale_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    save_file(coded({NAME: torch.ones(7, 3)}), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    refusal(tmp_path, f"{NAME}_scale", "[7, 3]", "[12, 8]", "128 x 128", read=True)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.bool])
def test_scales_that_are_no_floating_numbers_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    """Microscaling formats keep exponents in bytes: 127 is the factor 1, and not 127."""
    save_file(coded({NAME: torch.ones(12, 1).to(kind)}), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    refusal(tmp_path, f"{NAME}_scale holds", str(kind).removeprefix("torch."), "dequantise", read=True)


def test_a_file_with_scales_that_are_exponents_of_two_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(coded({NAME: torch.full((12, 1), 127, dtype=torch.uint8)}), path)
    data = path.read_bytes()  # older libraries write no such type
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length].replace(b'"U8"', b'"F8_E8M0"')
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    refusal(tmp_path, str(path), read=True)


@pytest.mark.parametrize("known", ["_scale", "_scale_inv", ""])
@pytest.mark.parametrize("suffix", [".scale", "_scale_2", "_global_scale", "_quantizer._scale"])
def test_scales_under_other_names_are_refused(known: str, suffix: str) -> None:
    scales = {NAME: torch.ones(())}
    state = coded(scales, suffix) | (coded(scales, known) if known else {})
    refusal(state, f"{NAME}{suffix} stands beside", "_scale_inv, _scale alone", "dequantise", heads=2)


def test_scales_in_float8_under_other_names_are_refused() -> None:
    scale = torch.ones(1, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    refusal(coded({NAME: scale}, ".scale"), f"{NAME}.scale stands beside", heads=2)


def test_two_known_scales_are_one_too_many() -> None:
    scales = {NAME: torch.ones(())}
    refusal(coded(scales, "_scale") | coded(scales, "_scale_inv"), f"{NAME}_scale_inv stands beside", heads=2)


def test_scales_of_activations_and_modules_called_so_are_no_scales_of_weights() -> None:
    state: dict[str, Any] = coded({name: torch.ones(()) for name in bert_state()})
    state[NAME.replace("weight", "input_scale")] = torch.ones(())
    state = {f"scaled.{name}": value for name, value in state.items()}
    assert not any("without scales" in text for text in open_model(state, heads=2).warnings)


def test_a_product_that_overflows_is_one_line() -> None:
    state = coded({NAME: torch.tensor(1e308, dtype=torch.float64)})
    refusal(state, NAME, "NaN or infinite", heads=2, read=True)


def test_float8_without_scales_is_announced() -> None:
    model = open_model(coded({}), heads=2)
    assert any("float8 weights without scales" in text for text in model.warnings)
    assert open_model(bert_state(), heads=2).warnings == ("activation not stated: gelu assumed",)


def test_integer_codes_with_scales_are_refused(tmp_path: Path) -> None:
    state: dict[str, Any] = bert_state()
    state[NAME] = torch.ones(12, 8, dtype=torch.int8)
    state[f"{NAME}_scale"] = torch.ones(12, 1)
    save_file(state, tmp_path / "model.safetensors")
    config_with(tmp_path, quantization_config={"quant_method": "compressed-tensors"})
    refusal(tmp_path, "quantised", f"{NAME}_scale", "dequantise")
