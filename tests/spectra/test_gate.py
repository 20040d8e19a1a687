"""The gate under real threads: never over budget, except for work that is alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import sleep

import pytest

from attnlaw.numerics.threads import MemoryGate


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
