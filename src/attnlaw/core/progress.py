"""The type of functions that follow long work: they get the numbers of finished parts and of all parts."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None: ...
