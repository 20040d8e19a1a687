"""Import names when they are first used.

The version of attnlaw, and which versions wrote results that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from attnlaw.core.errors import InputError


def lazy_attribute(package: str, names: Mapping[str, str], name: str) -> Any:
    """Return what a package calls `name`, from the module that `names` has for it."""
    if name in names:
        return getattr(import_module(names[name]), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def resolve(path: Any) -> Any:
    """Import and return what `module:name` names; return anything that is no text as it is."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


VERSION_COLUMN = "attnlaw_version"  # of rows and of summary.json
UNREADABLE = re.compile(r"0\.[0-2](\.\d{1,6})?(?!\d)")  # 0.3 has another layout


def version() -> str:
    from attnlaw import __version__

    return __version__


def require_readable_version(written: Any, where: str, remedy: str) -> None:
    """Raise an `InputError` if `written`, the version in a file, is one before 0.3.

    >>> require_readable_version("0.3.0", "rows.parquet", "run again")
    >>> require_readable_version("0.2.0", "rows.parquet", "run again")
    Traceback (most recent call last):
    attnlaw.core.errors.InputError: rows.parquet: attnlaw 0.2.0 wrote it, expected 0.3 or later; run again
    """
    if isinstance(written, str) and (old := UNREADABLE.match(written)):
        raise InputError(f"{where}: attnlaw {old.group()} wrote it, expected 0.3 or later; {remedy}")
