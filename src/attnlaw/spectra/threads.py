"""Work in threads: results in their order, memory within a budget, numbers whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from threadpoolctl import threadpool_limits

from attnlaw.numerics.cores import short_switch_interval, usable_cores
from attnlaw.spectra.gate import MemoryGate

R = TypeVar("R")


def in_threads(
    work: Sequence[tuple[int, Callable[[], R]]], budget: int, jobs: int | None, on_done: Callable[[int], None]
) -> list[R]:
    """The results of (bytes in memory, function), in their order; `on_done` hears how many are done.

    Each thread works with one BLAS thread, so the numbers do not depend on `jobs`.

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
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    # Work begins in its order: of those that failed the first is told, whichever ended first.
    return [future.result() for future in futures]
