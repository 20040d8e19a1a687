"""What lies in a directory: a file of weights, one revision of several, or the checkpoints of a training run.

| directory of | holds | stands for |
|---|---|---|
| a model | weights, or an index of shards | that model |
| a hub's cache | `snapshots/REVISION`, `refs/main`, `blobs` | the snapshot called main, or the only one |
| a Trainer's output | `checkpoint-STEP`, no weights of its own | these in order of steps: a series |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.formats import FORMATS
from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import read_bounded

NOT_WEIGHTS = ("optimizer", "scheduler", "training_args", "rng_state", "scaler", "adapter_model")
STEP = re.compile(r"checkpoint-([0-9]{1,18})")
MOST_NAMED = 4  # in a message


def expand_run(source: Any) -> list[Any]:
    """The models that a source stands for: checkpoints of a training run in order of steps, or itself."""
    if not isinstance(source, str | os.PathLike) or not (steps := _steps(Path(source))):
        return [source]
    return [str(step) for step in steps] if isinstance(source, str) else list(steps)


def single_model_path(path: Path) -> Path:
    """The path of one model: a cache's snapshot, the only checkpoint of a run, or the path itself."""
    steps = _steps(path)
    if len(steps) > 1:
        raise InputError(
            f"{path}: {len(steps)} checkpoints of a training run, where one model is expected; "
            f"give one of them, such as the last, {steps[-1]}"
        )
    with as_input_error(f"{path}: cannot be read", "check its permissions"):
        return steps[0] if steps else _snapshot(path) if _is_cache(path) else path


def _steps(folder: Path) -> list[Path]:
    """The folders `checkpoint-STEP` of a directory without weights of its own, in order of steps."""
    if not _is_folder(folder):
        return []
    steps = [step for step in folder.glob("checkpoint-*") if STEP.fullmatch(step.name) and step.is_dir()]
    has_weights = steps and (_candidates(folder) or any(folder.glob("adapter_*")))
    return (
        [] if has_weights else sorted(steps, key=lambda step: (int(step.name.partition("-")[2]), step.name))
    )


def _is_cache(folder: Path) -> bool:
    return _is_folder(folder / "snapshots") and any(_is_folder(folder / part) for part in ("blobs", "refs"))


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (this never raises)


def _snapshot(cache: Path) -> Path:
    """The revision that is called main, or the only one that was downloaded.

    What `refs/main` says is held against the names in `snapshots`: it leads nowhere else.
    """
    folders = {folder.name: folder for folder in sorted((cache / "snapshots").iterdir()) if folder.is_dir()}
    main = cache / "refs" / "main"
    named = read_bounded(main, megabytes=1).decode(errors="replace").strip() if main.is_file() else ""
    if named in folders:
        return folders[named]
    if len(folders) == 1:
        return next(iter(folders.values()))
    if not folders:
        raise InputError(f"{cache}: a hub's cache without a snapshot; download the model again")
    raise InputError(
        f"{cache}: {len(folders)} snapshots ({_format_names(folders)}) and no "
        f"refs/main that names one of them; give one, such as {next(iter(folders.values()))}"
    )


def find_checkpoint(folder: Path) -> Path:
    """The file of weights in a directory, or its index of shards."""
    hits = _candidates(folder)
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise InputError(
            f"{folder}: several checkpoints without an index ({_format_names(file.name for file in hits)}); "
            "name one of the files"
        )
    if any(folder.glob("adapter_*")):
        raise InputError(
            f"{folder}: a LoRA adapter, not a whole model; audit it by itself, or its base model with "
            "--adapter"
        )
    raise InputError(
        f"{folder}: holds no checkpoint (looked for {', '.join(_patterns())}); name the file itself"
    )


def _patterns() -> list[str]:
    return [pattern for kind in FORMATS for pattern in kind.in_directory]


def _candidates(folder: Path) -> list[Path]:
    """The files of the best pattern that some files of a directory have."""
    for pattern in _patterns():
        hits = [file for file in sorted(folder.glob(pattern)) if not file.name.startswith(NOT_WEIGHTS)]
        if hits:
            return hits
    return []


def _format_names(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:MOST_NAMED]) + (", ..." if len(shown) > MOST_NAMED else "")
