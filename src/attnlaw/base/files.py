"""Files written whole or not at all: to a temporary name in the same directory, then renamed."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.base.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block ends without an error.

    What a kill leaves is called `.NAME.xxxxxxxx.draft`: no pattern of an ending finds it.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = pathlib.Path(folder) / "rows.txt"
    ...     with replacing(target) as draft:
    ...         _ = draft.write_text("whole")
    ...     target.read_text()
    'whole'
    """
    target = replaceable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".draft", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); choose another directory"
        ) from error
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o666 & ~_umask())
        draft.replace(target)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); choose another directory"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def replaceable(path: str | os.PathLike[str]) -> Path:
    """The path; an `InputError` where a directory stands, which no file can replace."""
    target = Path(path)
    if os.path.isdir(target) and not os.path.islink(target):  # noqa: PTH112, PTH114 (these never raise)
        raise InputError(f"{target}: cannot be written (a directory is there); choose another directory")
    return target


def replace_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files: all beside their places before the first takes an older one's place."""
    with ExitStack() as drafts:
        for path, data in contents.items():
            drafts.enter_context(replacing(path)).write_bytes(data)


def usable_directory(path: str | os.PathLike[str]) -> Path:
    """The directory, made where it is missing; an `InputError` where files cannot be written to it."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"{folder}: is a file, expected a directory; choose another name") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror}); choose another directory") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: cannot be written to; choose another directory")
    return folder


def parquet(table: pl.DataFrame) -> bytes:
    """A table as the bytes of a parquet file: written by Python, a full disk is an OSError that says so."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def to_json(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """JSON text of plain values; a non-finite float is an error (missing is null, never NaN).

    >>> print(to_json("modèle"), to_json("modèle", ascii_only=True))
    "modèle" "mod\\u00e8le"
    """
    return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=ascii_only)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
