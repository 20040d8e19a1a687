"""Read the sizes of a model from config.json, or from values that a checkpoint contains."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import parse_json, read_bounded

MOST_SIZE = 2**63
MOST_NUMBER = sys.float_info.max
# The files next to config.json in which some programs describe their codes, if config.json does not: those of
# GPTQ, AWQ and AutoRound, by their `quant_method`.
SIDE_METHODS = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "quantization_config.json": "auto-round",
}
MODELOPT = "hf_quant_config.json"  # under `quantization`; it also adds what config.json leaves out
QUANTO = "quanto_qmap.json"  # names the type of each module's weight
SIDE_FILES = (*SIDE_METHODS, MODELOPT, QUANTO)


class Config:
    """The values of a config.json. A missing value is None, and a wrong type raises an `InputError`.

    `model_types` lists the `model_type` of the inner config (such as `text_config`), then the outer one.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, source: str = "config") -> None:
        values = dict(values or {})
        outer = values.get("model_type")
        # Multimodal models, Whisper's `.pt`, nanoGPT's `ckpt.pt` and Lightning keep sizes one level down.
        for inner in ("text_config", "dims", "model_args", "hyper_parameters"):
            if isinstance(values.get(inner), Mapping):
                values |= values[inner]
        self.values = values
        self.source = source
        model_types = [kind for kind in (values.get("model_type"), outer) if isinstance(kind, str)]
        self.model_types = tuple(dict.fromkeys(model_types))

    def section(self, key: str | None) -> Config:
        """Return the config inside the table `key`, or this config if there is no such table."""
        values = None if key is None else self.values.get(key)
        return Config(values, f"{self.source}: {key}") if isinstance(values, Mapping) else self

    def size(self, *keys: str) -> int | None:
        """Return the first value that is present, which must be a positive integer, or None."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            require_value(self.source, key, value, whole and 0 < value < MOST_SIZE, "a positive integer")
            return int(value)
        return None

    def number(self, key: str) -> float | None:
        """Return the value of `key`, or None if it is missing. The value must be a positive number."""
        value = self.values.get(key)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        require_value(self.source, key, value, plain and 0 < value <= MOST_NUMBER, "a positive number")
        return float(value)

    def text(self, *keys: str) -> str | None:
        """Return the first value of `keys` that is text, or None if there is none."""
        return next((value for key in keys if isinstance(value := self.values.get(key), str)), None)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None


def require_value(source: str, key: str, value: Any, fits: bool, expected: str) -> None:
    """Raise an `InputError` if a value from a file does not fit. `expected` says in words what would fit."""
    if not fits:
        huge = isinstance(value, int) and abs(value) >= MOST_SIZE
        shown = f"an integer of {value.bit_length()} bits" if huge else f"{value!r:.80}"
        raise InputError(f"{source}: {key} is {shown}, expected {expected}; correct the file")


def read_config(path: Path) -> Config:
    """Read a config.json. Return an empty `Config` if the file does not exist."""
    if not path.is_file():
        return Config(source=str(path))
    remedy = f"restore the model's {path.name} or remove it"
    values = parse_json(read_bounded(path, megabytes=4), path, remedy)
    if not isinstance(values, Mapping):
        raise InputError(f"{path}: expected a JSON object of sizes; {remedy}")
    return Config(values, str(path))


def read_params(path: Path) -> Config:
    """Read a params.json of Meta or Mistral, with some keys renamed as in config.json."""
    values = read_config(path).values
    values = dict(inner) if isinstance(inner := values.get("model"), Mapping) else values
    if "n_kv_heads" in values:
        values["num_key_value_heads"] = values["n_kv_heads"]
    if values.get("use_scaled_rope"):
        values["rope_scaling"] = {"rope_type": "llama3"}  # its constants are in Meta's code
    return Config(values, str(path))


def with_side_files(config: Config, folder: Path) -> Config:
    """Return a model's config with the `quantization_config` and `quanto_qmap` of the files next to it."""
    if (folder / QUANTO).is_file():
        config = Config({**config.values, "quanto_qmap": read_config(folder / QUANTO).values}, config.source)
    stated = config.values.get("quantization_config", config.values.get("compression_config"))
    if stated is None:
        name = next((name for name in (*SIDE_METHODS, MODELOPT) if (folder / name).is_file()), None)
        side = {} if name is None else _read_side_file(folder / name)
    elif isinstance(stated, Mapping) and stated.get("quant_method") == "modelopt":
        side = {**_read_side_file(folder / MODELOPT), **stated}
    else:
        return config
    return Config({**config.values, "quantization_config": side}, config.source) if side else config


def _read_side_file(path: Path) -> dict[str, Any]:
    values = read_config(path).values
    if path.name == MODELOPT:
        inner = values.get("quantization")
        return {**inner, "quant_method": "modelopt"} if isinstance(inner, Mapping) else {}
    return {"quant_method": SIDE_METHODS[path.name], **values} if values else {}
