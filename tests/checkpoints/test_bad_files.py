"""Damaged files, foreign pickles, wrong indices and paths: one line that says what to do."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.spoiled import QUERY, bert_state, refusal, write_good
from torch.torch_version import TorchVersion

from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_good(tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 40, 3000, -1])
def test_truncated_safetensors(folder: Path, kept: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refusal(folder, str(file), "not a complete safetensors file", "download it again")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights.gguf", "weights.onnx"])
def test_a_pointer_of_git_lfs(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    refusal(tmp_path, f"{file}: this is a Git LFS pointer and not the weights; run git lfs pull")


def test_a_safetensors_header_that_lies(folder: Path) -> None:
    header = json.dumps({QUERY: {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 99999]}}).encode()
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 256)
    refusal(folder, str(file), "not a complete safetensors file")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.2, 0.6, 0.99])
def test_truncated_pickles(tmp_path: Path, zipped: bool, part: float) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save(bert_state(), file, _use_new_zipfile_serialization=zipped)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    refusal(file, str(file), "not a complete PyTorch checkpoint", "download", heads=2)


@pytest.mark.parametrize("version", ["1.13.1", "2.9.1+cpu"])
def test_a_pytorch_with_known_holes_reads_no_pickle(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save(bert_state(), file)
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the pickle was read"))
    refusal(file, str(file), "2.10 or newer", f"this is {version}", "pip install --upgrade", heads=2)


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_pickles_never_end_in_a_traceback(tmp_path: Path, zipped: bool) -> None:
    file = tmp_path / "weights.pt"
    torch.save({QUERY: torch.ones(2, 2)}, file, _use_new_zipfile_serialization=zipped)
    whole = file.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(random.integers(1, 5)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        file.write_bytes(damaged[: random.integers(1, len(damaged) + 1)])
        try:
            open_model(file, heads=2)
        except InputError as error:
            refused += "\n" not in str(error)
    assert refused == 200  # the whole file itself is no model: one tensor of four


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.pt", "m.pth", "m.ckpt"])
@pytest.mark.parametrize("text", ["", "hello\n", "{}"])
def test_text_with_a_checkpoints_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    refusal(tmp_path / name, str(tmp_path / name), "not a complete", "download")


class Canary:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def with_torch(value: Any, path: Path) -> None:
    torch.save(value, path)


def with_legacy_torch(value: Any, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def with_pickle(value: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(value, protocol=2))


@pytest.mark.parametrize("save", [with_torch, with_legacy_torch, with_pickle])
def test_a_pickle_is_never_executed(tmp_path: Path, save: Callable[[Any, Path], None]) -> None:
    sprung, file = tmp_path / "sprung", tmp_path / "model.pt"
    save({"extra": Canary(sprung), QUERY: [1.0]}, file)
    refusal(file, str(file), "but attnlaw only loads plain", "state_dict")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Canary(sprung)))
    assert sprung.exists()  # the trap itself works


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"args": argparse.Namespace(lr=torch.optim.SGD), "model": bert_state()}, "torch.optim.sgd.SGD"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (torch.ones(3), "no named tensors"),
        ([1, 2], "no named tensors"),
        ({}, "no named tensors"),
        ({"state_dict": {}}, "no named tensors"),
        ({"epoch": 3}, "no named tensors"),
    ],
    ids=["namespace", "module", "tensor", "list", "empty", "empty state dict", "no tensors"],
)
def test_pickles_of_other_things(tmp_path: Path, value: Any, said: str) -> None:
    torch.save(value, tmp_path / "model.pt")
    refusal(tmp_path / "model.pt", str(tmp_path / "model.pt"), said, "state_dict")


def test_torchscript(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "model.pt"))
    refusal(tmp_path / "model.pt", "TorchScript", "state_dict")


def sharded(folder: Path, weight_map: Any) -> Path:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_a_missing_shard(folder: Path) -> None:
    names = list(bert_state())
    weight_map = dict.fromkeys(names, "a.safetensors") | {names[-1]: "b.safetensors"}
    index = sharded(folder, weight_map)
    refusal(folder, str(index), "'b.safetensors'", "missing", "download it into the same directory")


@pytest.mark.parametrize(
    "place", ["../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..", ".", ""]
)
def test_an_index_that_points_outside_its_directory(folder: Path, place: str) -> None:
    (folder / "sub").mkdir()
    index = sharded(folder, dict.fromkeys(bert_state(), place))
    refusal(folder, str(index), repr(place), "outside its directory")


def test_a_shard_without_its_tensor(folder: Path) -> None:
    index = sharded(folder, dict.fromkeys(bert_state(), "a.safetensors") | {"more": "a.safetensors"})
    refusal(folder, str(index), "tensor more", "a.safetensors", "download")


@pytest.mark.parametrize("weight_map", [None, [], {}, {"a": 3}, "text", {"a": "self.index.json"}])
def test_an_index_that_is_none(folder: Path, weight_map: Any) -> None:
    refusal(sharded(folder, weight_map), "index.json", "download it again")


def test_an_index_that_names_itself(folder: Path) -> None:
    index = sharded(folder, {QUERY: "model.safetensors.index.json"})
    refusal(folder, str(index), "another index")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00"])
def test_index_and_config_that_are_not_json(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refusal(folder, str(folder / "config.json"), "not valid JSON", "restore")
    index = sharded(folder, {})
    index.write_text(text)
    refusal(folder, str(index), "this is not an index")


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    refusal(tmp_path, str(tmp_path), "holds no checkpoint", "model.safetensors")
    refusal(tmp_path / "absent", str(tmp_path / "absent"), "no such file or directory")
    (tmp_path / "optimizer.pt").write_bytes(b"")
    refusal(tmp_path, "holds no checkpoint")
    (tmp_path / "model.h5").write_bytes(b"")
    refusal(tmp_path / "model.h5", "does not know the format .h5", ".safetensors")


def test_several_checkpoints_without_an_index(tmp_path: Path) -> None:
    for number in (1, 2):
        torch.save(bert_state(), tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
    refusal(tmp_path, "found several checkpoints but no index", "pytorch_model-00001-of-00002.bin")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_files_that_may_not_be_read(folder: Path, name: str) -> None:
    (folder / name).chmod(0)
    refusal(folder, "cannot be read (Permission denied)", "check its permissions")


def test_permissions_are_not_called_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for any user: the system's refusal, as `open` would raise it."""

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    torch.save(bert_state(), folder / "weights.pt")
    with monkeypatch.context() as patch:
        patch.setattr("attnlaw.checkpoints.formats.safetensors_file.safe_open", refused)
        refusal(folder / "model.safetensors", "cannot be read (Permission denied)", "check its permissions")
        patch.setattr(torch, "load", refused)
        refusal(folder / "weights.pt", "cannot be read (Permission denied)", "check its permissions")
        patch.setattr(Path, "read_text", refused)
        refusal(folder / "model.safetensors", "check its permissions")


@pytest.mark.parametrize("source", [3, None, [1.0]])
def test_objects_that_are_no_model(source: Any) -> None:
    refusal(source, "cannot read a model from", "state dict")


def test_an_empty_state_dict() -> None:
    refusal({}, "found no tensors; pass model.state_dict", "state_dict")
    refusal({"a": 3}, "found no tensors; pass model.state_dict", "state_dict")
