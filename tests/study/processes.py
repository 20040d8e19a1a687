"""Processes that tests start, await, look at and kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

PATIENCE = 300.0  # seconds that any awaited state may take on a busy machine


@contextmanager
def forked(target: Callable[..., None], *given: object) -> Iterator[BaseProcess]:
    """A process of its own, that is gone in the end."""
    process = get_context("forkserver").Process(target=target, args=[str(value) for value in given])
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def children(pid: int | None) -> list[int]:
    """The workers of a driver: all that its threads have started."""
    threads = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted({int(child) for children in threads for child in children})


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
