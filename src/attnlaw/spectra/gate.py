"""A gate that keeps the work in flight below a budget, so that more threads never need more memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Gate:
    """Lets work of a given size in while the sizes inside stay within the budget; anything alone may enter.

    >>> gate = Gate(budget=10)
    >>> with gate.holding(6), gate.holding(4):
    ...     gate.inside
    10
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.inside = 0
        self._changed = Condition()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Wait until `size` fits (or nothing else is inside), and hold it for the block."""
        with self._changed:
            self._changed.wait_for(lambda: self.inside == 0 or self.inside + size <= self.budget)
            self.inside += size
        try:
            yield
        finally:
            with self._changed:
                self.inside -= size
                self._changed.notify_all()
