"""Work in threads: the error that is told is that of the first part that failed, whichever ended first."""

from threading import Event

import pytest

from attnlaw.numerics.threads import in_threads


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
