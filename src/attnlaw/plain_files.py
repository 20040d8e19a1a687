"""Files from strangers, opened with care: plain files only, sizes bounded, links that stay inside."""

from __future__ import annotations

from pathlib import Path

from attnlaw.errors import InputError

MEGABYTE = 2**20


def require_plain(path: Path) -> Path:
    """The path itself, of a plain file (or a link to one); reading a pipe or a device might never end."""
    if not path.is_file():
        raise InputError(f"{path}: not a plain file; give a file on disk")
    return path


def read_bounded(path: Path, megabytes: int, remedy: str = "check its permissions") -> bytes:
    """All of a file that, where it is what it should be, is never larger than so many megabytes."""
    most = megabytes * MEGABYTE
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    if len(data) > most:
        raise InputError(f"{path}: larger than {megabytes} MB, which no such file is; copy it again")
    return data


def leads_outside(path: Path) -> bool:
    """Whether a link leads out of its directory, and not into the store of a hub's cache.

    That cache keeps `models--NAME/snapshots/REVISION/FILE` as links into `models--NAME/blobs/`, also those
    in a directory of the revision.
    """
    folder, target = path.parent.resolve(), path.resolve()
    stores = [parent / "blobs" for parent in folder.parents[:3]]
    return not (target.is_relative_to(folder) or target.parent in stores)
