"""Work in threads: memory stays within the budget, and the first part that failed gives the error."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from time import sleep

import pytest

from attnlaw.numerics.threads import MemoryGate, in_threads


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_first_that_failed_is_told(jobs: int) -> None:
    later = Event()

    def slow() -> None:
        later.wait(0.5 if jobs > 1 else 0)
        raise ValueError("first")

    def quick() -> None:
        later.set()
        raise ValueError("second")

    for _ in range(20):
        later.clear()
        with pytest.raises(ValueError, match="first"):
            in_threads([(1, slow), (1, quick), (1, quick)], budget=9, jobs=jobs, on_done=lambda done: None)


def test_sizes_inside_never_pass_the_budget():
    gate, seen, lock = MemoryGate(10), [], Lock()

    def work(size):
        with gate.reserve(size):
            with lock:
                seen.append((size, gate.bytes_in_use))
            sleep(0.001)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [1, 3, 7, 12, 5, 5, 2, 12, 9, 4] * 5))
    assert len(seen) == 50
    assert all(inside <= 10 or size == inside for size, inside in seen)
    assert max(inside for _, inside in seen if inside <= 10) > 7
    assert gate.bytes_in_use == 0


def test_an_error_inside_gives_the_place_back():
    gate = MemoryGate(5)
    with pytest.raises(KeyError), gate.reserve(5):
        raise KeyError
    assert gate.bytes_in_use == 0


def test_an_interruption_of_a_lock_stays_an_interruption(monkeypatch):
    """Python's own wait can answer Ctrl-C with `RuntimeError: release unlocked lock`."""

    def interrupted(futures):
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr("attnlaw.numerics.threads.as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_threads([(1, lambda: None)], budget=1, jobs=1, on_done=lambda done: None)
