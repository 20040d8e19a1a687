"""GGUF models in several parts, and files that only their first bytes identify."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from checkpoints.spoiled import bert_state, refusal
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model

FIXTURES = Path(__file__).parent / "quantization" / "codes"
SPLIT = FIXTURES / "gguf-split"  # written by gguf's own writer, with at most four tensors in a file
PARTS = [f"model-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "split"
    folder.mkdir()
    for part in PARTS:
        shutil.copy(SPLIT / part, folder)
    return folder


def small_part(path: Path, number: int, count: int, total: int, names: list[str], layers: int = 1) -> None:
    """A part with tensors of ones, and with any header."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", layers)
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", count)
    writer.add_int32("split.tensors.count", total)
    for name in names:
        writer.add_tensor(name, np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("given", ["", *PARTS])
def test_any_part_or_the_directory_opens_all_parts(parts: Path, given: str) -> None:
    model = open_model(parts / given)
    expected = np.load(SPLIT / "expected.npz")
    assert len(expected.files) == 8
    for name in expected.files:
        assert np.array_equal(model.tensors.read(name), expected[name]), name
    plain = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}
    assert set(model.tensors.shapes) == {*expected.files, *plain}
    assert (len(model.layers), model.heads) == (1, 2)


@pytest.mark.parametrize("missing", PARTS)
def test_a_missing_part_is_named(parts: Path, missing: str) -> None:
    (parts / missing).unlink()
    refusal(parts, missing, "is missing", "download")


def test_a_part_that_is_there_twice(parts: Path) -> None:
    shutil.copy(parts / PARTS[1], parts / PARTS[2])
    refusal(parts, PARTS[2], "part 1 of 3", "expected 2 of 3", "download")


def test_a_part_of_a_model_in_more_parts(tmp_path: Path) -> None:
    small_part(tmp_path / "m-00001-of-00002.gguf", 0, 2, 2, ["a"])
    small_part(tmp_path / "m-00002-of-00002.gguf", 1, 3, 2, ["b"])
    refusal(tmp_path, "m-00002-of-00002.gguf", "part 1 of 3", "expected 1 of 2")


def test_parts_of_two_models(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    small_part(first, 0, 2, 2, ["a"])
    small_part(second, 1, 2, 3, ["b"])
    refusal(tmp_path, second.name, "3 tensors", "they have 2")
    small_part(second, 1, 2, 2, ["a"])
    refusal(tmp_path, first.name, second.name, "both have the tensor a")
    small_part(second, 1, 2, 2, ["b"], layers=2)
    refusal(tmp_path, second.name, "num_hidden_layers is 2, but 1")


def test_a_part_under_another_name(tmp_path: Path) -> None:
    shutil.copy(SPLIT / PARTS[0], tmp_path / "sha256-0f")
    refusal(tmp_path / "sha256-0f", "one of 3 parts", "llama-gguf-split --merge")


def test_a_part_behind_a_link_out_of_the_directory(parts: Path, tmp_path: Path) -> None:
    (parts / PARTS[1]).rename(tmp_path / "elsewhere.gguf")
    (parts / PARTS[1]).symlink_to(tmp_path / "elsewhere.gguf")
    refusal(parts, PARTS[1], "link", "copy")


def test_two_models_in_one_directory_are_still_two(parts: Path) -> None:
    for part in PARTS:
        shutil.copy(parts / part, parts / part.replace("model", "other"))
    refusal(parts, "several checkpoints", PARTS[0], "other-00001-of-00003.gguf")


@pytest.mark.parametrize("name", ["sha256-8f3a", "model.Q4_K_M", "model"])
def test_first_bytes_identify_a_gguf_file(tmp_path: Path, name: str) -> None:
    """Ollama keeps its models under such names."""
    source = FIXTURES / "gguf-types" / "model.gguf"
    shutil.copy(source, tmp_path / name)
    ours, twin = open_model(tmp_path / name), open_model(source)
    assert ours.family == twin.family
    assert all(np.array_equal(ours.tensors.read(x), twin.tensors.read(x)) for x in twin.tensors.shapes)


def test_first_bytes_identify_a_safetensors_file(tmp_path: Path) -> None:
    save_file(bert_state(), tmp_path / "weights")
    assert len(open_model(tmp_path / "weights", heads=2).layers) == 3


def test_first_bytes_never_identify_a_pickle(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "exploded",)  # type: ignore[return-value]

    torch.save(bert_state(), tmp_path / "zip")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": Bomb()}))
    for name in ("zip", "pickle"):
        refusal(tmp_path / name, "does not know the format (no ending)", ".safetensors", heads=2)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("first", [b"", b"GGU", b"{}", b"\xff" * 8 + b"{}", b"GGUF" + b"\xff" * 40])
def test_other_first_bytes_are_one_line(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "thing").write_bytes(first)
    refusal(tmp_path / "thing", "thing")
