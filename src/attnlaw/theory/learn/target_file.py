"""A target's spectrum from a file or from a text: eigenvalues, a weight behind each where they have one.

| given | is |
|---|---|
| `0,0.4,1,2.2` | four eigenvalues of equal weight |
| text | one eigenvalue a line, or an eigenvalue and its weight; `#` begins a comment |
| `.npy` | an array of eigenvalues, or one of two columns: eigenvalue, weight |
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import read_bounded, require_valid_path
from attnlaw.theory.learn.target import Target

LARGEST = 16  # megabytes
DAMAGE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def read_target(source: str) -> Target:
    """The target of a file, or of numbers with commas; equal eigenvalues are one, with their weights added.

    >>> read_target("0,0.4,0.4,2.2").weights
    (0.25, 0.5, 0.25)
    """
    wanted = "an eigenvalue a line (or 0,0.4,1,2.2), behind each its weight or nothing, all of them numbers"
    with as_input_error(f"{source}: not a spectrum", f"expected {wanted}", *DAMAGE, with_reason=False):
        table = _numbers(source)
        if table.ndim == 1:
            table = np.column_stack([table, np.ones(table.size)])
        if table.ndim != 2 or table.shape[1] != 2:
            raise ValueError(f"shape {table.shape}")
        values, places = np.unique(table[:, 0], return_inverse=True)
        if not np.all(table[:, 1] > 0):
            raise ValueError("a weight that is not above 0")
        weights = np.bincount(places.ravel(), table[:, 1])
    try:
        return Target.discrete(values.tolist(), weights.tolist())
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _numbers(source: str) -> NDArray[np.float64]:
    path = require_valid_path(Path(source))
    if "," in source and not path.exists():
        return np.array(source.split(","), dtype=np.float64)
    data = read_bounded(path, LARGEST, remedy="give a file of eigenvalues, or the numbers with commas")
    if path.suffix == ".npy":
        stored: Any = np.load(io.BytesIO(data), allow_pickle=False)
        return np.asarray(stored.astype(np.float64, casting="same_kind"))
    lines = [line.split("#")[0].replace(",", " ").split() for line in data.decode("utf-8").splitlines()]
    rows = np.array([line for line in lines if line], dtype=np.float64)
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


def stated_target(case: Any, of_rank: Callable[[float], Target]) -> Target:
    """The target that settings state: a rank, a power law or a spectrum of one's own, with its spike."""
    if case.target_eigenvalues is not None:
        bulk = read_target(case.target_eigenvalues)
    elif case.target_exponent is not None:
        bulk = Target.power_law(case.target_exponent, case.target_dimension)
    else:
        bulk = of_rank(case.target_rank)
    return bulk if case.target_spike is None else bulk.with_spikes(case.target_spike)
