"""Files from strangers, opened with care: plain files only, sizes bounded, links that stay inside."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from attnlaw.base.errors import InputError

MEGABYTE = 2**20
MOST_INTEGER = 2**63  # TOML's integers have 64 bits; Python's parser takes hexadecimal ones of any length
MOST_NESTED = 32
# Texts and comments of a TOML file, also those that do not end.
OPAQUE = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}'
    r"|'''(?:[^']|'(?!''))*+'{0,5}"
    r'|"(?:[^"\\\n]|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
# A key of more parts than tables may nest: the parser would take the square of their number in time.
LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_NESTED}}}")


def require_possible(path: Path) -> Path:
    """The path itself, whether it exists or not; one that the system does not take is refused."""
    try:
        path.exists()
    except OSError as error:
        raise InputError(f"{path}: cannot be a path here ({error.strerror}); give another one") from error
    return path


def require_plain(path: Path) -> Path:
    """The path itself, of a plain file (or a link to one); reading a pipe or a device might never end."""
    if not path.is_file():
        raise InputError(f"{path}: not a plain file; give a file on disk")
    return path


def read_bounded(path: Path, megabytes: int, remedy: str = "check its permissions") -> bytes:
    """All of a file that, where it is what it should be, is never larger than so many megabytes."""
    most = megabytes * MEGABYTE
    try:
        path.stat()
        with require_plain(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    if len(data) > most:
        raise InputError(f"{path}: larger than {megabytes} MB, which no such file is; copy it again")
    return data


def parse_toml(data: bytes, where: str, remedy: str = "correct the file") -> dict[str, Any]:
    """The tables of a TOML file, its integers of 64 bits and its tables nested a few deep.

    >>> parse_toml(b"seeds = 0x" + b"f" * 5000, "study.toml")
    Traceback (most recent call last):
    ...
    attnlaw.base.errors.InputError: study.toml: seeds: an integer of more than 64 bits; correct the file
    """
    try:
        text = data.decode("utf-8")
        if LONG_KEY.search(OPAQUE.sub("text", text)):
            raise ValueError(f"a key of more than {MOST_NESTED} parts")
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid TOML ({error}); {remedy}") from error
    for key, value in content.items():
        _require_small(value, f"{where}: {key}", remedy)
    return content


def _require_small(value: Any, place: str, remedy: str, nested: int = 1) -> None:
    if isinstance(value, int) and not -MOST_INTEGER <= value < MOST_INTEGER:
        raise InputError(f"{place}: an integer of more than 64 bits; {remedy}")
    if nested > MOST_NESTED:
        raise InputError(f"{place}: nested more than {MOST_NESTED} deep; {remedy}")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        _require_small(part, place, remedy, nested + 1)


def leads_outside(path: Path) -> bool:
    """Whether a link leads out of its directory, and not into the store of a hub's cache.

    That cache keeps `models--NAME/snapshots/REVISION/FILE` as links into `models--NAME/blobs/`, also those
    in a directory of the revision.
    """
    folder, target = path.parent.resolve(), path.resolve()
    stores = [parent / "blobs" for parent in folder.parents[:3]]
    return not (target.is_relative_to(folder) or target.parent in stores)
