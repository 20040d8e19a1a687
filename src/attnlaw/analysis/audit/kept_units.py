"""Find and remove the finished units of audits that were interrupted (see `unfinished`, which keeps them)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

FOLDER = "unfinished"  # inside the directory of the results
UNITS, WHOLE = ".units", ".whole"


def remove_kept_units(directory: str | Path) -> None:
    """Remove the units of every model that has already been measured as a whole."""
    folder = Path(directory) / FOLDER
    if folder.is_dir() and not folder.is_symlink():
        for path in folder.glob(f"*{WHOLE}"):
            path.unlink(missing_ok=True)
        remove_if_empty(folder)


def has_kept_units(directory: str | Path) -> bool:
    """Return whether a directory has finished units of an audit that was interrupted."""
    files = (Path(directory) / FOLDER).glob("*")
    return any(path.suffix in (UNITS, WHOLE) and path.stat().st_size for path in files)


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
