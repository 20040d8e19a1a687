"""Progress of long work: a function that is called with what is done and the total."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Progress that nobody watches."""
