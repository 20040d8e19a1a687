"""Several files joined by an index (`*.index.json`), the layout of large Hugging Face checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError
from attnlaw.core.files import links_outside, read_bounded

MOST_NAME = 255  # bytes in the name of a file


class ShardedTensors(Tensors):
    """The tensors of all shards that an index names; every shard lies in the index's own directory."""

    def __init__(self, index: Path, open_file: Callable[[Path], Tensors]) -> None:
        self.source = str(index)
        self.metadata = {}
        weight_map = _weight_map(index)
        shards = {file: open_file(_inside(index, file)) for file in sorted(set(weight_map.values()))}
        self._shard_of = {name: shards[file] for name, file in weight_map.items()}
        for name, shard in self._shard_of.items():
            if name not in shard.shapes:
                raise InputError(
                    f"{index}: tensor {name} is not in {shard.source}; download the shards again"
                )
        self.shapes = {name: shard.shapes[name] for name, shard in self._shard_of.items()}

    def dtype(self, name: str) -> str:
        return self._shard_of[name].dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        return self._shard_of[name].read(name, member)

    def prefetch(self, name: str, member: int | None = None) -> None:
        self._shard_of[name].prefetch(name, member)


def _weight_map(index: Path) -> dict[str, str]:
    data = read_bounded(index, megabytes=32)
    try:
        weight_map = json.loads(data)["weight_map"]
        entries = {str(name): file for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{index}: not a shard index (JSON with {{"weight_map": {{tensor: file}}}}); download it again'
        ) from error
    if not entries or not all(isinstance(file, str) for file in entries.values()):
        raise InputError(f"{index}: its weight_map names no files; download it again")
    return entries


def _inside(index: Path, file: str) -> Path:
    """The shard's path; it must be a plain file name in the index's directory, and exist."""
    shard = index.parent / file
    if Path(file).name != file or file in ("", ".", ".."):
        raise InputError(
            f"{index}: names the shard {file!r}, which lies outside its directory; "
            "only file names beside the index are read"
        )
    if file.endswith(".index.json"):
        raise InputError(f"{index}: names another index, {file!r}, as a shard; download it again")
    if "\0" in file or len(file.encode(errors="surrogatepass")) > MOST_NAME or not shard.is_file():
        raise InputError(f"{index}: the shard {file!r} is missing; download it into the same directory")
    if links_outside(shard):
        raise InputError(
            f"{index}: the shard {file!r} is a link to {shard.resolve()}, outside its directory; "
            "copy the file, or name it directly"
        )
    return shard
