"""A gate that keeps the work in flight below a budget, so that more threads never need more memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class MemoryGate:
    """Lets work of a given size in while the sizes inside stay within the budget; anything alone may enter.

    >>> gate = MemoryGate(budget=10)
    >>> with gate.reserve(6), gate.reserve(4):
    ...     gate.bytes_in_use
    10
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes_in_use = 0
        self._changed = Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Wait until `size` fits (or nothing else is inside), and hold it for the block."""
        with self._changed:
            self._changed.wait_for(lambda: self.bytes_in_use == 0 or self.bytes_in_use + size <= self.budget)
            self.bytes_in_use += size
        try:
            yield
        finally:
            with self._changed:
                self.bytes_in_use -= size
                self._changed.notify_all()
