"""How many threads are worth starting, and how soon they let each other go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds after which a thread that computes in Python lets another one go on.
SWITCH = 0.0005


def usable_cores() -> int:
    """Cores this process may use.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Inside, threads that come back from BLAS, or a page in hand, wait at most `SWITCH` for their turn.

    Python's own interval, 5 ms, is as long as what BLAS does for a head.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
