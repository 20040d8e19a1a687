"""Run functions in threads, with results in order and memory within a budget.

Each function uses one BLAS thread, so the numbers do not depend on the number of threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Condition
from typing import TypeVar

from threadpoolctl import threadpool_limits

# Seconds after which a thread that runs Python code lets another one continue.
SWITCH = 0.0005


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let threads wait at most `SWITCH` seconds for Python's lock after a call of BLAS.

    Python's default of 5 ms is as long as the computation for one head.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class MemoryGate:
    """A gate that admits jobs while their total size is within a budget, or one job of any size."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes_in_use = 0
        self._changed = Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self.bytes_in_use == 0 or self.bytes_in_use + size <= self.budget)
            self.bytes_in_use += size
        try:
            yield
        finally:
            with self._changed:
                self.bytes_in_use -= size
                self._changed.notify_all()


R = TypeVar("R")


def in_threads(
    work: Sequence[tuple[int, Callable[[], R]]], budget: int, jobs: int | None, on_done: Callable[[int], None]
) -> list[R]:
    """Run functions in threads, by default on all cores, and return their results in order.

    `work` has pairs (memory in bytes, function). The functions that run at the same time need at most
    `budget` bytes. `on_done` is called with the number of functions that have finished.

    >>> in_threads([(1, lambda: "a"), (2, lambda: "b")], budget=2, jobs=2, on_done=lambda done: None)
    ['a', 'b']
    """
    gate = MemoryGate(budget)

    def within(size: int, run: Callable[[], R]) -> R:
        with gate.reserve(size):
            return run()

    with threadpool_limits(1), short_switch_interval(), ThreadPoolExecutor(jobs or usable_cores()) as pool:
        futures = [pool.submit(within, *call) for call in work]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                if future.exception() is not None:
                    break
                on_done(done)
        except RuntimeError as error:
            # Ctrl-C in the middle of a wait can leave its lock free, and Python then complains of the lock.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    # Functions start in order, so this raises the error of the first that failed, whichever ended first.
    return [future.result() for future in futures]
