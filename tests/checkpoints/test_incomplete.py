"""Checkpoints that lost a gain or a bias, which could be read as if the layer never had it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from attnlaw import InputError, audit, check

TINY = Path("examples/tiny-decoder")
AT = "transformer.h.1."


def without(folder: Path, *lost: str) -> Path:
    tensors: dict[str, NDArray[np.float32]] = load_file(TINY / "model.safetensors")
    kept = {name: array for name, array in tensors.items() if not name.endswith(lost)}
    assert kept.keys() < tensors.keys()
    save_file(kept, folder / "model.safetensors")
    config = json.loads((TINY / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("lost", "level"),
    [
        (f"{AT}ln_1.weight", "error"),
        (f"{AT}ln_2.bias", "error"),
        (f"{AT}attn.c_attn.bias", "error"),
        (f"{AT}mlp.c_proj.bias", "error"),
        ("transformer.ln_f.weight", "error"),
        ("wte.weight", "warning"),
    ],
)
def test_a_lost_vector_is_named(lost: str, level: str, tmp_path: Path) -> None:
    folder = without(tmp_path, lost)
    gate = check(folder, jobs=1)
    rows = gate.findings.filter(gate.findings["rule"] == "missing-tensor").select("level", "tensor").rows()
    assert rows == [(level, lost)]
    assert gate.exit_status == (3 if level == "error" else 0)
    assert any(f"tensor {lost} is missing" in warning for warning in audit(folder, jobs=1).warnings)


def test_a_norm_with_a_bias_alone_is_named_in_every_layer(tmp_path: Path) -> None:
    gate = check(without(tmp_path, "ln_1.weight"), jobs=1)
    missing = gate.findings.filter(gate.findings["rule"] == "missing-tensor")["tensor"].to_list()
    assert missing == [f"transformer.h.{layer}.ln_1.weight" for layer in range(4)]


@pytest.mark.parametrize(
    ("parts", "remedy"),
    [
        (
            ("parametrizations.weight.original0", "parametrizations.weight.original1"),
            "remove_parametrizations",
        ),
        (("parametrizations.weight.original", "parametrizations.weight.0._u"), "remove_parametrizations"),
        (("weight_g", "weight_v"), "remove_weight_norm"),
        (("weight_orig", "weight_mask"), "prune.remove"),
        (("weight_orig", "weight_u", "weight_v"), "remove_spectral_norm"),
    ],
)
def test_a_reparametrised_weight_is_named_with_what_makes_it_plain(
    parts: tuple[str, ...], remedy: str
) -> None:
    tensors = load_file(TINY / "model.safetensors")
    weight = tensors.pop(f"{AT}attn.c_attn.weight")
    tensors |= {f"{AT}attn.c_attn.{part}": weight for part in parts}
    with pytest.raises(InputError, match=rf"{AT}attn.c_attn.weight is stored as .*{remedy}"):
        audit(tensors, heads=4)


@pytest.mark.parametrize("lost", [("attn.c_attn.bias",), ("ln_1.bias", "ln_2.bias", "ln_f.bias"), (".bias",)])
def test_what_every_layer_lacks_is_not_missing(lost: tuple[str, ...], tmp_path: Path) -> None:
    gate = check(without(tmp_path, *lost), jobs=1)
    assert gate.findings.filter(gate.findings["rule"] == "missing-tensor").is_empty()
