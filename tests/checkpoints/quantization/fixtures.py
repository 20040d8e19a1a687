"""The small checkpoints in `codes`, which the libraries wrote, and the weights that they decode."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent / "codes"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/fixture.json"))
ROUNDED = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@cache
def expected(name: str) -> dict[str, np.ndarray]:
    """The decoded weights of a fixture by name."""
    with np.load(FOLDER / name / "expected.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


@cache
def about(name: str) -> dict[str, object]:
    """Who wrote a fixture, who decoded it, and in which dtype."""
    return dict(json.loads((FOLDER / name / "fixture.json").read_text()))


def difference(name: str, weight: str, ours: np.ndarray) -> float:
    """The largest difference between our weight and the library's, after the rounding of the library."""
    theirs = expected(name)[weight]
    assert ours.shape == theirs.shape, (name, weight, ours.shape)
    assert ours.dtype == np.float32, (name, weight, ours.dtype)
    (dtype,) = about(name)["decoded_dtypes"]  # type: ignore[misc, attr-defined]
    rounded = ours.astype(ROUNDED[dtype]).astype(np.float32)  # type: ignore[index]
    return float(np.abs(rounded - theirs).max())
