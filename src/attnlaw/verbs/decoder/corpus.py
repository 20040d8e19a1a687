"""The corpus of the trained examples: the Python standard library's own source, as bytes.

Every byte is a token (vocabulary 256). A file belongs to the training or to the held-out split by a hash of
its name, so that the split is the same on every machine and for every Python version; the bytes themselves
are those of the interpreter that runs.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.integer[Any]]
VOCABULARY = 256
FILE_SEPARATOR = b"\0"  # occurs in no source file
HELD_OUT_ONE_IN = 20

# Tests and installed packages are no part of the library; encodings and pydoc_data are generated tables.
EXCLUDED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
# Written when Python was built: these hold the paths of the machine it was built on.
EXCLUDED_PREFIXES = ("config-", "_sysconfigdata")

DESCRIPTION = (
    "Source files (*.py) of the Python standard library, without tests, installed packages, build "
    "configuration, encodings and pydoc_data; in order of their names, separated by a zero byte. Held out: "
    f"files whose name relative to the library has a SHA-256 divisible by {HELD_OUT_ONE_IN}."
)


def is_held_out(name: str) -> bool:
    """Whether the file `name` (relative to the library, with forward slashes) is kept from training."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def source_files(*, held_out: bool) -> list[Path]:
    """The files of one split, sorted by name."""
    library = Path(sysconfig.get_path("stdlib"))
    names = sorted(path.relative_to(library).as_posix() for path in _python_files(library))
    return [library / name for name in names if is_held_out(name) == held_out]


def read_bytes(files: list[Path]) -> Bytes:
    """The bytes of the files, one array (uint8), with a zero byte after each file."""
    text = b"".join(path.read_bytes() + FILE_SEPARATOR for path in files)
    return np.frombuffer(text, dtype=np.uint8)


def windows(text: Bytes, length: int) -> Bytes:
    """Consecutive windows (count, length + 1): the last byte of one is the first of the next.

    Each byte but the first of the text (and a remainder at its end) is then predicted exactly once when a
    model reads `window[:-1]` and predicts `window[1:]`.
    """
    return np.lib.stride_tricks.sliding_window_view(text, length + 1)[::length]


def random_windows(text: Bytes, count: int, length: int, rng: np.random.Generator) -> Bytes:
    """Windows (count, length) that start at uniformly random places, as int64 token numbers."""
    starts = rng.integers(0, len(text) - length + 1, size=count)
    return np.asarray(text[starts[:, None] + np.arange(length)], dtype=np.int64)


def bigram_losses(train: Bytes, held_out_windows: Bytes) -> NDArray[np.float64]:
    """Mean -log p(byte | byte before it) in nats over each window, with add-one counts of `train`."""
    counts = np.ones((VOCABULARY, VOCABULARY))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    log_p = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
    return np.asarray(-log_p[held_out_windows[:, :-1], held_out_windows[:, 1:]].mean(axis=1))


def _python_files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name in EXCLUDED_FOLDERS or entry.name.startswith(EXCLUDED_PREFIXES):
            continue
        if entry.is_dir():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry
