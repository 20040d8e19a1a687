"""The type of progress functions. Long work calls them with the numbers of finished and of all parts."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None: ...
