"""Runs in process: rows, resuming, failures, limits, and what is exported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest
from study.sample_verbs import PYTHONPATH, SQUARE, TORN, Square, calls, find, rows, study

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.study import Backend, read_study, resume, run, status
from attnlaw.study.export import export
from attnlaw.study.run import Cost, _cost
from attnlaw.study.store import hold_lock, open_store
from attnlaw.study.task import Ending, Task, run_batch

DRIVE = "import sys; from study.driver import drive; drive(*sys.argv[1:])"


COLUMNS = ("verb", "x", "seconds", "log", "square", "status", "remark", "attnlaw_version", "task")
SQUARES = 'verb = "square"\n[fixed]\nlog = "LOG"\n[grid]\nx = [3, 1, 2]\n'


def test_rows_stand_in_the_order_of_the_study(tmp_path: Path) -> None:
    costs: list[Cost] = []
    seen: list[tuple[int, int]] = []
    report = run(
        study(tmp_path, SQUARES),
        tmp_path / "out",
        announce=costs.append,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (report.tasks, report.done, report.missing, report.failures) == (3, 3, 0, ())
    frame = rows(tmp_path / "out")
    assert frame.columns == [*COLUMNS]
    assert frame.select("x", "square", "status", "remark").rows() == [
        (3.0, 9.0, "done", None),
        (1.0, 1.0, "done", None),
        (2.0, 4.0, "done", None),
    ]
    assert set(frame["attnlaw_version"]) == {__version__}
    assert seen == [(1, 3), (2, 3), (3, 3)]
    (cost,) = costs
    assert (cost.tasks, cost.workers) == (3, 1)
    assert cost.first is not None
    assert cost.seconds == pytest.approx(3 * cost.first)


def test_a_second_run_computes_what_is_missing_and_force_everything(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(tmp_path, SQUARES), out)
    assert calls(tmp_path) == [3, 3, 1, 2]  # a quick first task is measured a second time
    assert run(study(tmp_path, SQUARES), out).computed == 0
    assert len(calls(tmp_path)) == 4
    grown = study(tmp_path, SQUARES.replace("3, 1, 2", "3, 5, 1"))
    assert resume(grown, out).computed == 1
    assert set(calls(tmp_path)[4:]) == {5}
    assert rows(out)["x"].to_list() == [3, 5, 1]  # the rows are those of the study as it is now
    assert run(study(tmp_path, SQUARES), out).computed == 0  # and what was computed once is not lost
    assert run(study(tmp_path, SQUARES), out, force=True).computed == 3
    with pytest.raises(InputError, match="has no study"):
        resume(study(tmp_path, SQUARES), tmp_path / "other")


def test_force_changes_nothing_where_nothing_can_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sample_study = study(tmp_path, SQUARES)
    run(sample_study, out)
    before = rows(out)

    def refuse(case: object) -> None:
        raise InputError("x: not any more")

    unlucky = [replace(task, verb=replace(task.verb, precheck=refuse)) for task in sample_study.tasks]
    with pytest.raises(InputError, match="this machine has no sbatch"):
        run(sample_study, out, Backend(slurm="cores=2"), force=True)
    with pytest.raises(InputError, match="not any more"):
        run(replace(sample_study, tasks=tuple(unlucky)), out, force=True)
    assert status(sample_study, out).done == 3
    with open_store(out) as store:
        export(sample_study, store)
    assert rows(out).equals(before)


def test_a_forced_run_that_is_stopped_keeps_old_rows_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every new square is -1, to tell it from an old one; the signal comes within the third task."""
    out = tmp_path / "out"
    sample_study = study(tmp_path, SQUARES)
    run(sample_study, out)
    engine = sys.modules["attnlaw.study.engine"]
    perform = engine.run_task

    def other(task: Task, folder: Path) -> Ending:
        if task.case.x == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return Ending(task.key, 0.0, json.dumps({"square": -1.0}))

    monkeypatch.setattr(engine, "run_task", other)
    report = run(sample_study, out, force=True)
    assert (report.stopped, report.computed, report.done, report.missing) == (True, 2, 2, 1)
    assert rows(out)["square"].to_list() == [-1.0, -1.0, 4.0]
    monkeypatch.setattr(engine, "run_task", perform)
    assert (status(sample_study, out).done, status(sample_study, out).missing) == (2, 1)
    before = len(calls(tmp_path))
    report = resume(sample_study, out)
    assert (report.computed, report.done, report.missing) == (1, 3, 0)
    assert set(calls(tmp_path)[before:]) == {2.0}
    assert rows(out)["square"].to_list() == [-1.0, -1.0, 4.0]


@pytest.mark.parametrize("how", ["raises", "hangs", "interrupts"])
def test_a_first_task_is_kept_whatever_becomes_of_its_second_run(tmp_path: Path, how: str) -> None:
    text = f'verb = "second_time"\n[fixed]\nlog = "LOG"\nhow = "{how}"\n[grid]\nx = [3, 1]\n'
    report = run(study(tmp_path, text + "[run]\ntime_limit = 0.2\nretries = 0\n"), tmp_path / "out")
    stopped = how == "interrupts"
    assert (report.stopped, report.done, report.failures) == (stopped, 1 if stopped else 2, ())
    assert rows(tmp_path / "out")["square"].to_list() == ([9.0] if stopped else [9.0, 1.0])
    assert calls(tmp_path) == ([3, 3] if stopped else [3, 3, 1])


def test_a_first_task_on_a_worker_is_kept_where_its_second_run_fails(tmp_path: Path) -> None:
    text = 'verb = "second_time"\n[fixed]\nlog = "LOG"\nhow = "raises"\nx = 3\n'
    (ending,) = run_batch(study(tmp_path, text).tasks, tmp_path, None, time_twice=True)
    assert ending.error is None
    assert json.loads(ending.row or "")["square"] == 9.0
    assert calls(tmp_path) == [3, 3]


def test_the_estimate_is_at_least_the_longest_task() -> None:
    """One task of 8 s and three of 1 s on four workers: 8 s, though the sum over the workers is 2.75 s."""
    tasks = [Task(verb, Square(x=x)) for x, verb in enumerate((TORN, *[SQUARE] * 3))]
    firsts = {"torn": Ending("a", 8.0, "{}"), "square": Ending("b", 1.0, "{}")}
    assert _cost(tasks, firsts, {}, 4) == Cost(4, 4, 8.0, 8.0)
    assert _cost(tasks, firsts, {}, 1) == Cost(4, 1, 8.0, 11.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("raises", "ArithmeticError: poison in two lines", 3),
        ("input", "x: not this one", 1),
        ("nan", "ValueError: Out of range float values are not JSON compliant", 3),
        ("hangs", "exceeded its time limit of 0.2 s", 3),
    ],
)
def test_a_task_that_fails_is_a_row_and_the_others_go_on(
    tmp_path: Path, how: str, error: str, attempts: int
) -> None:
    text = f'verb = "poisoned"\n[fixed]\nlog = "LOG"\nhow = "{how}"\n[grid]\nx = [1, 2, 3]\n'
    text += "[run]\ntime_limit = 0.2\n"
    report = run(study(tmp_path, text), tmp_path / "out")
    assert (report.done, report.missing) == (2, 0)
    (failure,) = report.failures
    assert failure.settings["x"] == 2
    assert failure.error.startswith(error)
    assert calls(tmp_path).count(2) == attempts
    frame = rows(tmp_path / "out")
    assert frame["square"].to_list() == [1, None, 9]
    assert frame["status"].to_list() == ["done", "failed", "done"]
    assert frame["remark"].to_list() == [None, failure.error, None]
    # Another run leaves the failure alone; asked to, it tries again.
    assert run(study(tmp_path, text), tmp_path / "out").computed == 0
    assert run(study(tmp_path, text), tmp_path / "out", retry_failed=True).computed == 1


def test_retries_help_where_a_failure_passes(tmp_path: Path) -> None:
    text = 'verb = "recovers"\n[fixed]\nlog = "LOG"\n[grid]\nx = [1, 2]\n[run]\nretries = {}\n'
    assert not run(study(tmp_path, text.format(2)), tmp_path / "a").failures
    (tmp_path / "calls").unlink()
    failures = run(study(tmp_path, text.format(1)), tmp_path / "b").failures
    assert [failure.error for failure in failures] == ["OSError: not yet"] * 2


def test_all_tasks_may_fail(tmp_path: Path) -> None:
    text = 'verb = "poisoned"\n[fixed]\nhow = "input"\nx = 2\n'
    costs: list[Cost] = []
    report = run(study(tmp_path, text), tmp_path / "out", announce=costs.append)
    assert len(report.failures) == 1
    assert [cost.seconds for cost in costs] == [None]
    assert rows(tmp_path / "out").select("status", "square").rows() == [("failed", None)]


@pytest.mark.slow
def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "out"), pytest.raises(InputError, match="another run is using this directory"):
        run(study(tmp_path, SQUARES), tmp_path / "out")
    assert calls(tmp_path) == []
    run(study(tmp_path, SQUARES), tmp_path / "out")
    with hold_lock(tmp_path / "out"):
        assert status(study(tmp_path, SQUARES), tmp_path / "out").running


def test_tables_are_tied_to_their_rows_and_follow_the_study(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = 'verb = "draw"\n[grid]\nx = [{}]\n[run]\nseeds = 2\n'
    run(study(tmp_path, text.format("0, 1")), out)
    frame = rows(out)
    assert frame["seed"].n_unique() == 4
    table = pl.read_parquet(out / "values.parquet")
    assert table.columns == ["value", "case"]
    largest = table.group_by("case").agg(pl.col("value").max()).sort("case")
    assert largest["case"].to_list() == [0, 1, 2, 3]
    assert largest["value"].to_list() == frame["largest"].to_list()
    query = f"""SELECT x, count(*) FROM '{out}/values.parquet' AS lines
                JOIN read_parquet('{out}/rows.parquet', file_row_number = true) AS cases
                ON lines."case" = cases.file_row_number GROUP BY x ORDER BY x"""
    assert duckdb.sql(query).fetchall() == [(0.0, 120), (1.0, 120)]
    run(study(tmp_path, text.format("0")), out)
    assert pl.read_parquet(out / "values.parquet").height == 120
    assert len(list((out / "parts" / "values").iterdir())) == 4  # kept for when the study asks for them again


def test_a_row_reproduces_alone(tmp_path: Path) -> None:
    """A row depends on its own arguments: the same task in another study, alone, gives the same bits."""
    text = 'verb = "draw"\n[grid]\nx = [{}]\n[run]\nseeds = 2\n'
    run(study(tmp_path, text.format("7, 0, 1")), tmp_path / "many")
    run(study(tmp_path, text.format("7")), tmp_path / "one")
    many, alone = rows(tmp_path / "many"), rows(tmp_path / "one")
    assert many.filter(x=7.0).equals(alone)


def test_ctrl_c_keeps_finished_rows(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'verb = "square"\n[fixed]\nlog = "{tmp_path}"\nseconds = 0.2\n[grid]\nx = "1:200:200"\n')
    out = tmp_path / "out"
    said = tmp_path / "said"
    command = [sys.executable, "-c", DRIVE, said, file, out]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": PYTHONPATH}) as driver:
        while len(calls(tmp_path)) < 4:
            assert driver.poll() is None, said.read_text()
            time.sleep(0.05)
        os.kill(driver.pid, signal.SIGINT)
    assert driver.returncode == 0
    report = json.loads(said.read_text())
    # The first task is called twice; the one at work when the signal came is lost, or had just ended.
    assert report["stopped"]
    assert report["done"] in (len(calls(tmp_path)) - 2, len(calls(tmp_path)) - 1)
    assert rows(out).height == report["done"] == status(read_study(file, find), out).done
