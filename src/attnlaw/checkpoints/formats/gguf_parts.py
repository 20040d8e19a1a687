"""Read a GGUF model that llama.cpp split into parts, `NAME-00001-of-0000N.gguf`, each a GGUF file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.formats.gguf_file import GgufFile
from attnlaw.checkpoints.tensors import GatheredTensors, Tensors
from attnlaw.core.errors import InputError
from attnlaw.core.files import links_outside

PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
REMEDY = "download all parts of one model into one directory, and keep their published names"


def open_gguf(path: Path) -> Tensors:
    """Open a GGUF file. If the file is one part of several, open all parts."""
    file = GgufFile(path)
    return file if file.split.get("count") in (None, 0, 1) else GgufParts(path, file)


def one_of_each_split(files: Sequence[Path]) -> list[Path]:
    """Return the files without the second and later parts of GGUF models whose first part is in the list."""
    first: dict[tuple[str, ...], Path] = {}
    for file in files:
        hit = PART.fullmatch(file.name)
        first.setdefault((hit[1], hit[3]) if hit else (file.name,), file)
    return list(first.values())


class GgufParts(GatheredTensors):
    """The tensors of all parts of a GGUF model. The parts must be in one directory."""

    def __init__(self, path: Path, file: GgufFile) -> None:
        name, count = _name_and_count(path, file.split)
        paths = [path.with_name(f"{name}-{number + 1:05d}-of-{count:05d}.gguf") for number in range(count)]
        parts = [file if part == path else _open_part(part, path) for part in paths]
        metadata = parts[0].metadata
        part_of: dict[str, GgufFile] = {}
        for number, part in enumerate(parts):
            _require_member(part, number, count, metadata)
            for tensor in part.shapes:
                if (other := part_of.setdefault(tensor, part)) is not part:
                    both = f"{other.source} and {part.source}"
                    raise InputError(f"{both} both have the tensor {tensor}; {REMEDY}")
        for part in parts:
            if (stated := part.split.get("tensors.count")) not in (None, len(part_of)):
                raise part.error(
                    f"its header (split.tensors.count) states {stated!r:.20} tensors in all parts, but they "
                    f"have {len(part_of)}; {REMEDY}"
                )
        source = str(path.with_name(f"{name}-*-of-{count:05d}.gguf"))
        super().__init__(source, {tensor: (part, tensor) for tensor, part in part_of.items()}, metadata)


def _name_and_count(path: Path, split: Mapping[str, Any]) -> tuple[str, int]:
    hit = PART.fullmatch(path.name)
    if hit is None or int(hit[3]) != split["count"]:
        raise InputError(
            f"{path}: one of {split['count']!r:.20} parts of a model, but its name does not say which "
            "one; rename the parts to NAME-00001-of-0000N.gguf, as published, or join them with "
            "llama-gguf-split --merge"
        )
    return hit[1], int(hit[3])


def _open_part(path: Path, given: Path) -> GgufFile:
    if not path.is_file():
        raise InputError(f"{given}: the part {path.name} is missing; {REMEDY}")
    if links_outside(path, given.parent):
        target = os.path.realpath(path)
        raise InputError(
            f"{given}: the part {path.name} is a link to {target}, which is outside this directory; copy "
            "the part into the directory"
        )
    return GgufFile(path)


def _require_member(part: GgufFile, number: int, count: int, first: Mapping[str, Any]) -> None:
    stated = part.split.get("no", 0), part.split.get("count")
    if stated != (number, count):
        raise part.error(
            f"its header says part {stated[0]!r:.20} of {stated[1]!r:.20} (counted from 0), expected "
            f"{number} of {count}; {REMEDY}"
        )
    for key in part.metadata.keys() & first.keys():
        if part.metadata[key] != first[key]:
            here, there = part.metadata[key], first[key]
            raise part.error(f"{key} is {here!r:.40}, but {there!r:.40} in the first part; {REMEDY}")
