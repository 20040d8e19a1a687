"""Codes that attnlaw does not read, and files that describe codes next to config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.quantization.fixtures import FOLDER, difference, expected
from checkpoints.spoiled import bert_state, config_with, refusal, write_good
from safetensors.torch import load_file, save_file

from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.quantization.leftover import REASONS

BASE = "encoder.layer.0.attention.self.query"
# quant_method -> a tensor that files in this code have.
TENSORS = {"exl2": "q_weight", "exl3": "trellis", "quip": "Qidxs", "vptq": "centroids", "marlin": "qweight"}


@pytest.mark.parametrize("method", REASONS)
def test_a_known_code_that_is_not_read_has_its_reason(tmp_path: Path, method: str) -> None:
    write_good(tmp_path)
    tensor = f"{BASE}.{TENSORS.get(method, 'qweight')}"
    save_file(bert_state() | {tensor: torch.ones(8, 8, dtype=torch.int16)}, tmp_path / "model.safetensors")
    config_with(tmp_path, quantization_config={"quant_method": method})
    refusal(tmp_path, f"quant_method {method} (tensor {tensor})", REASONS[method], "attnlaw reads GPTQ, AWQ")


@pytest.mark.parametrize("method", ["exl2", "exl3", "quip", "vptq"])
def test_a_tensor_tells_the_code_without_a_config(method: str) -> None:
    tensor = f"{BASE}.{TENSORS[method]}"
    refusal(bert_state() | {tensor: torch.ones(4)}, f"{method} (tensor {tensor})", REASONS[method], heads=2)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "order of a GPU's tensor cores"),
        ({"quant_method": "gptq", "is_marlin_format": True}, "order of a GPU's tensor cores"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "order of a GPU's tensor cores"),
        ({"quant_method": "compressed-tensors", "transform_config": {"R1": {}}}, "rotated basis"),
        (
            {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}},
            "sparse matrix",
        ),
        ({"quant_method": "a code of tomorrow"}, "quant_method a code of tomorrow"),
    ],
)
def test_a_config_that_announces_what_is_not_read(tmp_path: Path, values: dict[str, Any], says: str) -> None:
    write_good(tmp_path)
    config_with(tmp_path, quantization_config=values)
    refusal(tmp_path, says, "use the original weights")


@pytest.mark.parametrize(
    ("codes", "scale", "says"), [((8, 6), (8, 2), "6-bit floats"), ((8, 4), (8, 1), "found no tensor")]
)
def test_floats_of_other_widths(codes: tuple[int, ...], scale: tuple[int, ...], says: str) -> None:
    """24 bytes for 32 inputs are 6-bit floats; a scale in e4m3 needs a second one."""
    kind = torch.uint8 if says.startswith("6") else torch.float8_e4m3fn
    parts = {
        f"{BASE}.weight_packed": torch.zeros((codes[0], 8 * codes[1]), dtype=torch.uint8),
        f"{BASE}.weight_scale": torch.ones(scale).to(kind),
    }
    state = bert_state()
    del state[f"{BASE}.weight"]
    refusal(state | parts, says, "original weights", heads=2)


def test_autorounds_small_exponents_are_not_read() -> None:
    parts = {
        f"{BASE}.weight_packed": torch.zeros((8, 16), dtype=torch.uint8),
        f"{BASE}.weight_scale": torch.ones((8, 2), dtype=torch.uint8),
    }
    state = bert_state()
    del state[f"{BASE}.weight"]
    refusal(state | parts, "e5m3", "original weights", heads=2)


SIDE_FILES = {
    "gptq-4-asym-act": "quantize_config.json",
    "awq-gemm": "quant_config.json",
    "autoround-4": "quantization_config.json",
}


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_file_next_to_config_json_describes_the_code(tmp_path: Path, name: str) -> None:
    config = json.loads((FOLDER / name / "config.json").read_text())
    described = config.pop("quantization_config")
    del described["quant_method"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((FOLDER / name / "model.safetensors").read_bytes())
    (tmp_path / SIDE_FILES[name]).write_text(json.dumps(described))
    tensors = open_model(tmp_path).tensors
    for weight in expected(name):
        assert difference(name, weight, tensors.read(weight)) == 0


def test_modelopts_own_file_says_that_columns_have_factors(tmp_path: Path) -> None:
    name = "modelopt-int4-awq"
    for file in (FOLDER / name).glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(FOLDER / name / "model.safetensors")
    save_file(
        {key: part for key, part in state.items() if "pre_quant" not in key}, tmp_path / "model.safetensors"
    )
    refusal(tmp_path, "pre_quant_scale", "download the file again")


def test_the_codes_are_next_to_the_family() -> None:
    model = open_model(FOLDER / "mlx-moe")
    assert (
        model.codes
        == "MLX 4-bit, groups of 32 (9 of 10 matrices); MLX 8-bit, groups of 64 (1 of 10 matrices)"
    )
    assert open_model(FOLDER / "original-moe").codes is None
    assert open_model(bert_state(), heads=2).codes is None


def test_a_weight_in_memory_is_decoded_like_one_in_a_file() -> None:
    name = "gptq-4-sym"
    tensors = open_model(dict(load_file(FOLDER / name / "model.safetensors")), heads=4).tensors
    for weight, values in expected(name).items():
        assert np.array_equal(tensors.read(weight).astype(np.float16), values.astype(np.float16))
