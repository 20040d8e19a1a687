"""Run a frozen command in its own process, and keep what it printed and wrote as plain values.

A list of more than eight values is kept as a digest: its length, a hash of its bytes and, if it holds
numbers, four statistics that a comparison on another machine can use. A table of a study has one row for each
case, and its columns are lists. Paths of this machine become the
placeholders of the command.

Two settings make numbers the same on every x86-64 machine with AVX2: the kernels of OpenBLAS are fixed
(`OPENBLAS_CORETYPE`), and numpy and PyTorch may not use wider instructions.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import platform
import resource
import shlex
import shutil
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
from real_checkpoints import fetch

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from attnlaw.command import main; main()"
CHECKPOINTS = {"minilm": "minilm", "rxnmapper": "rxnmapper", "whisper": "whisper-tiny.en"}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_ICL AVX512_SPR X86_V4",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "AVX2",
    "PYTHONWARNINGS": "ignore",  # numpy warns of features that this machine does not have anyway
    "COLUMNS": "100",
    "SOURCE_DATE_EPOCH": "0",
}
LONGEST = 8  # a longer list is kept as its digest
TEXTS = (".html", ".svg", ".xml", ".sarif", ".md", ".txt", ".css", ".js")

Table = dict[str, list[Any]]
Hide = Callable[[str], str]


@dataclass(frozen=True)
class Run:
    """What a command printed and wrote.

    Args:
        status: exit status.
        cpu: CPU seconds.
        json: JSON on standard output, None if there was none.
        text: other text on standard output, and the error message of a command that failed.
        tables: columns of every parquet file.
        documents: contents of every JSON file.
        texts: contents of pages and vector figures.
        images: contents of PNG files in base64.
    """

    status: int
    cpu: float
    json: Any
    text: str
    tables: dict[str, Table]
    documents: dict[str, Any]
    texts: dict[str, str]
    images: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def machine() -> dict[str, str]:
    """Return what the last bits of a number depend on, apart from the code."""
    import scipy
    import torch

    modules = (np, scipy, pl, torch)
    return {"machine": platform.machine(), "core": ENVIRONMENT["OPENBLAS_CORETYPE"]} | {
        module.__name__: module.__version__ for module in modules
    }


def run(command: str, environment: Mapping[str, str] = ENVIRONMENT) -> Run:
    """Run a command of `COMMANDS` and read its output; its directory is deleted."""
    with tempfile.TemporaryDirectory(prefix="attnlaw-frozen-") as folder:
        paths = _paths(command, Path(folder).resolve())
        hide = partial(_hide_paths, {str(path): f"{{{name}}}" for name, path in paths.items()})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        content, text, status = None, "", 0
        for line in command.split(" && "):
            words = [word.format(**paths) for word in shlex.split(line)]
            done = subprocess.run(
                [sys.executable, "-c", MAIN, *words],
                cwd=ROOT,
                env=os.environ | environment,
                capture_output=True,
                text=True,
                check=False,
            )
            status = max(status, done.returncode)
            printed = hide(done.stdout)
            if "--json" in words and printed.startswith(("{", "[")):
                content = json.loads(printed)
            else:
                text += printed
            if done.returncode:
                text += hide(done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(status, round(cpu, 2), content, text, **_read_files(paths["out"], hide))


def _paths(command: str, folder: Path) -> dict[str, Path]:
    """Return the path of every placeholder; make or fetch only what the command names."""
    paths = {"out": folder / "out", "root": ROOT}
    paths["out"].mkdir()
    for name, checkpoint in CHECKPOINTS.items():
        if f"{{{name}}}" in command:
            paths[name] = fetch(checkpoint)
    for name, make in {"large": _write_large_model, "tuned": _write_tuned_model}.items():
        if f"{{{name}}}" in command:
            paths[name] = make(folder / name)
    return paths


def _write_large_model(folder: Path) -> Path:
    import ml_dtypes
    from safetensors.numpy import save_file

    size, rng = 2048, np.random.default_rng(0)
    shapes = {f"self_attn.{name}_proj": (8, size) for name in "qkv"} | {"self_attn.o_proj": (size, 8)}
    shapes |= {f"mlp.{name}_proj": (size, size) for name in ("gate", "up", "down")}
    tensors = {
        f"model.layers.0.{name}.weight": rng.standard_normal(shape, dtype=np.float32) / np.float32(64)
        for name, shape in shapes.items()
    }
    folder.mkdir()
    narrow = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    save_file(narrow, folder / "model.safetensors")
    config = {"model_type": "llama", "hidden_size": size, "intermediate_size": size, "hidden_act": "silu"}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _write_tuned_model(folder: Path) -> Path:
    from safetensors.numpy import load_file, save_file

    shutil.copytree(ROOT / "examples" / "tiny-decoder", folder)
    tensors = load_file(folder / "model.safetensors")
    rng = np.random.default_rng(0)
    queries, output = (f"transformer.h.{name}.weight" for name in ("0.attn.c_attn", "2.mlp.c_proj"))
    rows, columns = tensors[queries].shape
    update = rng.standard_normal((rows, 2)) @ rng.standard_normal((2, columns)) / math.sqrt(rows * columns)
    tensors[queries] += update.astype(np.float32)
    tensors[output] += 1e-3 * rng.standard_normal(tensors[output].shape, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def _hide_paths(placeholders: Mapping[str, str], text: str) -> str:
    for path in sorted(placeholders, key=len, reverse=True):
        text = text.replace(path, placeholders[path])
    return text


def _read_files(folder: Path, hide: Hide) -> dict[str, Any]:
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    is_study = (folder / "store.sqlite").exists()
    tables = {}
    for name, path in files.items():
        if not name.endswith(".parquet") or name.startswith("parts/"):
            continue
        frame = pl.read_parquet(path)
        if is_study and path.name not in ("rows.parquet", "simulation.parquet"):
            tables[f"tables/{path.stem}"] = _columns_by_case(frame, hide)
        else:
            tables[name] = _columns(frame, hide)
    return {
        "tables": tables,
        "documents": {
            name: json.loads(hide(path.read_text())) for name, path in files.items() if name.endswith(".json")
        },
        "texts": {name: hide(path.read_text()) for name, path in files.items() if name.endswith(TEXTS)},
        "images": {
            name: base64.b64encode(path.read_bytes()).decode()
            for name, path in files.items()
            if name.endswith(".png")
        },
    }


def _columns(frame: pl.DataFrame, hide: Hide) -> Table:
    return {name: [_plain(value, hide) for value in frame[name].to_list()] for name in frame.columns}


def _columns_by_case(frame: pl.DataFrame, hide: Hide) -> Table:
    """Return a row for each case, with its columns as lists."""
    parts = frame.partition_by("case", maintain_order=True)
    names = [name for name in frame.columns if name != "case"]
    return {name: [_plain(part[name].to_list(), hide) for part in parts] for name in names}


def _plain(value: Any, hide: Hide) -> Any:
    if isinstance(value, str):
        return hide(value)
    if not isinstance(value, list):
        return value
    values = [_plain(item, hide) for item in value]
    return values if len(values) <= LONGEST else digest(values)


def digest(values: list[Any]) -> dict[str, Any]:
    """Return a long list in a few values; the hash is equal only for lists that are equal in every bit.

    >>> digest([0.5] * 9)["mean"], digest([0.1] * 9) == digest([0.1] * 8 + [0.1 + 2**-56])
    (0.5, False)
    """
    is_numeric = all(isinstance(value, float) for value in values)
    array = np.array(values) if is_numeric else None
    content = json.dumps(values).encode() if array is None else array.tobytes()
    kept: dict[str, Any] = {"count": len(values), "sha256": hashlib.sha256(content).hexdigest()[:16]}
    if array is not None and np.isfinite(array).all():
        kept |= {"first": values[0], "last": values[-1], "mean": float(array.mean())}
        kept["root_mean_square"] = float(np.sqrt(np.mean(array**2)))
    return kept
