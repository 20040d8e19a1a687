"""Figures of an earlier run: removed where attnlaw wrote them and nobody changed them since.

A list beside the figures tells what was written, with a digest of each file; no other file is ever removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from attnlaw.base.errors import InputError
from attnlaw.base.files import read_bounded, replacing, to_json
from attnlaw.report.style import FORMATS

LIST = ".attnlaw-figures.json"
MOST = 1  # megabytes of it


def remove_earlier(folder: Path, written: Iterable[Path]) -> None:
    """Remove what earlier runs drew in the directory and this one did not; another format of it may stay."""
    now = {path.name: _digest(path) for path in written}
    names = {Path(name).stem for name in now}
    known = _listed(folder)
    for name in [name for name in known if Path(name).stem not in names]:
        digest, path = known.pop(name), folder / name
        if path.is_file() and not path.is_symlink() and _digest(path) == digest:
            path.unlink()
    if folder.is_dir():
        with replacing(folder / LIST) as draft:
            draft.write_text(to_json(known | now), encoding="utf-8")


def _listed(folder: Path) -> dict[str, str]:
    """Names of figures in the directory itself, with their digests; none where the list cannot be read."""
    path = folder / LIST
    try:
        found = json.loads(read_bounded(path, MOST, "remove it")) if path.is_file() else {}
    except (InputError, ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: digest for name, digest in pairs if Path(name).name == name and name.endswith(FORMATS)}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
