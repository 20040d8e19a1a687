"""Sizes of a model from config.json, or from the plain values that a checkpoint carries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import parse_json, read_bounded

MOST_SIZE = 2**63
MOST_NUMBER = sys.float_info.max


class Config:
    """Read-only sizes; a size that is absent is None, one of the wrong type is an error.

    `model_types` is the `model_type` of the part that is read, then that of the whole.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, source: str = "config") -> None:
        values = dict(values or {})
        outer = values.get("model_type")
        # One level down: multimodal models, Whisper's `.pt`, nanoGPT's `ckpt.pt`, Lightning's.
        for inner in ("text_config", "dims", "model_args", "hyper_parameters"):
            if isinstance(values.get(inner), Mapping):
                values |= values[inner]
        self.values = values
        self.source = source
        model_types = [kind for kind in (values.get("model_type"), outer) if isinstance(kind, str)]
        self.model_types = tuple(dict.fromkeys(model_types))

    def section(self, key: str | None) -> Config:
        """The sizes in the table under `key`; all of them where there is no such table."""
        values = None if key is None else self.values.get(key)
        return Config(values, f"{self.source}: {key}") if isinstance(values, Mapping) else self

    def size(self, *keys: str) -> int | None:
        """The first of `keys` that is there, as a positive integer."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            require_value(self.source, key, value, whole and 0 < value < MOST_SIZE, "a positive integer")
            return int(value)
        return None

    def number(self, key: str) -> float | None:
        """A positive number, or None where it is absent."""
        value = self.values.get(key)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        require_value(self.source, key, value, plain and 0 < value <= MOST_NUMBER, "a positive number")
        return float(value)

    def text(self, *keys: str) -> str | None:
        """The first of `keys` that is there and is text."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str):
                return value
        return None

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None


def require_value(source: str, key: str, value: Any, fits: bool, expected: str) -> None:
    """An `InputError` for a value of a file that does not fit what is expected of it."""
    if not fits:
        raise InputError(f"{source}: {key} is {_short_repr(value)}, expected {expected}; correct the file")


def _short_repr(value: Any) -> str:
    """A value in a message: short, and of a huge integer only its length."""
    huge = isinstance(value, int) and abs(value) >= MOST_SIZE
    return f"an integer of {value.bit_length()} bits" if huge else f"{value!r:.80}"


def read_config(path: Path) -> Config:
    """The sizes in a config.json; an empty `Config` where there is no file."""
    if not path.is_file():
        return Config(source=str(path))
    remedy = f"restore the model's {path.name} or remove it"
    values = parse_json(read_bounded(path, megabytes=4), path, remedy)
    if not isinstance(values, Mapping):
        raise InputError(f"{path}: expected a JSON object of sizes; {remedy}")
    return Config(values, str(path))


def read_params(path: Path) -> Config:
    """The sizes in a params.json of Meta's or Mistral's, by its names; some have them in a table `model`."""
    values = read_config(path).values
    values = dict(inner) if isinstance(inner := values.get("model"), Mapping) else values
    if "n_kv_heads" in values:
        values["num_key_value_heads"] = values["n_kv_heads"]
    if values.get("use_scaled_rope"):
        values["rope_scaling"] = {"rope_type": "llama3"}  # by constants of Meta's code
    return Config(values, str(path))
