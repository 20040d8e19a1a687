"""Studies on real Dask clusters: equal tables, poisoned tasks, killed workers, killed drivers, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from distributed import Client
from distributed.comm import CommClosedError
from study.sample_verbs import PYTHONPATH, calls, find, rows, study

from attnlaw.base.errors import BadSetting, InputError, as_option
from attnlaw.study import Place, read_study, run, status
from attnlaw.study.cluster import AHEAD, Dask
from attnlaw.study.engine import Policy, Stop
from attnlaw.study.run import Cost

DRIVER = Path(__file__).parent / "driver.py"
PATIENCE = 300.0  # seconds that any awaited state may take on a busy machine
SLOW = 'verb = "square"\n[fixed]\nlog = "LOG"\nseconds = 0.2\n[grid]\nx = "1:24:24"\n'


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A scheduler with two worker processes, which studies use by its address."""
    with Place(jobs=2).open(tmp_path_factory.mktemp("cluster"), Stop()) as engine:
        yield Place(dask=engine.client.scheduler_info()["address"])  # type: ignore[attr-defined]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_equal_tables_in_process_and_with_one_and_two_workers(tmp_path: Path, two_workers: Place) -> None:
    text = 'verb = "draw"\n[grid]\nx = "0:1:8"\n[run]\nseed = 3\nseeds = 4\n'
    costs: list[Cost] = []
    for name, place in (("none", None), ("one", Place(jobs=1)), ("two", two_workers)):
        report = run(study(tmp_path, text), tmp_path / name, place, announce=costs.append)
        assert report.done == 32
    assert [cost.workers for cost in costs] == [1, 1, 2]
    for name in ("one", "two"):
        for place in ("rows", "tables/values"):
            first = sorted((tmp_path / "none" / place).iterdir())
            other = sorted((tmp_path / name / place).iterdir())
            assert [path.name for path in first] == [path.name for path in other]
            assert [path.read_bytes() for path in first] == [path.read_bytes() for path in other]


@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("raises", "ArithmeticError: poison in two lines", 2),
        ("input", "x: not this one", 1),
        ("exits", "the worker process died while computing it", 2),
        ("hangs", 'exceeded its time limit of 1 s at File "', 2),
        ("freezes", 'exceeded its time limit of 1 s at File "', 2),
    ],
)
def test_a_poisoned_task_does_not_stop_the_others(
    tmp_path: Path, two_workers: Place, how: str, error: str, attempts: int
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
    found = rows(tmp_path / "out")
    assert found["square"].to_list() == [None if x == 20 else x * x for x in range(1, 61)]
    assert not list((tmp_path / "out" / "running").iterdir())


def test_workers_killed_in_mid_run_and_in_mid_write(tmp_path: Path) -> None:
    """The study completes, every row is there once, and no broken part is among the tables."""
    file = tmp_path / "study.toml"
    study(tmp_path, SLOW.replace("square", "torn"))
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, DRIVER, file, out, "2"], stdout=subprocess.PIPE) as driver:
        until(lambda: len(calls(tmp_path)) > 10)
        drafts = [path.name for path in (out / "drafts").iterdir()]
        os.kill(_children(driver.pid)[1], signal.SIGKILL)  # after the tracker: a worker
        assert driver.stdout is not None
        told = json.loads(driver.stdout.read())
    assert (told["done"], told["failed"], told["missing"]) == (24, 0, 0)
    assert len(drafts) == 1  # the half-written one is there, where nobody reads
    assert calls(tmp_path).count(3) == 2
    found = rows(out)
    assert found["x"].to_list() == list(range(1, 25))
    tables = pl.read_parquet(out / "tables" / "lines" / "*.parquet")
    assert tables.group_by("task").len()["len"].to_list() == [1000] * 24
    sums = found.join(tables.group_by("task").agg(pl.col("value").sum()), on="task", maintain_order="left")
    assert sums["value"].to_list() == [499_500 * x for x in range(1, 25)]
    run(read_study(file, find), out)
    assert not list((out / "drafts").iterdir())  # swept by the next run


def test_a_worker_and_its_successor_are_killed(tmp_path: Path) -> None:
    """Also a worker that dies while it starts is replaced."""
    file = tmp_path / "study.toml"
    study(tmp_path, SLOW.replace("24", "8"))
    with subprocess.Popen(
        [sys.executable, DRIVER, file, tmp_path / "out", "1"], stdout=subprocess.PIPE
    ) as driver:
        until(lambda: len(calls(tmp_path)) > 2)
        tracker, first = _children(driver.pid)
        os.kill(first, signal.SIGKILL)
        successors: list[int] = []

        def replaced() -> bool:
            successors[:] = [child for child in _children(driver.pid) if child not in (tracker, first)]
            return bool(successors)

        until(replaced)
        os.kill(successors[0], signal.SIGKILL)
        assert driver.stdout is not None
        told = json.loads(driver.stdout.read())
    assert (told["done"], told["failed"], told["missing"]) == (8, 0, 0)


def test_a_killed_driver_leaves_no_worker_and_loses_no_row(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    found = study(tmp_path, SLOW)
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, DRIVER, file, out, "2"]) as driver:
        until(lambda: (out / "store.sqlite").exists() and status(found, out).done >= 5)
        children = _children(driver.pid)
        os.kill(driver.pid, signal.SIGKILL)
    assert len(children) >= 2
    until(lambda: not any(_alive(child) for child in children))
    kept, begun = status(found, out).done, calls(tmp_path)
    in_flight = len(set(begun)) - kept
    assert in_flight <= 2 * AHEAD  # no more are ever on their way to two workers and back
    report = run(found, out)
    assert (report.done, report.computed) == (24, 24 - kept)
    assert sorted(rows(out)["x"].to_list()) == list(range(1, 25))
    again = calls(tmp_path)[len(begun) :]
    assert len(set(again) & set(begun)) == in_flight  # nothing else was computed twice


def test_ctrl_c_stops_the_workers_and_keeps_every_finished_row(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    found = study(tmp_path, SLOW)
    out = tmp_path / "out"
    command = [sys.executable, DRIVER, file, out, "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as driver:
        until(lambda: len(calls(tmp_path)) > 8)
        os.killpg(driver.pid, signal.SIGINT)  # a terminal sends it to the workers too
        told, noise = driver.communicate()
    assert driver.returncode == 0
    report = json.loads(told)
    assert report["stopped"]
    assert noise == b""
    begun = len(set(calls(tmp_path)))
    assert begun - 2 <= report["done"] <= begun  # but for what two workers began at that very moment
    assert report["done"] == status(found, out).done == rows(out).height < 24


def test_two_runs_at_the_same_time(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    found = study(tmp_path, SLOW.replace("24", "12"))
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, DRIVER, file, out], stdout=subprocess.PIPE) as driver:
        until(lambda: len(calls(tmp_path)) > 2)
        with pytest.raises(InputError, match=f"another run of this study is at work .process {driver.pid}"):
            run(found, out)
        assert status(found, out).running
        assert driver.stdout is not None
        assert json.loads(driver.stdout.read())["done"] == 12
    assert not status(found, out).running
    assert len(calls(tmp_path)) == 13  # the first task is measured twice


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.study.places.PATIENCE", 1.0)
    with pytest.raises(InputError, match="no Dask scheduler answers there"):
        run(study(tmp_path, SLOW), tmp_path / "out", Place(dask="tcp://127.0.0.1:9"))


def test_certificates_that_are_not_configured(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no Dask scheduler answers there .*check your TLS configuration"):
        run(study(tmp_path, SLOW), tmp_path / "out", Place(dask="tls://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"jobs": 2, "dask": "tcp://127.0.0.1:9"}, "has workers of its own; drop --jobs and --slurm"),
        ({"jobs": 0}, "--jobs 0: expected a whole number of at least 1"),
        ({"dask": "127.0.0.1"}, "--dask 127.0.0.1: expected tcp://HOST:PORT, or tls://HOST:PORT"),
        ({"dask": "tcp://"}, "--dask tcp://: expected tcp://HOST:PORT"),
        ({"dask": "ucx://127.0.0.1:9"}, "--dask ucx://127.0.0.1:9: expected tcp://HOST:PORT"),
        ({"dask": ""}, "expected tcp://HOST:PORT"),
    ],
)
def test_places_that_cannot_be(place: dict[str, Any], told: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Place(**place)
    assert told in caught.value.told(as_option)


SCHEDULER = """
import sys, time
from attnlaw.study import Place
from attnlaw.study.engine import Stop
if __name__ == "__main__":
    with Place(jobs=1).open(sys.argv[1], Stop()) as engine:
        sys.stdout.write(engine.client.scheduler_info()["address"] + "\\n")
        sys.stdout.flush()
        time.sleep(600)
"""


def test_a_scheduler_that_is_killed(tmp_path: Path) -> None:
    """What was finished is exported, and one line says what happened."""
    found = study(tmp_path, SLOW)
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    out = tmp_path / "out"
    scheduler = subprocess.Popen(
        [sys.executable, script, tmp_path / "workers"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )
    try:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().decode().strip()

        def kill(done: int, _: int) -> None:
            if done == 3:
                scheduler.kill()

        with pytest.raises(InputError, match="the Dask scheduler went away; all finished rows are kept"):
            run(found, out, Place(dask=address), progress=kill)
    finally:
        scheduler.kill()
        scheduler.communicate()
    done = status(found, out).done
    assert 3 <= done < 24
    assert rows(out).height == done


LATE = """
import sys
import attnlaw
attnlaw.__version__ = "0.0.9"
from distributed.cli.dask_worker import main
main([sys.argv[1], "--nthreads", "1", "--no-nanny", "--no-dashboard"])
"""


def test_a_worker_of_another_version_that_joins_is_refused(tmp_path: Path, two_workers: Place) -> None:
    """Its rows and tables would pass for those of this version."""
    found = study(tmp_path, 'verb = "draw"\n[grid]\nx = "1:400:400"\n')
    assert two_workers.dask is not None
    late: list[subprocess.Popen[bytes]] = []

    def join(done: int, _: int) -> None:
        if not late:
            path = {"PYTHONPATH": PYTHONPATH}
            command = [sys.executable, "-c", LATE, two_workers.dask]
            late.append(subprocess.Popen(command, env=os.environ | path, stderr=subprocess.DEVNULL))
            with Client(two_workers.dask, set_as_default=False) as client:
                client.wait_for_workers(3, timeout=PATIENCE)

    try:
        with pytest.raises(InputError, match=r"a worker that joined has another version of attnlaw"):
            run(found, tmp_path / "out", two_workers, progress=join)
    finally:
        late[0].kill()
        late[0].wait()
    kept = rows(tmp_path / "out")
    assert kept.height == status(found, tmp_path / "out").done < 400
    assert set(kept["task"]) <= {task.key for task in found.tasks}


@pytest.mark.parametrize("error", [CommClosedError("closed"), OSError("Timed out")])
def test_whatever_dask_says_of_a_scheduler_that_went_away(tmp_path: Path, error: Exception) -> None:
    class Lost:
        def nthreads(self) -> None:
            raise error

    engine = Dask(Lost())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the Dask scheduler went away"):
        list(engine.run(study(tmp_path, SLOW).tasks, tmp_path, Policy(), Stop()))


def test_a_client_that_is_closed_has_lost_its_scheduler(tmp_path: Path, two_workers: Place) -> None:
    with Client(two_workers.dask, set_as_default=False) as client:
        engine = Dask(client)
    with pytest.raises(InputError, match="the Dask scheduler went away"):
        list(engine.run(study(tmp_path, SLOW).tasks, tmp_path, Policy(), Stop()))


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    threads = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted({int(child) for children in [found, *threads] for child in children})


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
