"""Checkpoints of several files: shards with an index, and Meta's `consolidated.NN.pth`.

Meta's LLaMA has one file for each device of a tensor-parallel model, and every file has every name. A matrix
whose outputs are divided among devices is stored (out / parts, in); if its inputs are divided, it is stored
(out, in / parts). Norms are whole in each file. Embeddings are divided by columns in LLaMA 1 and 2, and by
rows (words) in LLaMA 3.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import read_params
from attnlaw.checkpoints.tensors import GatheredTensors, Tensors
from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import distinct_keys, links_outside, read_bounded

MOST_NAME = 255  # the most bytes in the name of a file
PART = re.compile(r"consolidated\.([0-9]{2})\.pth")
PARAMS = "params.json"
WORDS = "tok_embeddings"
# The axis along which the parts of a module's weight are joined.
AXES = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1, WORDS: 1}


class ShardedTensors(GatheredTensors):
    """The tensors of all shards that an index names, which must be in the directory of the index.

    Further tensors in a shard are read like the others. Copies of tensors in other shards must be equal.
    """

    def __init__(self, index: Path, open_file: Callable[[Path], Tensors]) -> None:
        weight_map = _weight_map(index)
        shards = {file: open_file(_inside(index, file)) for file in sorted(set(weight_map.values()))}
        shard_of = {name: shards[file] for name, file in weight_map.items()}
        for name, part in shard_of.items():
            if name not in part.shapes:
                raise InputError(f"{index}: tensor {name} is not in {part.source}; download the shards again")
        for part in shards.values():
            for name in part.shapes:
                if (other := shard_of.setdefault(name, part)) is not part:
                    _require_equal(name, other, part)
        super().__init__(str(index), {name: (shard, name) for name, shard in shard_of.items()})
        self.texts = {key: text for shard in shards.values() for key, text in shard.texts.items()}


def _require_equal(name: str, first: Tensors, second: Tensors) -> None:
    same = first.shapes[name] == second.shapes[name] and first.dtype(name) == second.dtype(name)
    if not same or not np.array_equal(_bits(first.read(name)), _bits(second.read(name))):
        raise second.error(
            f"tensor {name} differs from the one in {first.source}, so the two files belong to different "
            "models; download all files of one model again"
        )


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _weight_map(index: Path) -> dict[str, str]:
    data = read_bounded(index, megabytes=32)
    what = f'{index}: this is not an index of shards, which is JSON with {{"weight_map": {{tensor: file}}}}'
    errors = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    with as_input_error(what, "download it again", *errors):
        weight_map = json.loads(data, object_pairs_hook=distinct_keys)["weight_map"]
        entries = {str(name): file for name, file in weight_map.items()}
    if not entries or not all(isinstance(file, str) for file in entries.values()):
        raise InputError(f"{index}: this index lists no files in its weight_map; download it again")
    return entries


def _inside(index: Path, file: str) -> Path:
    shard = index.parent / file
    if Path(file).name != file or file in ("", ".", ".."):
        raise InputError(
            f"{index}: this index names the shard {file!r}, which is outside its directory; put all "
            "shards next to the index"
        )
    if file.endswith(".index.json"):
        raise InputError(f"{index}: this index names another index, {file!r}, as a shard; download it again")
    if "\0" in file or len(file.encode(errors="surrogatepass")) > MOST_NAME or not shard.is_file():
        raise InputError(f"{index}: the shard {file!r} is missing; download it into the same directory")
    if links_outside(shard, index.parent):
        raise InputError(
            f"{index}: the shard {file!r} is a link to {os.path.realpath(shard)}, which is outside this "
            "directory; copy the file into the directory, or give the file itself"
        )
    return shard


class ConsolidatedTensors(Tensors):
    """The tensors of all `consolidated.NN.pth` in a directory. Reading a tensor joins its parts."""

    def __init__(self, folder: Path, open_part: Callable[[Path], Tensors]) -> None:
        files = _files(folder)
        self.source = str(files[0]) if len(files) == 1 else str(folder / "consolidated.*.pth")
        self.metadata = {}
        self._parts = [open_part(file) for file in files]
        first = self._parts[0]
        for other in self._parts[1:]:
            if odd := set(first.shapes) ^ set(other.shapes):
                raise other.error(
                    f"found the tensor {min(odd)} either only here or only in {first.source}, expected it in "
                    "every part; download all parts of one model again"
                )
        self._require_all(folder)
        self.shapes = {name: self._shape(name) for name in first.shapes}

    def dtype(self, name: str) -> str:
        return self._parts[0].dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        axis = self._axis(name)
        if axis is None:
            for other in self._parts[1:]:
                _require_equal(name, self._parts[0], other)
            return self._parts[0].read(name, member)
        joined = np.concatenate([part.read(name) for part in self._parts], axis=axis)
        return joined if member is None else joined[member]

    def _axis(self, name: str) -> int | None:
        """Return the axis along which the parts are joined, or None if each part has the whole tensor."""
        shape, module = self._parts[0].shapes[name], name.split(".")[-2:][0]
        if len(self._parts) == 1 or len(shape) < 2:
            return None
        if module not in AXES:
            raise self.error(
                f"attnlaw does not know how to join the parts of tensor {name}, because it is not one of "
                f"Meta's names ({', '.join(AXES)}); join the parts with the program of the model"
            )
        by_rows = module == WORDS and self._parts[0].shapes.get("norm.weight") == shape[1:]
        return 0 if by_rows else AXES[module]

    def _shape(self, name: str) -> tuple[int, ...]:
        shapes, axis = [part.shapes[name] for part in self._parts], self._axis(name)
        if axis is None:
            return shapes[0]
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
            raise self.error(
                f"the parts of tensor {name} have the shapes "
                f"{', '.join(str(list(shape)) for shape in shapes)}, which do not fit together; download "
                "all parts of one model again"
            )
        joined = list(shapes[0])
        joined[axis] = sum(shape[axis] for shape in shapes)
        return tuple(joined)

    def _require_all(self, folder: Path) -> None:
        shapes = self._parts[0].shapes
        name = next((name for name in shapes if name.endswith("attention.wo.weight")), None)
        if name is None or len(shapes[name]) != 2 or 0 in shapes[name]:
            return  # building the layers reports the problem
        params = read_params(folder / PARAMS)
        heads, size = params.size("n_heads"), params.size("head_dim")
        outputs, inputs = shapes[name]
        whole = heads * size if heads and size else outputs
        if whole != inputs * len(self._parts):
            raise self.error(
                f"tensor {name} has {inputs} of {whole} input columns in each file, so there must be "
                f"{whole // inputs} files, but found {len(self._parts)}; download all of them, and {PARAMS}"
            )


def _files(folder: Path) -> list[Path]:
    files = {int(hit[1]): file for file in folder.iterdir() if (hit := PART.fullmatch(file.name))}
    missing = set(range(max(files) + 1)) - set(files)
    if missing:
        raise InputError(
            f"{folder}: consolidated.{min(missing):02d}.pth is missing next to the other parts; "
            "download it into the same directory"
        )
    return [files[number] for number in sorted(files)]
