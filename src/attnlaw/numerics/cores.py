"""How many threads are worth starting."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores this process may use.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
