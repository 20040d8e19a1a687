"""Damaged fixtures end in one line, or in the right numbers if shapes decide, and never in wrong ones."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoints.quantization.damage import Checkpoint, damages
from checkpoints.quantization.fixtures import FOLDER, NAMES, difference, expected

from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

SAFETENSORS = [name for name in NAMES if (FOLDER / name / "model.safetensors").exists()]
# ModelOpt's shapes fix the group size, so one more column of scales is another checkpoint.
ANOTHER_CHECKPOINT = {("modelopt-int4-awq", "weight_scale: shape [128, 1] -> [128, 2]")}
A_FEW = 12
# HQQ's tensors that say nothing about the numbers.
HQQ_WORDS = (
    *("compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config", "channel_wise"),
    *("optimize", "round_zero", "quant_scale", "quant_zero", "unpack_view_dtype", "view_as_float"),
)


def outcome(name: str, folder: Path) -> str:
    """Whether a checkpoint is read right or wrong, or the one line in which it ends."""
    try:
        tensors = open_model(folder).tensors
        for weight in expected(name):
            assert weight in tensors.shapes, weight
            ours = tensors.read(weight)
            if np.isfinite(ours).all():  # `Model.read` raises an error if not
                assert difference(name, weight, ours) == 0, weight
    except InputError as error:
        message = str(error)
    else:
        return "right"
    assert "\n" not in message
    assert ";" in message, message  # what is wrong; what to do
    return message


def try_damages(name: str, folder: Path, some: int | None = None) -> dict[str, str]:
    """The outcomes of all damages of a fixture, or of some of them."""
    shutil.copytree(FOLDER / name, folder, dirs_exist_ok=True)
    every = [(what, copy) for what, copy in damages(name) if not is_another(name, what)]
    if some is not None:
        every = random.Random(name).sample(every, some)
    outcomes = {}
    for what, checkpoint in every:
        checkpoint.save(folder)
        try:
            outcomes[what] = outcome(name, folder)
        except Exception as error:
            raise AssertionError(f"{name}, {what}") from error
    return outcomes


def is_another(name: str, what: str) -> bool:
    return any(name == fixture and what.endswith(end) for fixture, end in ANOTHER_CHECKPOINT)


@pytest.mark.parametrize("name", SAFETENSORS)
def test_some_damages_of_each_fixture(name: str, tmp_path: Path) -> None:
    assert len(try_damages(name, tmp_path, A_FEW)) == A_FEW


@pytest.mark.slow
@pytest.mark.parametrize("name", SAFETENSORS)
def test_all_damages_of_each_fixture(name: str, tmp_path: Path) -> None:
    outcomes = try_damages(name, tmp_path)
    assert len(outcomes) >= 70
    assert sum(text != "right" for text in outcomes.values()) >= 40


@pytest.mark.parametrize("name", SAFETENSORS)
def test_every_part_is_needed(name: str, tmp_path: Path) -> None:
    """Dropping a part of a weight is an error, unless the part says nothing about the numbers."""
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    whole = Checkpoint.load(name)
    silent = ("bias", "g_idx", "input_scale", "output_scale", "weight_format", *HQQ_WORDS)
    weight = max(expected(name), key=lambda key: "q_proj" in key)
    base = weight.removesuffix("weight")
    parts = [key for key in whole.tensors if key.startswith(base) and not key.endswith(silent)]
    assert parts
    for part in parts:
        other = Checkpoint({key: value for key, value in whole.tensors.items() if key != part}, *rest(whole))
        other.save(tmp_path)
        with pytest.raises(InputError) as caught:
            open_model(tmp_path).tensors.read(weight)
        assert base.rstrip(".") in str(caught.value), part


def rest(checkpoint: Checkpoint) -> tuple[dict[str, str], dict[str, object]]:
    return checkpoint.texts, checkpoint.configs


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_that_is_cut(name: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    for path in [*tmp_path.glob("*.safetensors"), *tmp_path.glob("*.gguf")]:
        whole = path.read_bytes()
        for length in (0, 1, 7, 8, 100, len(whole) // 3, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(InputError) as caught:
                open_model(tmp_path)
            assert path.name in str(caught.value)
        path.write_bytes(whole)
