"""Run a frozen command in a process of its own, and keep what it printed and wrote as plain values.

A long list is kept as a digest: the first half of the SHA-256 of its float64 bytes. A table of a study is
one row for each task, in the order of the rows, whose columns are lists. Paths of this machine become the
placeholders of the words.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import threadpoolctl
from frozen.commands import Command
from real_checkpoints import fetch

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = {"minilm": "minilm", "rxnmapper": "rxnmapper", "whisper": "whisper-tiny.en"}
SETTLED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"}
LONGEST = 8  # a longer list is kept as its digest
ROWS = "rows/rows.parquet"
DOCUMENTS = ("summary.json", "lens.json")

Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Run:
    """What a command gave: JSON or other text that it printed; tables, JSON and other files that it wrote."""

    status: int
    cpu: float
    json: Any
    text: str
    tables: dict[str, Table]
    documents: dict[str, Any]
    files: list[str]

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def machine() -> dict[str, str]:
    """What the last bits of a number depend on besides the code."""
    import scipy.linalg  # noqa: F401 (loads its BLAS, which is looked at below)

    blas = {f"{one['internal_api']} {one.get('architecture')}" for one in threadpoolctl.threadpool_info()}
    versions = {name: sys.modules[name].__version__ for name in ("numpy", "scipy", "polars")}
    return {"machine": platform.machine(), "blas": ", ".join(sorted(blas)), **versions}


def run(command: Command, main: str, old_words: bool) -> Run:
    """The command with `main`, "package:function"; its output is read and its directory dropped."""
    module, function = main.split(":")
    start = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
    with tempfile.TemporaryDirectory(prefix="attnlaw-frozen-") as folder:
        places = _places(command.words, Path(folder).resolve())
        hidden = partial(_hidden, {str(path): f"{{{name}}}" for name, path in places.items()})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found, text, status = None, "", 0
        for line in command.lines(old_words):
            words = [word.format(**places) for word in shlex.split(line)]
            done = subprocess.run(
                start + words, cwd=ROOT, env=os.environ | SETTLED, capture_output=True, text=True, check=False
            )
            status = max(status, done.returncode)
            if "--json" in words and (content := _json(hidden(done.stdout))) is not None:
                found = content
            else:
                text += hidden(done.stdout)
            if done.returncode:
                text += hidden(done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(status, round(cpu, 2), found, text, **_written(places["out"], hidden))


def _json(text: str) -> Any:
    """The content of JSON text, None where it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _places(words: str, folder: Path) -> dict[str, Path]:
    """What the placeholders of the words stand for; only what they name is fetched or made."""
    places = {"out": folder / "out", "root": ROOT}
    places["out"].mkdir()
    for name, checkpoint in CHECKPOINTS.items():
        if f"{{{name}}}" in words:
            places[name] = fetch(checkpoint)
    if "{large}" in words:
        places["large"] = _large_model(folder / "large")
    return places


def _large_model(folder: Path) -> Path:
    """A LLaMA layer of width 4096 with random entries, large enough for `--approximate` of 0.1.0."""
    import ml_dtypes
    from safetensors.numpy import save_file

    size, draw = 4096, np.random.default_rng(0)
    shapes = {f"self_attn.{name}_proj": (8, size) for name in "qkv"} | {"self_attn.o_proj": (size, 8)}
    shapes |= {f"mlp.{name}_proj": (size, size) for name in ("gate", "up", "down")}
    tensors = {
        f"model.layers.0.{name}.weight": draw.standard_normal(shape, dtype=np.float32) / np.float32(64)
        for name, shape in shapes.items()
    }
    folder.mkdir()
    small = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    save_file(small, folder / "model.safetensors")
    config = {"model_type": "llama", "hidden_size": size, "intermediate_size": size, "hidden_act": "silu"}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _hidden(names: Mapping[str, str], text: str) -> str:
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text


def _written(folder: Path, hidden: Callable[[str], str]) -> dict[str, Any]:
    """What lies in a directory of results: tables and JSON with their values, pages and figures by name."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    tables = {
        name: _table(pl.read_parquet(folder / name), hidden)
        for name in files
        if name.endswith(".parquet") and not name.startswith(("tables/", "parts/"))
    }
    if ROWS in tables:
        tasks = tables[ROWS]["task"]
        for part in sorted({name.split("/")[1] for name in files if name.startswith("tables/")}):
            tables[f"tables/{part}"] = _of_tasks(folder / "tables" / part, tasks, hidden)
    documents = {name: json.loads(hidden((folder / name).read_text())) for name in files if name in DOCUMENTS}
    return {
        "tables": tables,
        "documents": documents,
        "files": [name for name in files if name.endswith((".html", ".svg", ".png"))],
    }


def _table(frame: pl.DataFrame, hidden: Callable[[str], str]) -> Table:
    return {name: [_plain(value, hidden) for value in frame[name].to_list()] for name in frame.columns}


def _of_tasks(folder: Path, tasks: list[str], hidden: Callable[[str], str]) -> Table:
    """A row for each task that has a file in the folder: its columns as lists, less the task's own key."""
    frames = [
        pl.read_parquet(folder / f"{task}.parquet") for task in tasks if (folder / f"{task}.parquet").exists()
    ]
    names = dict.fromkeys(name for frame in frames for name in frame.columns if name != "task")
    return {
        name: [_plain(frame[name].to_list() if name in frame.columns else None, hidden) for frame in frames]
        for name in names
    }


def _plain(value: Any, hidden: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hidden(value)
    if not isinstance(value, list):
        return value
    shown = [_plain(item, hidden) for item in value]
    return shown if len(shown) <= LONGEST else digest(shown)


def digest(values: list[Any]) -> str:
    """A list in a few letters: equal for lists that are equal in every bit.

    >>> digest([0.1] * 9), digest([0.1] * 9) == digest([0.1] * 8 + [0.1 + 2**-56])
    ('9 values 2b8726ad184c480e', False)
    """
    numbers = all(isinstance(value, float) for value in values)
    content = np.array(values).tobytes() if numbers else json.dumps(values).encode()
    return f"{len(values)} values {hashlib.sha256(content).hexdigest()[:16]}"
