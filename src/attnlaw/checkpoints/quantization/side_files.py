"""The files next to config.json in which some programs describe their codes.

| file | written by |
|---|---|
| `quantize_config.json` | GPTQ |
| `quant_config.json` | AWQ |
| `quantization_config.json` | AutoRound |
| `hf_quant_config.json` | ModelOpt, under `quantization` |

They count if config.json has no `quantization_config`. ModelOpt's also adds what config.json leaves out.
quanto's `quanto_qmap.json` names the type of each module's weight. The config has it as `quanto_qmap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.config import Config, read_config

METHODS = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "quantization_config.json": "auto-round",
}
MODELOPT = "hf_quant_config.json"
QUANTO = "quanto_qmap.json"
NAMES = (*METHODS, MODELOPT, QUANTO)


def with_side_files(config: Config, folder: Path) -> Config:
    """Return a model's config with the `quantization_config` of the files next to it."""
    if (folder / QUANTO).is_file():
        config = Config({**config.values, "quanto_qmap": read_config(folder / QUANTO).values}, config.source)
    stated = config.values.get("quantization_config", config.values.get("compression_config"))
    if stated is None:
        name = next((name for name in (*METHODS, MODELOPT) if (folder / name).is_file()), None)
        side = {} if name is None else _read(folder / name)
    elif isinstance(stated, Mapping) and stated.get("quant_method") == "modelopt":
        side = {**_read(folder / MODELOPT), **stated}
    else:
        return config
    return Config({**config.values, "quantization_config": side}, config.source) if side else config


def _read(path: Path) -> dict[str, Any]:
    values = read_config(path).values
    if path.name == MODELOPT:
        inner = values.get("quantization")
        return {**inner, "quant_method": "modelopt"} if isinstance(inner, Mapping) else {}
    return {"quant_method": METHODS[path.name], **values} if values else {}
