"""Pairs of checkpoints: a model, and what rounding, adapters and other changes make of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

State = dict[str, np.ndarray]
Change = Callable[[str, np.ndarray], np.ndarray]


def read(folder: Path) -> State:
    """The float32 tensors of a directory, from safetensors or from PyTorch's own file."""
    if (folder / "model.safetensors").exists():
        return load_file(folder / "model.safetensors")
    import torch

    stored = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    return {name: tensor.numpy() for name, tensor in stored.items()}


def write(state: State, base: Path, folder: Path) -> Path:
    """A directory with the weights and the base's config."""
    folder.mkdir(parents=True)
    shutil.copy(base / "config.json", folder)
    save_file(
        {name: np.ascontiguousarray(array) for name, array in state.items()}, folder / "model.safetensors"
    )
    return folder


def changed(state: State, change: Change, names: set[str] | None = None) -> State:
    return {
        name: change(name, array) if names is None or name in names else array
        for name, array in state.items()
    }


def to_bfloat16(_: str, array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16) if array.dtype == np.float32 else array


def absmax(bits: int, block: int | None) -> Change:
    """Rounded to integers of so many bits, a scale for each block along the rows of the stored matrix."""

    def change(_: str, array: np.ndarray) -> np.ndarray:
        parts = array.reshape(-1, block or array.shape[1])
        step = np.abs(parts).max(axis=1, keepdims=True) / np.float32(2 ** (bits - 1) - 1)
        return (np.rint(parts / step) * step).astype(np.float32).reshape(array.shape)

    return change


def low_rank(rank: int, size: float, seed: int = 0) -> Change:
    """A random update of so low a rank and of this size, relative to the matrix."""
    rng = np.random.default_rng(seed)

    def change(_: str, array: np.ndarray) -> np.ndarray:
        left, right = (rng.standard_normal((side, rank)) for side in array.shape)
        update = left @ right.T
        update *= size * np.linalg.norm(array) / np.linalg.norm(update)
        return (array.astype(np.float64) + update).astype(np.float32)

    return change


def depth(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text())
    return int(config.get("num_hidden_layers") or config["n_layer"])
