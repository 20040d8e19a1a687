"""The version of attnlaw, and a check that rejects files with an older layout."""

from __future__ import annotations

import re
from typing import Any

from attnlaw.core.errors import InputError

VERSION_COLUMN = "attnlaw_version"  # the column of rows and the key of summary.json that name the version
UNREADABLE = re.compile(r"0\.[0-2](\.\d{1,6})?(?!\d)")  # 0.3 has another layout


def version() -> str:
    from attnlaw import __version__

    return __version__


def require_readable_version(written: Any, where: str, remedy: str) -> None:
    """Raise an `InputError` if a version before 0.3 wrote the file, because the layout was different then.

    >>> require_readable_version("0.3.0", "rows.parquet", "run again")
    >>> require_readable_version("0.2.0", "rows.parquet", "run again")
    Traceback (most recent call last):
    attnlaw.core.errors.InputError: rows.parquet: attnlaw 0.2.0 wrote it, expected 0.3 or later; run again
    """
    if isinstance(written, str) and (old := UNREADABLE.match(written)):
        raise InputError(f"{where}: attnlaw {old.group()} wrote it, expected 0.3 or later; {remedy}")
