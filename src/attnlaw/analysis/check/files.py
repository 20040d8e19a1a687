"""The file that reports point at, and its URI relative to the working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attnlaw.checkpoints.directories import find_checkpoint, single_model_path
from attnlaw.core.errors import InputError


def model_file(model: Any) -> str:
    """The file of a model on disk; what was given where there is none, as of a hub or in memory."""
    if not isinstance(model, str | os.PathLike):
        return type(model).__name__
    path = Path(model)
    if not path.is_dir():
        return os.fspath(model)
    try:
        return str(find_checkpoint(single_model_path(path)))
    except InputError:  # an adapter's directory, which holds no model
        return str(path)


def relative_uri(path: str) -> str:
    """A path as a URI reference, relative to the working directory; what is not on disk stays as it is.

    >>> relative_uri("no such model/a b.safetensors")
    'no%20such%20model/a%20b.safetensors'
    """
    plain = os.path.relpath(path) if os.path.lexists(path) else path
    return quote(os.fsencode(Path(plain).as_posix()), safe="/._-~@")
