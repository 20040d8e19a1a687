"""Every format gives the same tensors: one small model, saved in every way that training programs use."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.formats import FORMATS, Format
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import InMemoryTensors
from attnlaw.core.errors import InputError

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def bert() -> transformers.BertModel:
    torch.manual_seed(5)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 24}
    return transformers.BertModel(transformers.BertConfig(vocab_size=30, max_position_embeddings=8, **sizes))


@pytest.fixture(scope="module")
def state(bert: transformers.BertModel) -> State:
    return {name: value.contiguous() for name, value in bert.state_dict().items()}


def views(model: Model) -> list[View]:
    candidates = [model.embedding_view]
    for layer in model.layers:
        assert layer.feed_forward
        block = layer.attention
        candidates += [block.query, block.key, block.value, block.output]
        candidates += [layer.feed_forward.inner, layer.feed_forward.outer]
    return [view for view in candidates if view]


def check(model: Model, state: State) -> None:
    assert (len(model.layers), model.hidden_size, model.heads) == (3, 16, 2)
    assert len(views(model)) == 19
    for view in views(model):
        stored = state[view.tensor].to(torch.float64).numpy()
        read = model.read(view)
        assert read.dtype == np.float64
        assert np.array_equal(read, stored.T if view.stored_out_in else stored)


def write_shards(folder: Path, state: State, stem: str, ending: str, save: Callable[..., Any]) -> Path:
    """Three shards and their index, as `save_pretrained` writes them."""
    shards: list[State] = [{}, {}, {}]
    weight_map = {}
    for place, (name, value) in enumerate(state.items()):
        file = f"{stem}-{place % 3 + 1:05d}-of-00003.{ending}"
        shards[place % 3][name] = value
        weight_map[name] = file
    for number, shard in enumerate(shards, start=1):
        save(shard, folder / f"{stem}-{number:05d}-of-00003.{ending}")
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def legacy(value: Any, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def nested(key: str) -> Callable[[State, Path], None]:
    def save(state: State, path: Path) -> None:
        optimizer = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-3}]}
        torch.save({"epoch": 3, "optimizer": optimizer, key: state}, path)

    return save


def lightning(state: State, path: Path) -> None:
    torch.save({"state_dict": {f"model.{name}": value for name, value in state.items()}}, path)


FILES: dict[str, tuple[str, Callable[[State, Path], None]]] = {
    "safetensors": ("model.safetensors", save_file),
    "bin": ("pytorch_model.bin", torch.save),
    "pt": ("weights.pt", torch.save),
    "pth": ("weights.pth", torch.save),
    "ckpt": ("last.ckpt", torch.save),
    "legacy bin": ("pytorch_model.bin", legacy),
    "under state_dict": ("last.ckpt", nested("state_dict")),
    "under model": ("last.pt", nested("model")),
    "under model_state_dict": ("last.pth", nested("model_state_dict")),
    "legacy under model": ("last.pt", lambda state, path: legacy({"model": state, "epoch": 1}, path)),
    "twice nested": ("last.pt", lambda state, path: torch.save({"model": {"state_dict": state}}, path)),
}


@pytest.mark.parametrize("case", FILES)
def test_one_file(case: str, tmp_path: Path, bert: transformers.BertModel, state: State) -> None:
    name, save = FILES[case]
    bert.config.save_pretrained(tmp_path)
    save(state, tmp_path / name)
    check(open_model(tmp_path / name), state)
    check(open_model(tmp_path), state)
    (tmp_path / "config.json").unlink()
    check(open_model(str(tmp_path / name), heads=2), state)


def test_a_prefix_in_front_of_the_names(tmp_path: Path, state: State) -> None:
    lightning(state, tmp_path / "last.ckpt")
    model = open_model(tmp_path / "last.ckpt", heads=2)
    assert model.layers[0].attention.query.tensor == "model.encoder.layer.0.attention.self.query.weight"
    prefixed = {f"model.{name}": value for name, value in state.items()}
    check(model, prefixed)


@pytest.mark.parametrize(
    ("stem", "ending", "save"),
    [
        ("model", "safetensors", save_file),
        ("pytorch_model", "bin", torch.save),
        ("pytorch_model", "bin", legacy),
    ],
)
def test_shards(
    stem: str,
    ending: str,
    save: Callable[..., Any],
    tmp_path: Path,
    bert: transformers.BertModel,
    state: State,
) -> None:
    bert.config.save_pretrained(tmp_path)
    index = write_shards(tmp_path, state, stem, ending, save)
    check(open_model(tmp_path), state)
    check(open_model(index), state)


def test_shards_may_be_links_to_a_store_elsewhere(
    tmp_path: Path, bert: transformers.BertModel, state: State
) -> None:
    """The layout of a hub cache: a snapshot of links to content kept in another directory."""
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    store.mkdir()
    snapshot.mkdir()
    bert.config.save_pretrained(store)
    write_shards(store, state, "model", "safetensors", save_file)
    for number, file in enumerate(sorted(store.iterdir())):
        blob = file.rename(store / f"blob{number}")
        (snapshot / file.name).symlink_to(Path("..") / "blobs" / blob.name)
    check(open_model(snapshot), state)


def test_save_pretrained_in_shards(tmp_path: Path, bert: transformers.BertModel, state: State) -> None:
    bert.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    check(open_model(tmp_path), state)


def test_a_directory_prefers_safetensors_and_leaves_the_rest_alone(
    tmp_path: Path, bert: transformers.BertModel, state: State
) -> None:
    bert.config.save_pretrained(tmp_path)
    wrong = {name: torch.zeros_like(value) for name, value in state.items()}
    torch.save(wrong, tmp_path / "pytorch_model.bin")
    write_shards(tmp_path, wrong, "pytorch_model", "bin", torch.save)
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state.pth", "scaler.pt"):
        (tmp_path / name).write_bytes(b"not to be opened")
    save_file(state, tmp_path / "model.safetensors")
    check(open_model(tmp_path), state)

    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    check(open_model(tmp_path), state)

    for file in tmp_path.glob("pytorch_model*"):
        file.unlink()
    torch.save({"model": state}, tmp_path / "checkpoint.pt")
    check(open_model(tmp_path), state)


def test_from_memory(bert: transformers.BertModel, state: State) -> None:
    check(open_model(bert), state)
    check(open_model(state, heads=2), state)
    check(open_model({name: value.numpy() for name, value in state.items()}, heads=2), state)
    strided = {name: value.T.contiguous().T if value.ndim == 2 else value for name, value in state.items()}
    check(open_model(strided, heads=2), state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("save", [save_file, torch.save, None])
def test_narrow_numbers_are_widened_exactly(
    dtype: torch.dtype, save: Callable[..., Any] | None, tmp_path: Path, state: State
) -> None:
    narrow = {name: value.to(dtype) for name, value in state.items()}
    if save is None:
        check(open_model(narrow, heads=2, unscaled=True), narrow)
        return
    path = tmp_path / ("model.safetensors" if save is save_file else "model.pt")
    save(narrow, path)
    check(open_model(path, heads=2, unscaled=True), narrow)


def test_every_bfloat16_and_half_value_is_widened_exactly() -> None:
    """All 2^16 bit patterns that are finite, by arithmetic on their fields."""
    bits = np.arange(2**16, dtype=np.uint16)
    for dtype, exponent_bits in ((torch.bfloat16, 8), (torch.float16, 5)):
        fraction_bits = 15 - exponent_bits
        exponent = (bits >> fraction_bits & (2**exponent_bits - 1)).astype(np.int64)
        fraction = (bits & (2**fraction_bits - 1)).astype(np.float64) / 2**fraction_bits
        bias = 2 ** (exponent_bits - 1) - 1
        magnitude = np.where(
            exponent == 0,
            np.ldexp(fraction, 1 - bias),
            np.ldexp(1 + fraction, np.minimum(exponent, 2**exponent_bits - 2) - bias),
        )
        expected = np.where(bits >> 15 == 1, -magnitude, magnitude)
        finite = exponent < 2**exponent_bits - 1
        rows = int(finite.sum()) // 4
        values = torch.from_numpy(bits[finite].view(np.int16)).view(dtype).reshape(4, rows)
        block = {"in_proj_weight": torch.zeros(12, 4), "out_proj.weight": torch.zeros(4, 4)}
        model = open_model(block | {"wide": values}, heads=2)
        read = model.read(View("wide", (4, rows), stored_out_in=False))
        assert np.array_equal(read.ravel(), expected[finite])


def test_arrays_of_ml_dtypes_are_read(state: State) -> None:
    arrays = {name: value.numpy().astype(ml_dtypes.bfloat16) for name, value in state.items()}
    check(open_model(arrays, heads=2), {name: value.bfloat16() for name, value in state.items()})


def test_reading_needs_the_file_only_when_a_tensor_is_read(
    tmp_path: Path, bert: transformers.BertModel, state: State
) -> None:
    bert.config.save_pretrained(tmp_path)
    save_file(state, tmp_path / "model.safetensors")
    model = open_model(tmp_path)
    shutil.move(tmp_path / "model.safetensors", tmp_path / "away")
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read"):
        model.embedding()


class NpzFile(InMemoryTensors):
    def __init__(self, path: Path) -> None:
        super().__init__(np.load(path, allow_pickle=False), str(path))


class Lacking(InMemoryTensors):
    def __init__(self, path: Path) -> None:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401


def test_a_format_is_a_file_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "block.npz", **{"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)})
    expected = r"block\.npz: attnlaw does not know the format \.npz; attnlaw reads \.safetensors, \.bin"
    with pytest.raises(InputError, match=expected):
        open_model(tmp_path / "block.npz", heads=2)
    more = [*FORMATS, Format((".npz",), NpzFile, None, ("*.npz",))]
    monkeypatch.setattr("attnlaw.checkpoints.open.FORMATS", more)
    for source in (tmp_path / "block.npz", tmp_path):
        model = open_model(source, heads=2)
        assert np.array_equal(model.read(model.layers[0].attention.output), np.eye(4))
    with pytest.raises(InputError, match=r"b\.x: a \.x file needs no_such_package.*attnlaw\[x\]"):
        Format((".x",), Lacking, extra="x").open(tmp_path / "b.x")


def test_the_extras_of_formats_exist() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert {kind.extra for kind in FORMATS} <= {None, *extras}
