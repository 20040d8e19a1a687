"""One case in parts: what is finished is never computed again, whoever dies; a bad part ends its case."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from distributed import Client
from study import driver
from study.processes import alive, children, forked, until
from study.sample_verbs import TOTAL, Found, Total, calls

from attnlaw.core.errors import InputError
from attnlaw.study import Backend
from attnlaw.study import run_split as spread
from attnlaw.study.split_case import SplitStopped
from attnlaw.study.store import hold_lock, open_store


def finished(store: Path) -> int:
    with open_store(store) as opened:
        return sum(ending.error is None for ending in opened.endings().values())


def test_a_sum_in_parts_is_the_sum(tmp_path: Path) -> None:
    """Two routes: all at once, and joined of parts; the second time nothing is computed, forced all is."""
    cases = [Total(terms=terms, log=str(tmp_path)) for terms in (4, 13, 6)]
    said: list[str] = []
    heard: list[tuple[int, int, float | None]] = []
    four, bad, six = spread(
        TOTAL, cases, tmp_path / "s", announce=said.append, progress=lambda *now: heard.append(now)
    )
    assert [four, six] == list(TOTAL.run([cases[0], cases[2]], lambda *_: None))
    assert isinstance(bad, InputError)
    assert str(bad) == "terms: 13 brings bad luck; choose another"
    assert said == ["12 of 12 halves to compute, in 6 tasks"]
    assert [done for done, _, _ in heard] == [2, 4, 6, 8, 10, 12]  # the terms of four are those of six
    assert all(total == 12 for _, total, _ in heard)
    assert heard[-1][2] == 0
    assert sorted(calls(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert list(spread(TOTAL, [cases[2]], tmp_path / "s")) == [six]
    assert len(calls(tmp_path)) == 6
    assert list(spread(TOTAL, [cases[0]], tmp_path / "s", force=True)) == [four]
    assert calls(tmp_path)[6:] == [1, 2, 3, 4]


def test_a_part_that_fails_ends_its_case_and_no_other(tmp_path: Path) -> None:
    cases = [Total(terms=9, at=3, log=str(tmp_path)), Total(terms=3, log=str(tmp_path))]
    bad, good = spread(TOTAL, cases, tmp_path / "s")
    assert str(bad) == "x: not this one; this happened in part 3 of 9, and all finished parts are kept"
    assert good == Found(square=14.0)
    assert calls(tmp_path) == [1, 2, 3, 1, 2, 3]  # 4 to 9 are in vain
    assert str(next(spread(TOTAL, cases, tmp_path / "s"))) == str(bad)
    assert calls(tmp_path)[6:] == [3]  # what failed is tried again, what is finished is not


def test_a_lost_table_is_computed_again(tmp_path: Path) -> None:
    case = Total(terms=5, log=str(tmp_path))
    whole = list(spread(TOTAL, [case], tmp_path / "s"))
    next((tmp_path / "s").glob("parts/lines/*")).unlink()
    assert list(spread(TOTAL, [case], tmp_path / "s")) == whole
    assert len(calls(tmp_path)) == 6


def test_who_asks_to_stop_keeps_what_is_finished(tmp_path: Path) -> None:
    def progress(done: int, total: int, left: float | None) -> None:
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    case = Total(terms=6, log=str(tmp_path))
    with pytest.raises(SplitStopped):
        list(spread(TOTAL, [case], tmp_path / "s", progress=progress))
    assert finished(tmp_path / "s") == 2
    assert list(spread(TOTAL, [case], tmp_path / "s")) == [Found(square=91.0)]
    assert calls(tmp_path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_one_run_at_a_time_and_only_of_what_has_parts(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "s"), pytest.raises(InputError, match="another run is using this directory"):
        next(spread(TOTAL, [Total(terms=2)], tmp_path / "s"))
    assert TOTAL.split is not None
    with pytest.raises(InputError, match="term cannot be split among workers"):
        next(spread(TOTAL.split.verb, [], tmp_path / "s"))


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_killed_driver_loses_what_was_in_flight_and_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with forked(driver.sum_up, tmp_path / "told", store, 14, 0.2, tmp_path, 8) as process:
        workers: set[int] = set()
        while process.exitcode is None:
            workers |= set(children(process.pid))
            process.join(0.02)
    assert process.exitcode == -signal.SIGKILL
    until(lambda: not any(map(alive, workers)))
    kept, begun = finished(store), calls(tmp_path)
    assert 4 <= kept < 14
    assert list(spread(TOTAL, [Total(terms=14, seconds=0.2, log=str(tmp_path))], store)) == [
        Found(square=1015.0)
    ]
    again = calls(tmp_path)[len(begun) :]
    assert len(again) == 14 - kept == len(set(again))
    assert len(set(begun)) - kept == len(set(again) & set(begun))  # in flight, and nothing else


@pytest.mark.slow
def test_a_killed_worker_loses_what_it_computed_and_held(tmp_path: Path, two_workers: Backend) -> None:
    killed = False
    case = Total(terms=12, seconds=0.3, log=str(tmp_path))
    with Client(two_workers.dask, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))

        def progress(done: int, total: int, left: float | None) -> None:
            nonlocal killed
            if not killed:
                killed = True
                os.kill(victim, signal.SIGKILL)

        assert list(spread(TOTAL, [case], tmp_path / "s", two_workers, progress=progress)) == [
            Found(square=650.0)
        ]
    assert killed
    assert finished(tmp_path / "s") == 12
    # The part that died with its worker and, if that had just ended another, the one that it still held.
    assert len(calls(tmp_path)) <= 14
