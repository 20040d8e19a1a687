"""Locations: the columns that say which part of a model a row is about, and the file of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlaw.analysis.findings.apply import location_text
from attnlaw.checkpoints.open import find_checkpoint, single_model_path
from attnlaw.core.errors import InputError

MATRIX = ("layer", "stack", "kind", "head", "expert")
LOCATION = (*MATRIX, "tensor", "step")

# The columns that identify a row of a table, by which it is found again in a baseline.
KEYS: dict[str, tuple[str, ...]] = {
    "matrices": MATRIX,
    "layers": ("layer", "stack"),
    "fits": MATRIX,
    "summary": (),
    "tensors": ("tensor",),
    "diff": MATRIX,
    "diff_tensors": ("tensor",),
    "steps": ("step",),
}

Location = dict[str, Any]


def location_of(row: Mapping[str, Any]) -> Location:
    """Return the location of a row as a dictionary, without the columns that are null."""
    return {name: row[name] for name in LOCATION if row.get(name) is not None}


def row_location_text(location: Mapping[str, Any]) -> str:
    """Return a location in words that are safe to print, or "the model" if it is empty."""
    return f"step {location['step']}" if "step" in location else location_text(location)


def model_file(model: Any) -> str:
    """Return the local file of a model, or else its name, or the type of an object in memory."""
    if not isinstance(model, str | os.PathLike):
        return type(model).__name__
    path = Path(model)
    if not path.is_dir():
        return os.fspath(model)
    try:
        return str(find_checkpoint(single_model_path(path)))
    except InputError:  # an adapter's directory, which holds no model
        return str(path)
