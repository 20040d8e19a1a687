"""Studies on real Dask clusters: equal tables, poisoned tasks, killed workers, killed drivers, Ctrl-C.

Imports are most of what these processes do. Drivers, and the workers of clusters in this process, are forks
of a server that has imported all; the workers of a driver start as they do for everybody.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from distributed import Client
from distributed.comm import CommClosedError
from study import driver
from study.processes import PATIENCE, alive, children, forked, until
from study.sample_verbs import calls, exported, find, rows, study

from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.study import Backend, read_study, run, status
from attnlaw.study.cluster import AHEAD, DaskEngine
from attnlaw.study.engine import Stop
from attnlaw.study.run import Cost

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]
SLOW = 'verb = "square"\n[fixed]\nlog = "LOG"\nseconds = 0.2\n[grid]\nx = "1:24:24"\n'


def test_equal_tables_in_process_and_with_one_and_two_workers(tmp_path: Path, two_workers: Backend) -> None:
    text = 'verb = "draw"\n[grid]\nx = "0:1:8"\n[run]\nseed = 3\nseeds = 4\n'
    costs: list[Cost] = []
    for name, place in (("none", None), ("one", Backend(jobs=1)), ("two", two_workers)):
        report = run(study(tmp_path, text), tmp_path / name, place, announce=costs.append)
        assert report.done == 32
    assert [cost.workers for cost in costs] == [1, 1, 2]
    for name in ("one", "two"):
        assert exported(tmp_path / name) == exported(tmp_path / "none")
    assert exported(tmp_path / "none").keys() == {"attnlaw.json", "rows.parquet", "values.parquet"}


@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("raises", "ArithmeticError: poison in two lines", 2),
        ("input", "x: not this one", 1),
        ("exits", "the worker process died during this task (it", 2),
        ("hangs", 'exceeded its time limit of 1 s at File "', 2),
        ("freezes", 'exceeded its time limit of 1 s at File "', 2),
    ],
)
def test_a_poisoned_task_does_not_stop_the_others(
    tmp_path: Path, two_workers: Backend, how: str, error: str, attempts: int
) -> None:
    text = f'verb = "poisoned"\n[fixed]\nlog = "LOG"\nhow = "{how}"\nat = 20.0\n[grid]\nx = "1:60:60"\n'
    report = run(
        study(tmp_path, text + "[run]\nretries = 1\ntime_limit = 1\n"), tmp_path / "out", two_workers
    )
    (failure,) = report.failures
    assert failure.settings["x"] == 20
    assert failure.error.startswith(error)
    assert (report.done, report.missing) == (59, 0)
    assert calls(tmp_path).count(20) == attempts
    frame = rows(tmp_path / "out")
    assert frame["square"].to_list() == [None if x == 20 else x * x for x in range(1, 61)]
    assert not list((tmp_path / "out" / "running").iterdir())


def test_workers_killed_in_mid_run_in_mid_write_and_at_their_start(tmp_path: Path) -> None:
    """The only one is replaced three times; every row is there once, and no broken part among the tables."""
    file, out, transcript = tmp_path / "study.toml", tmp_path / "out", tmp_path / "told"
    study(tmp_path, SLOW.replace("square", "torn").replace("24", "16"))
    with forked(driver.drive, transcript, file, out, 1) as process:
        until(lambda: len(calls(tmp_path)) > 10)
        drafts = [path.name for path in (out / "drafts").iterdir()]
        (worker,) = children(process.pid)
        os.kill(worker, signal.SIGKILL)
        until(lambda: set(children(process.pid)) - {worker})
        (successor,) = set(children(process.pid)) - {worker}
        os.kill(successor, signal.SIGKILL)  # while it starts
        process.join(PATIENCE)
    standing = json.loads(transcript.read_text())
    assert (standing["done"], standing["failed"], standing["missing"]) == (16, 0, 0)
    assert len(drafts) == 1  # the half-written one is there, where nobody reads
    assert calls(tmp_path).count(3) == 2
    frame = rows(out)
    assert frame["x"].to_list() == list(range(1, 17))
    lines = pl.read_parquet(out / "lines.parquet").group_by("case", maintain_order=True)
    assert lines.len().rows() == [(case, 1000) for case in range(16)]
    assert lines.agg(pl.col("value").sum())["value"].to_list() == [499_500 * x for x in range(1, 17)]
    run(read_study(file, find), out)
    assert not list((out / "drafts").iterdir())  # swept by the next run


def test_a_killed_driver_leaves_no_worker_and_loses_no_row(tmp_path: Path) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "out"
    sample_study = study(tmp_path, SLOW)
    with forked(driver.drive, tmp_path / "told", file, out, 2) as process:
        until(lambda: (out / "store.sqlite").exists() and status(sample_study, out).done >= 5)
        workers = children(process.pid)
        process.kill()
        process.join()
    assert len(workers) >= 2
    until(lambda: not any(alive(child) for child in workers))
    kept, begun = status(sample_study, out).done, calls(tmp_path)
    in_flight = len(set(begun)) - kept
    assert in_flight <= 2 * AHEAD  # no more are ever on their way to two workers and back
    report = run(sample_study, out)
    assert (report.done, report.computed) == (24, 24 - kept)
    assert sorted(rows(out)["x"].to_list()) == list(range(1, 25))
    again = calls(tmp_path)[len(begun) :]
    assert len(set(again) & set(begun)) == in_flight  # nothing else was computed twice


def test_ctrl_c_stops_the_workers_and_keeps_every_finished_row(tmp_path: Path) -> None:
    file, out, transcript = tmp_path / "study.toml", tmp_path / "out", tmp_path / "told"
    sample_study = study(tmp_path, SLOW)
    with forked(driver.drive, transcript, file, out, 2) as process:
        until(lambda: len(calls(tmp_path)) > 8)
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the workers too
        process.join(PATIENCE)
    assert process.exitcode == 0
    report = json.loads(transcript.read_text())  # and not a word of anybody besides
    assert report["stopped"]
    begun = len(set(calls(tmp_path)))
    assert begun - 2 <= report["done"] <= begun  # but for what two workers began at that very moment
    assert report["done"] == status(sample_study, out).done == rows(out).height < 24


def test_two_runs_at_the_same_time(tmp_path: Path) -> None:
    file, out, transcript = tmp_path / "study.toml", tmp_path / "out", tmp_path / "told"
    sample_study = study(tmp_path, SLOW.replace("24", "12"))
    with forked(driver.drive, transcript, file, out) as process:
        until(lambda: len(calls(tmp_path)) > 2)
        with pytest.raises(InputError, match=f"another run is using this directory .process {process.pid}"):
            run(sample_study, out)
        assert status(sample_study, out).running
        process.join(PATIENCE)
    assert json.loads(transcript.read_text())["done"] == 12
    assert not status(sample_study, out).running
    assert len(calls(tmp_path)) == 13  # the first task is measured twice


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.study.backends.PATIENCE", 1.0)
    with pytest.raises(InputError, match="no Dask scheduler answers at this address"):
        run(study(tmp_path, SLOW), tmp_path / "out", Backend(dask="tcp://127.0.0.1:9"))


def test_certificates_that_are_not_configured(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no Dask scheduler answers at this address .*check your TLS configuration"
    ):
        run(study(tmp_path, SLOW), tmp_path / "out", Backend(dask="tls://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"jobs": 2, "dask": "tcp://127.0.0.1:9"}, "already has workers; leave out the other options"),
        ({"jobs": 0}, "--jobs 0: expected a whole number of at least 1"),
        ({"dask": "127.0.0.1"}, "--dask 127.0.0.1: expected tcp://HOST:PORT, or tls://HOST:PORT"),
        ({"dask": "tcp://"}, "--dask tcp://: expected tcp://HOST:PORT"),
        ({"dask": "ucx://127.0.0.1:9"}, "--dask ucx://127.0.0.1:9: expected tcp://HOST:PORT"),
        ({"dask": ""}, "expected tcp://HOST:PORT"),
    ],
)
def test_places_that_cannot_be(place: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Backend(**place)
    assert message in caught.value.message(as_option)


def test_a_scheduler_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was finished is exported, and one line says what happened."""
    monkeypatch.setattr("attnlaw.study.backends.PATIENCE", 3)  # seconds to look for it
    sample_study = study(tmp_path, SLOW)
    out, transcript = tmp_path / "out", tmp_path / "told"
    with forked(driver.serve, transcript, tmp_path / "workers") as scheduler:
        until(lambda: transcript.exists() and transcript.read_text().endswith("\n"))

        def kill(done: int, _: int) -> None:
            if done == 3:
                scheduler.kill()

        with pytest.raises(
            InputError, match="the connection to the Dask scheduler was lost; all finished rows are kept"
        ):
            run(sample_study, out, Backend(dask=transcript.read_text().strip()), progress=kill)
    done = status(sample_study, out).done
    assert 3 <= done < 24
    assert rows(out).height == done


def test_a_worker_of_another_version_that_joins_is_refused(tmp_path: Path, two_workers: Backend) -> None:
    """Its rows and tables would pass for those of this version."""
    sample_study = study(tmp_path, 'verb = "draw"\n[grid]\nx = "1:400:400"\n')
    with ExitStack() as late, Client(two_workers.dask, set_as_default=False) as client:

        def is_there() -> bool:
            return any(worker["name"] == "0.0.9" for worker in client.scheduler_info(-1)["workers"].values())

        def join(done: int, _: int) -> None:
            if not is_there():
                late.enter_context(forked(driver.work, tmp_path / "told", "0.0.9", two_workers.dask))
                until(is_there)

        with pytest.raises(InputError, match=r"a worker that joined has another version of attnlaw"):
            run(sample_study, tmp_path / "out", two_workers, progress=join)
    kept = rows(tmp_path / "out")
    assert kept.height == status(sample_study, tmp_path / "out").done < 400
    assert set(kept["task"]) <= {task.key for task in sample_study.tasks}


@pytest.mark.parametrize("error", [CommClosedError("closed"), OSError("Timed out")])
def test_whatever_dask_says_of_a_scheduler_that_went_away(tmp_path: Path, error: Exception) -> None:
    class Lost:
        def nthreads(self) -> None:
            raise error

    engine = DaskEngine(tmp_path, Stop(), client=Lost())
    with pytest.raises(InputError, match="the connection to the Dask scheduler"):
        list(engine.run(study(tmp_path, SLOW).tasks))


def test_a_client_that_is_closed_has_lost_its_scheduler(tmp_path: Path, two_workers: Backend) -> None:
    with Client(two_workers.dask, set_as_default=False) as client:
        engine = DaskEngine(tmp_path, Stop(), client=client)
    with pytest.raises(InputError, match="the connection to the Dask scheduler"):
        list(engine.run(study(tmp_path, SLOW).tasks))
