"""The real pair of checkpoints that the tests compare: opened once, its matrices, and damaged copies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
from real_checkpoints import real_checkpoint

from attnlaw.analysis.diff.diff import diff
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.settings import ModelSettings

FIGURES = json.loads((Path(__file__).parents[2] / "published/diff/rxnfp.json").read_text())
PARTS = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
NAMES = [f"bert.encoder.layer.{layer}.{part}.weight" for layer in range(12) for part in PARTS]


@cache
def opened(name):
    return open_model(real_checkpoint(f"rxnfp-{name}"), name=name)


@cache
def compared(name):
    """The whole comparison with the pretrained model, made once a run."""
    base, model = (str(real_checkpoint(f"rxnfp-{suffix}")) for suffix in ("pretrained", name))
    return diff(base, ModelSettings(model=model, jobs=1))


@cache
def weights(name="pretrained"):
    """The 72 stored matrices of the layers, float32, by their names in the base."""
    tensors = opened(name).tensors
    return {tensor_name: tensors.read(_there(tensors.shapes, tensor_name)) for tensor_name in NAMES}


def _there(shapes, name):
    return name if name in shapes else name.removeprefix("bert.")


def damaged(change, names=NAMES):
    """A state dict of the base with some matrices changed, `change(matrix, generator)`, in their order."""
    rng = np.random.default_rng(0)
    tensors = opened("pretrained").tensors
    state = {name: tensors.read(name) for name in tensors.shapes}
    return state | {name: change(state[name], rng) for name in names}


def absmax_grid(matrix, bits, block, steps=np.float32):
    """Rounded to b bits in blocks along the stored rows, as the published figures were."""
    blocks = matrix.astype(np.float64).reshape(matrix.shape[0], -1, block or matrix.shape[1])
    step = (np.abs(blocks).max(axis=2, keepdims=True) / (2 ** (bits - 1) - 1)).astype(steps).astype(float)
    return (step * np.rint(blocks / step)).reshape(matrix.shape).astype(np.float32)


def min_max_grid(matrix, bits, block):
    blocks = matrix.astype(np.float64).reshape(matrix.shape[0], -1, block or matrix.shape[1])
    low = blocks.min(axis=2, keepdims=True)
    step = (blocks.max(axis=2, keepdims=True) - low) / (2**bits - 1)
    return (low + step * np.rint((blocks - low) / step)).reshape(matrix.shape).astype(np.float32)


def with_lora(rank, size, dtype=np.float32):
    """Adds a Gaussian update of a rank and of a relative size, and stores the sum in a type."""

    def change(matrix, rng):
        update = rng.standard_normal((matrix.shape[0], rank)) @ rng.standard_normal((rank, matrix.shape[1]))
        update *= size * np.linalg.norm(matrix) / np.linalg.norm(update)
        return (matrix + update).astype(dtype)

    return change


def with_noise(size):
    def change(matrix, rng):
        noise = rng.standard_normal(matrix.shape) * size * matrix.std()
        return (matrix + noise).astype(np.float32)

    return change


def as_bfloat16(matrix, rng=None):
    return matrix.astype(ml_dtypes.bfloat16)
