"""Read and write files safely: readers never see half a file, and no link or size is trusted."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import InputError, as_input_error

if TYPE_CHECKING:
    import polars as pl

MEGABYTE = 2**20
MOST_INTEGER = 2**63  # TOML's integers have 64 bits; Python's parser takes hexadecimal ones of any length
MOST_NESTED = 32
# Longer than any map of names by far. Python's parser takes the square of the parts of one key in time.
LARGEST_TOML = 32 * 1024
LARGEST_JSON = 64  # megabytes of what attnlaw wrote


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `path`, and rename it to `path` if the block ends without an error.

    If the process is killed, it leaves a file `.NAME.xxxxxxxx.draft`, which `*.parquet` does not match.
    """
    target = require_replaceable(path)
    with as_write_error(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".draft", dir=target.parent)
        os.close(handle)
        draft = Path(name)
        try:
            yield draft
            mask = os.umask(0)  # the mask can be read only by setting it
            os.umask(mask)
            draft.chmod(0o666 & ~mask)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def as_write_error(target: Path) -> AbstractContextManager[None]:
    """Turn an OSError in the block into an `InputError` that says that the target cannot be written."""
    return as_input_error(f"{target}: cannot be written", "choose another directory")


def require_replaceable(path: str | os.PathLike[str]) -> Path:
    """Return the path, or raise an `InputError` if it is a directory."""
    target = Path(path)
    with as_write_error(target):
        if os.path.isdir(target) and not os.path.islink(target):  # noqa: PTH112, PTH114 (these never raise)
            raise IsADirectoryError(errno.EISDIR, "a directory is there")
    return target


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files completely before any of them replaces an older file."""
    with ExitStack() as drafts:
        for path, data in contents.items():
            drafts.enter_context(write_atomically(path)).write_bytes(data)


def writable_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory, and create it if needed. Raise an `InputError` if attnlaw cannot write to it."""
    folder = Path(path)
    with as_write_error(folder):
        existing = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), None)
        if existing is not None and not os.path.isdir(existing):  # noqa: PTH112 (this never raises)
            where = "this" if existing == folder else str(existing)
            raise InputError(f"{folder}: expected a directory, but {where} is a file; choose another name")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return folder


@contextmanager
def remove_if_refused(path: str | os.PathLike[str], is_needed: Callable[[], bool]) -> Iterator[None]:
    """If the block raises an `InputError`, remove a directory that the block created, with everything in it.

    The directory stays if `is_needed` then returns true. Parent directories that the block created are
    removed if they are empty.
    """
    folder = Path(path)
    created = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        yield
    except InputError:
        if created and not is_needed():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # a parent is not empty
                for parent in created[1:]:
                    parent.rmdir()
        raise


def to_parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the bytes of a parquet file. Writing them from Python gives clear errors."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def to_json(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return plain values as JSON text. Raise a ValueError for NaN and infinity."""
    return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=ascii_only)


def require_valid_path(path: Path) -> Path:
    with as_input_error(f"{path}: not a valid path", "give another one"):
        path.exists()
    return path


def require_exists(path: Path, remedy: str) -> Path:
    missing = (FileNotFoundError, NotADirectoryError)
    with as_input_error(f"{path}: no such file", remedy, *missing, with_reason=False):
        path.stat()
    return path


def require_regular_file(path: Path) -> Path:
    """Return the path, or raise an `InputError` if it is not a regular file. A pipe might never end."""
    if not path.is_file():
        raise InputError(
            f"{path}: this is not a regular file but, for example, a pipe or a directory; give a file on disk"
        )
    return path


def read_bounded(path: Path, megabytes: int, remedy: str | None = None) -> bytes:
    """Return the bytes of a file. Raise an `InputError` if the file is larger than `megabytes`."""
    most = megabytes * MEGABYTE
    with as_input_error(f"{path}: cannot be read", remedy or "check its permissions"):
        require_exists(path, remedy or "check the path")
        with require_regular_file(path).open("rb") as file:
            data = file.read(most + 1)
    if len(data) > most:
        raise InputError(
            f"{path}: this file is larger than {megabytes} MB, which is too large for its "
            "kind; check the path"
        )
    return data


def read_json(path: Path, remedy: str) -> Any:
    """Return the content of a JSON file that attnlaw wrote.

    Raise an `InputError` for NaN and for lone surrogates, which an HTML page cannot hold.
    """
    data = read_bounded(path, LARGEST_JSON, remedy)

    def reject(text: str) -> float:
        raise ValueError(f"found {text}, which JSON does not allow")

    with as_input_error(f"{path}: this file was not written by attnlaw", remedy, ValueError, RecursionError):
        content = json.loads(data, parse_constant=reject)
        json.dumps(content, ensure_ascii=False).encode()
    return content


def parse_json(data: bytes, path: Path, remedy: str) -> Any:
    """Parse a JSON file that another program wrote. Raise an `InputError` if the file is not valid JSON."""
    with as_input_error(f"{path}: not valid JSON", remedy, ValueError, RecursionError, with_reason=False):
        return json.loads(data)


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, for `json.loads`. Raise a ValueError for a repeated key."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"{key} occurs twice")
        entries[key] = value
    return entries


def parse_toml(
    data: bytes, where: str, remedy: str = "correct the file", max_bytes: int = LARGEST_TOML
) -> dict[str, Any]:
    """Return the tables of a TOML file, or raise an `InputError` if it is too large or nested too deeply.

    >>> parse_toml(b"seeds = 0x" + b"f" * 5000, "study.toml")
    Traceback (most recent call last):
    ...
    attnlaw.core.errors.InputError: study.toml: seeds: found an integer of more than 64 bits; correct the file
    """
    if len(data) > max_bytes:
        raise InputError(
            f"{where}: larger than {max_bytes // 1024} kB, which is too large for its kind; {remedy}"
        )
    with as_input_error(f"{where}: not valid TOML", remedy, ValueError, RecursionError):
        content = tomllib.loads(data.decode("utf-8"))
    for key, value in content.items():
        _require_small(value, f"{where}: {key}", remedy)
    return content


def _require_small(value: Any, place: str, remedy: str, nested: int = 1) -> None:
    if isinstance(value, int) and not -MOST_INTEGER <= value < MOST_INTEGER:
        raise InputError(f"{place}: found an integer of more than 64 bits; {remedy}")
    if nested > MOST_NESTED:
        raise InputError(f"{place}: its values are nested more than {MOST_NESTED} deep; {remedy}")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_small(part, place, remedy, nested + 1)


def figures_directory(folder: Path) -> Path:
    """Return the directory for the figures of a result.

    The directory must not be a link, because figures would then replace files elsewhere.
    """
    path = folder / "figures"
    if path.is_symlink():
        raise InputError(
            f"{path}: this directory is a link to {path.readlink()}; remove the link, or "
            "give another directory"
        )
    return writable_directory(path) if path.exists() else path


def links_outside(path: Path, directory: Path) -> bool:
    """Return whether the path leads out of a directory through a link.

    A cache of a model hub stores `models--NAME/snapshots/REVISION/FILE` as links to `models--NAME/blobs/`.
    Such links are allowed.
    """
    folder, target = (Path(os.path.realpath(each)) for each in (directory, path))  # no error for a loop
    stores = [parent / "blobs" for parent in folder.parents[:3]]
    return not (target.is_relative_to(folder) or target.parent in stores)
