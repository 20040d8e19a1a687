"""The small quantised checkpoints as examples for fuzzing: a line with the name of a code, then the bytes.

They are the header of the file, its tensors, or its config.json. The others are as the library wrote them.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

from checkpoints.quantization.fixtures import FOLDER, NAMES

from attnlaw.checkpoints.open import open_model

MODEL, CONFIG = "model.safetensors", "config.json"
CODES = [name for name in NAMES if (FOLDER / name / MODEL).exists()]


@cache
def parts(name: str) -> dict[str, bytes]:
    """The parts of a code's file and its config."""
    data = (FOLDER / name / MODEL).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    config = (FOLDER / name / CONFIG).read_bytes()
    return {"header": data[8:start], "tensors": data[start:], "config": config}


def seeds(part: str) -> Callable[[], list[bytes]]:
    return lambda: [name.encode() + b"\n" + parts(name)[part] for name in CODES]


def write(part: str) -> Callable[[Path, bytes], Path]:
    def into(folder: Path, data: bytes) -> Path:
        line, _, changed = data.partition(b"\n")
        name = line.decode(errors="replace")
        name = name if name in CODES else CODES[0]
        for file in folder.glob("*.json"):
            file.unlink()
        for file in (FOLDER / name).glob("*.json"):
            shutil.copyfile(file, folder / file.name)
        new = parts(name) | {part: changed}
        header = struct.pack("<Q", len(new["header"])) + new["header"]
        (folder / MODEL).write_bytes(header + new["tensors"])
        (folder / CONFIG).write_bytes(new["config"])
        return folder

    return into


def read_tensors(path: Path) -> None:
    """Open a model and read every tensor of it."""
    tensors = open_model(path).tensors
    for name in tensors.shapes:
        tensors.read(name)
