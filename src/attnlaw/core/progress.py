"""Progress of long work: the functions that are called with it, and an estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with the numbers of finished and of all parts
LEAST_SHARE = 0.05  # of the work that must be done before there is an estimate of the time left
LEAST_STEPS = 2  # for an estimate
ENOUGH_STEPS = 3  # from which on the slowest step is left out of the estimate


def no_progress(done: int, total: int) -> None: ...


def is_early(done: int, total: int) -> bool:
    """Return whether it is too early to estimate the remaining time."""
    return done <= 0 or done < LEAST_SHARE * total


class TimeLeft:
    """An estimate of the remaining seconds from the pace so far, or None before 5% of the work is done.

    The estimate ignores the slowest step, because the first step often loads libraries or reads model files.

    >>> times = iter([0.0, 20.0, *range(22, 32, 2)])  # the first step takes 20 seconds, the others take 2
    >>> left = TimeLeft(lambda: next(times))
    >>> [left.update(done, 100) for done in range(1, 7)]
    [None, None, None, None, 190.0, 188.0]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._restart(0, 0)

    def _restart(self, done: int, total: int) -> None:
        self._total = total
        self._began = self._last = self._clock()
        self._first = self._done = done
        self._steps = 0
        self._slowest = (0.0, 0)  # seconds and parts of the step with the slowest pace

    def update(self, done: int, total: int) -> float | None:
        """Record the number of finished parts, and return the remaining seconds."""
        if self._total == 0:
            self._total = total
        elif total != self._total or done < self._done:  # the next stage of the work
            self._restart(done, total)
        if done > self._done:
            now, parts = self._clock(), done - self._done
            seconds, slow_parts = self._slowest
            if (now - self._last) * slow_parts >= seconds * parts:
                self._slowest = (now - self._last, parts)
            self._last, self._done = now, done
            self._steps += 1
        if self._steps < LEAST_STEPS or is_early(done, total):
            return None
        seconds, parts = self._last - self._began, self._done - self._first
        if self._steps >= ENOUGH_STEPS:
            seconds, parts = seconds - self._slowest[0], parts - self._slowest[1]
        return seconds / parts * (total - done)
