"""Read a GGUF model that llama.cpp split into parts, `NAME-00001-of-0000N.gguf`.

Every part is a GGUF file and has some of the tensors. The sizes of the model are in the header of the first
part. Each header states the number of its part (from 0), of all parts, and of all tensors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.formats.gguf_file import GgufFile
from attnlaw.checkpoints.tensors import Tensors
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


class GgufParts(Tensors):
    """The tensors of all parts of a GGUF model. The parts must be in one directory."""

    def __init__(self, path: Path, file: GgufFile) -> None:
        name, count = _name_and_count(path, file.split)
        self.source = str(path.with_name(f"{name}-*-of-{count:05d}.gguf"))
        paths = [path.with_name(f"{name}-{number + 1:05d}-of-{count:05d}.gguf") for number in range(count)]
        self._parts = [file if part == path else _open_part(part, path) for part in paths]
        self.metadata = self._parts[0].metadata
        self._part_of: dict[str, GgufFile] = {}
        for number, part in enumerate(self._parts):
            _require_member(part, number, count, self._parts[0].metadata)
            for tensor in part.shapes:
                if tensor in self._part_of:
                    both = f"{self._part_of[tensor].source} and {part.source}"
                    raise InputError(f"{both} both have the tensor {tensor}; {REMEDY}")
                self._part_of[tensor] = part
        self._require_all()
        self.shapes = {tensor: part.shapes[tensor] for tensor, part in self._part_of.items()}

    def dtype(self, name: str) -> str:
        return self._part_of[name].dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        return self._part_of[name].read(name, member)

    def _require_all(self) -> None:
        """Raise an `InputError` if a part states another number of tensors than all parts have."""
        for part in self._parts:
            if (stated := part.split.get("tensors.count")) not in (None, len(self._part_of)):
                raise InputError(
                    f"{part.source}: its header (split.tensors.count) states {stated!r:.20} tensors in all "
                    f"parts, but they have {len(self._part_of)}; {REMEDY}"
                )


def _name_and_count(path: Path, split: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name that all parts share, and their number."""
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
    """Raise an `InputError` if a part says that it is another part, or belongs to another model."""
    stated = part.split.get("no", 0), part.split.get("count")
    if stated != (number, count):
        raise InputError(
            f"{part.source}: its header says part {stated[0]!r:.20} of {stated[1]!r:.20} (counted from 0), "
            f"expected {number} of {count}; {REMEDY}"
        )
    for key in part.metadata.keys() & first.keys():
        if part.metadata[key] != first[key]:
            raise InputError(
                f"{part.source}: {key} is {part.metadata[key]!r:.40}, but {first[key]!r:.40} in the first "
                f"part; {REMEDY}"
            )
