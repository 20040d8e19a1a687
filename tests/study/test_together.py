"""Cases that a verb solves together: chunks, and what one bad case costs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from study import driver
from study.processes import PATIENCE, forked, until
from study.sample_verbs import SHARED, at_once, calls, exported, find, rows, study

from attnlaw.core.progress import no_progress
from attnlaw.study import Backend, read_study, resume, run, status
from attnlaw.study.engine import BATCH, CHUNK, LEAST, LONG, Engine, Stop, pace_key
from attnlaw.study.run import Cost
from attnlaw.study.task import Ending, Task, group_tasks
from attnlaw.verbs import find_verb

CALL = 0.02  # seconds that cases of one call take together
TEXT = f'verb = "shared"\n[fixed]\nlog = "LOG"\nat = -1.0\nseconds = {CALL}\n'
TEXT += '[grid]\ncurve = ["a", "b"]\nx = "1:100:100"\n'
POISON = 'verb = "shared"\n[fixed]\nlog = "LOG"\nhow = "{}"\nat = 20.0\n[grid]\nx = "1:60:60"\n'


def squares(size: int, *but: int) -> list[int | None]:
    return [None if x in but else x * x for x in range(1, size + 1)]


def test_groups_are_computed_at_once_and_rows_stand_in_their_order(tmp_path: Path) -> None:
    costs: list[Cost] = []
    report = run(study(tmp_path, TEXT), tmp_path / "out", announce=costs.append)
    assert (report.done, report.computed, report.failures) == (200, 200, ())
    assert rows(tmp_path / "out")["square"].to_list() == squares(100) * 2
    assert sorted(calls(tmp_path)) == sorted([1.0, *2 * list(range(1, 101))])  # the first is measured twice
    # After the first task alone: chunks of a, which grow as the share of a task falls, then of b.
    assert sum(at_once(tmp_path)) > 190
    assert len(at_once(tmp_path)) < 10
    (cost,) = costs
    assert cost.first is not None
    assert cost.first >= CALL
    assert cost.seconds is not None
    assert cost.seconds < 200 * CALL / 2  # told by tasks that were computed at once


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("raises", "ArithmeticError: poison in two lines", 2),
        ("input", "x: not this one", 1),
        ("nan", "ValueError: Out of range float values are not JSON compliant", 2),
        ("hangs", "exceeded its time limit of 0.2 s", 2),
    ],
)
def test_a_bad_case_costs_itself_alone(tmp_path: Path, how: str, error: str, attempts: int) -> None:
    sample_study = study(tmp_path, POISON.format(how) + "[run]\nretries = 1\ntime_limit = 0.2\n")
    report = run(sample_study, tmp_path / "out")
    (failure,) = report.failures
    assert (failure.settings["x"], report.done, report.missing) == (20, 59, 0)
    assert failure.error.startswith(error)
    assert calls(tmp_path).count(20) == 1 + attempts  # once with the others, then alone
    assert rows(tmp_path / "out")["square"].to_list() == squares(60, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("raises", "ArithmeticError: poison in two lines", 2),
        ("exits", "the worker process died during this task (it", 2),
        ("freezes", 'exceeded its time limit of 1 s at File "', 2),
    ],
)
def test_a_bad_case_costs_itself_alone_on_workers(
    tmp_path: Path, two_workers: Backend, how: str, error: str, attempts: int
) -> None:
    sample_study = study(tmp_path, POISON.format(how) + "[run]\nretries = 1\ntime_limit = 1\n")
    report = run(sample_study, tmp_path / "out", two_workers)
    (failure,) = report.failures
    assert (failure.settings["x"], report.done, report.missing) == (20, 59, 0)
    assert failure.error.startswith(error)
    assert calls(tmp_path).count(20) == 1 + attempts
    assert rows(tmp_path / "out")["square"].to_list() == squares(60, 20)
    assert not list((tmp_path / "out" / "running").iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_workers_compute_groups_at_once_to_the_same_rows(tmp_path: Path, two_workers: Backend) -> None:
    sample_study = study(tmp_path, TEXT)
    run(sample_study, tmp_path / "there", two_workers)
    assert sum(at_once(tmp_path)) > 150
    assert len(at_once(tmp_path)) < 50
    run(sample_study, tmp_path / "here")
    assert exported(tmp_path / "here") == exported(tmp_path / "there")


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(("number", "status_of_process"), [(signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_a_run_that_is_stopped_within_a_chunk_is_resumed(
    tmp_path: Path, number: int, status_of_process: int
) -> None:
    """The first case alone, twice, the rest of its group, then a group of six in each second."""
    file, out, transcript = tmp_path / "study.toml", tmp_path / "out", tmp_path / "told"
    text = TEXT.replace(f"seconds = {CALL}", "seconds = 1.0").replace("100", "6")
    sample_study = study(tmp_path, text.replace('["a", "b"]', '["a", "b", "c", "d"]'))
    with forked(driver.drive, transcript, file, out) as process:
        until(lambda: (out / "store.sqlite").exists() and status(sample_study, out).done >= 3)
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join(PATIENCE)
    assert process.exitcode == status_of_process
    kept, begun = status(sample_study, out).done, len(calls(tmp_path))
    assert 3 <= kept < 24
    if number == signal.SIGINT:
        assert json.loads(transcript.read_text())["done"] == rows(out).height == kept
    report = resume(read_study(file, find), out)
    assert (report.done, report.computed) == (24, 24 - kept)
    assert rows(out)["square"].to_list() == squares(6) * 4
    assert len(calls(tmp_path)) - begun <= 24 - kept + 1  # what was kept is not computed again


@pytest.mark.slow
def test_a_row_of_a_learning_curve_is_that_of_its_case_alone(tmp_path: Path) -> None:
    """Bit for bit, for every student that solves problems at once. A softmax does not: it stays alone."""
    file = tmp_path / "study.toml"
    file.write_text(
        'verb = "learn"\n[fixed]\nnoise = 0.5\ntokens = 2\nthresholds = true\n'
        '[grid]\nstudent = ["factorized", "direct", "bayes"]\nalpha = "0.1:0.9:9"\n'
    )
    learn_study = read_study(file)
    run(learn_study, tmp_path / "out")
    learn, names = (
        find_verb("learn"),
        ["estimation_error", "training_loss", "trace", "top_edge", "atom_at_zero"],
    )
    together = rows(tmp_path / "out").select(names).rows(named=True)
    for task, row in list(zip(learn_study.tasks, together, strict=True))[4::9]:
        (alone,) = learn.run([task.case], no_progress)
        cells = learn.cells(alone)
        assert row == {name: cells[name] for name in names}
    assert len(group_tasks(learn_study.tasks)) == 3
    softmax = learn.settings(alpha=0.1, tokens=2, output="softmax")
    assert Task(learn, softmax).group is None


def test_a_batch_lasts_as_long_as_it_should(tmp_path: Path) -> None:
    def engine(seconds: float, time_limit: float | None = None) -> Engine:
        """An engine that has seen both tasks once."""
        timed = Engine(tmp_path, Stop(), time_limit)
        for timed_task in (task, alone):
            timed.add_times(timed_task, [Ending("", seconds)])
        return timed

    task, alone = (Task(verb, verb.settings(x=1.0)) for verb in (SHARED, find("square")))
    assert Engine(tmp_path, Stop()).batch_size(task) == 1
    assert engine(0.01).batch_size(task) == round(CHUNK / 0.01)
    assert engine(0.01).batch_size(alone) == round(BATCH / 0.01)
    assert engine(0.01, 0.4).batch_size(task) == 20  # half of the time limit
    assert engine(0.01, 0.4).batch_size(alone) == round(BATCH / 0.01)
    # Alone it takes longer than a chunk should; what it takes with others is seen by trying.
    assert engine(2 * CHUNK).batch_size(task) == LEAST
    assert engine(2 * CHUNK, 10 * CHUNK).batch_size(task) == 2
    assert engine(2 * LONG).batch_size(task) == 1
    # Eight measurements and one of all before: (0.1 + 8 * 0.01) / 9.
    mixed = engine(0.1)
    mixed.add_times(alone, [Ending("", 0.01)] * 8)
    assert mixed.pace[pace_key(alone)] == pytest.approx(0.02)
