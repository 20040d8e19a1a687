"""A file that is opened again for every tensor, and must stay the one whose header was read.

A training job saves its next step by renaming a new file over the old one: tensors read before and after
would be halves of two networks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError
from attnlaw.core.files import require_regular_file


class UnchangedFile:
    """The bytes of a plain file; made before its header is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            status = path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        require_regular_file(path)
        self._state, self.size = _state(status), status.st_size

    def read(self, offset: int, count: int, name: str) -> NDArray[np.uint8]:
        """The `count` bytes from `offset` on, of the tensor `name`."""
        if offset + count > self.size:
            raise InputError(
                f"{self._path}: tensor {name} lies past the end of the file; copy or download it again"
            )
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                data = np.fromfile(file, dtype=np.uint8, count=count)
                state = _state(os.fstat(file.fileno()))  # after the bytes: they might change with it
        except OSError as error:
            raise self._unreadable(error) from error
        if state != self._state or data.size != count:
            raise InputError(f"{self._path}: changed while it was read; run again on a file that stays")
        return data

    def prefetch(self, offset: int, count: int) -> None:
        """Let the system read bytes into its cache while something else is computed; where it can."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError), self._path.open("rb") as file:
                os.posix_fadvise(file.fileno(), offset, count, os.POSIX_FADV_WILLNEED)

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"{self._path}: cannot be read ({error.strerror}); keep it in place while it is read"
        )


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
