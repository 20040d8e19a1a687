"""A module gives the same rows as its saved copy, for every supported type, in audits and monitors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import make, require_transformers
from checkpoints.test_family_table import TABLE
from polars.testing import assert_frame_equal
from safetensors.torch import load_file

from attnlaw import audit
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.training import SpectralMonitor

# Types of no family, and variants of one, that transformers names otherwise in memory than in files.
OTHERS = {
    "phimoe": TABLE.Small("PhimoeForCausalLM", TABLE.LOCAL),
    "dinov2 giant": TABLE.Small("Dinov2Model", TABLE.DINO | {"use_swiglu_ffn": True}, TABLE.pixels),
    "dinov2 with classes": TABLE.Small("Dinov2ForImageClassification", TABLE.DINO, TABLE.pixels),
    "granitemoeshared": TABLE.Small(
        "GraniteMoeSharedForCausalLM", TABLE.MOE | {"shared_intermediate_size": 16}
    ),
    "ernie4_5_moe": TABLE.Small("Ernie4_5_MoeForCausalLM", TABLE.EXPERTS),
}
TYPES = TABLE.TYPES | OTHERS
FEW = ("dinov2", "granitemoe", "phimoe")  # a name, a layout, and both


def small_module(name: str, folder: Path) -> Any:
    """A small model of a type, which is also saved in a folder."""
    require_transformers("5.22", "these models in float64")
    module = make(TYPES[name].kind, **TYPES[name].sizes)
    module.save_pretrained(folder)
    return module


@pytest.mark.parametrize("name", FEW)
def test_a_module_has_the_tensors_of_its_file(name: str, tmp_path: Path) -> None:
    """Against what `save_pretrained` wrote, bit for bit."""
    model = open_model(small_module(name, tmp_path))
    saved = load_file(tmp_path / "model.safetensors")
    assert set(model.tensors.shapes) == set(saved)
    for tensor, value in saved.items():
        assert np.array_equal(model.tensors.read(tensor), value.numpy()), tensor


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_modules_equal_files(name: str, tmp_path: Path) -> None:
    module = small_module(name, tmp_path)
    ours, expected = (audit(source, name="m", jobs=1) for source in (module, tmp_path))
    for table in ("matrices", "layers", "spectra"):
        assert_frame_equal(getattr(ours, table), getattr(expected, table), check_exact=True)
    assert ours.summary == expected.summary


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_monitor_measures_what_is_saved(name: str, tmp_path: Path) -> None:
    module = small_module(name, tmp_path / "saved")
    snapshot = SpectralMonitor(module, tmp_path / "run", quantities=["stable_rank"]).measure(0)
    expected = audit(tmp_path / "saved", jobs=1).matrices
    assert snapshot is not None
    assert snapshot.matrices.height == expected.height
    for column in ("kind", "layer", "head", "expert", "spectral_norm", "stable_rank"):
        assert snapshot.matrices[column].to_list() == expected[column].to_list()


def test_a_model_inside_another_module_has_its_saved_names(tmp_path: Path) -> None:
    module = small_module("granitemoe", tmp_path)
    wrapper = torch.nn.ModuleDict({"backbone": module, "head": torch.nn.Linear(24, 3)})
    names = set(open_model(wrapper, heads=4).tensors.shapes)
    saved = {f"backbone.{name}" for name in load_file(tmp_path / "model.safetensors")}
    assert names == saved | {"head.weight", "head.bias"}


def test_parts_of_a_tensor_are_not_copied(tmp_path: Path) -> None:
    """In memory the experts of a layer are one tensor. In a file each has its own, which are views here."""
    module = small_module("qwen3_moe", tmp_path)
    tensors = open_model(module).tensors
    assert len(tensors.shapes) > len(module.state_dict())
    stored = [part.detach().numpy() for part in module.parameters()]
    for name in tensors.shapes:
        assert any(np.shares_memory(tensors.read(name), part) for part in stored), name


def test_a_conversion_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small_module("granitemoe", tmp_path)

    def fails(*_: Any) -> None:
        raise KeyError("gate_up_proj\nsecond line")

    monkeypatch.setattr("transformers.core_model_loading.revert_weight_conversion", fails)
    with pytest.raises(
        InputError, match=r"transformers does not know under which names .*; save it with save_pretr"
    ):
        open_model(module)
