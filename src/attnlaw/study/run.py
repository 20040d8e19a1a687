"""Run a study, resume it, and report its status. A run holds the lock of its directory, computes one task of
each verb to estimate the cost, stores every task as it finishes, and exports the rows even if it is
stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import remove_if_refused
from attnlaw.core.progress import Progress
from attnlaw.core.result import MANIFEST, ROWS
from attnlaw.core.settings import infinity_as_text
from attnlaw.study.backends import Backend
from attnlaw.study.engine import Engine, Stop
from attnlaw.study.export import export, require_same_study
from attnlaw.study.store import Store, has_endings, hold_lock, is_locked, open_store
from attnlaw.study.study_file import Study
from attnlaw.study.task import Ending, Task, failed_ending, group_tasks
from attnlaw.verbs.views import STORE

TRIAL = 32  # tasks of a group whose mean time estimates the cost
KEY = "[0-9a-f]{32}"  # in the names of files
# Files that a run or a kill leaves behind: folder -> pattern of names.
LEFTOVERS = {
    "drafts/*": rf"{KEY}-\w+-.+\.parquet",
    "running/*": KEY,
    "parts/*/*": rf"{KEY}-[0-9a-f]{{16}}\.parquet",
}
DRAFT = r"\.\w+\.(parquet|json)\.\w{8}\.draft"  # the name of a temporary file of a result


@dataclass(frozen=True)
class Cost:
    """The expected time of a run. `first` and `seconds` are None if the first task failed.

    It is estimated from the first task of each verb, or from a few tasks if they run in groups.
    """

    tasks: int
    workers: int
    first: float | None
    seconds: float | None


Announce = Callable[[Cost], None] | None


@dataclass(frozen=True)
class Failure:
    """The settings of a failed task, and its error."""

    settings: dict[str, Any]
    error: str


@dataclass(frozen=True)
class StudyStatus:
    """The progress of a study."""

    tasks: int
    done: int
    failures: tuple[Failure, ...]
    computed: int = 0  # number of tasks that this run computed
    seconds: float = 0.0  # time of all finished tasks together
    running: bool = False  # whether a run is in progress
    stopped: bool = False  # whether this run was stopped before its end

    @property
    def missing(self) -> int:
        return self.tasks - self.done - len(self.failures)

    def describe(self) -> dict[str, Any]:
        """Return the status as plain values for JSON."""
        failures = [(failure.settings.items(), failure.error) for failure in self.failures]
        return {
            "tasks": self.tasks,
            "done": self.done,
            "failed": len(self.failures),
            "missing": self.missing,
            "computed": self.computed,
            "running": self.running,
            "stopped": self.stopped,
            "task_seconds": self.seconds,
            "failures": [
                {"settings": {name: infinity_as_text(value) for name, value in settings}, "error": error}
                for settings, error in failures
            ],
        }


def run(
    study: Study,
    out: str | os.PathLike[str],
    backend: Backend | None = None,
    *,
    force: bool = False,
    retry_failed: bool = False,
    announce: Announce = None,
    progress: Progress | None = None,
) -> StudyStatus:
    """Compute the missing tasks of a study and export its results to `out`.

    SIGINT and SIGTERM stop the run. attnlaw keeps all finished tasks.

    Args:
        study: the study.
        out: the directory of the store and of the results.
        backend: the place where tasks are computed, by default this process.
        force: whether to compute all tasks again. A task's old row stays until the task is finished again.
            If the run is stopped, the tasks that it did not reach count as missing.
        retry_failed: whether to compute tasks that failed before.
        announce: a function that receives the expected time after the first tasks.
        progress: a function that receives the numbers of finished tasks and of all tasks.

    Raises:
        InputError: if another run uses `out`, or if a setting cannot work. In this case, nothing is
            computed.
    """
    _require_store_of_rows(study, Path(out))
    removal = remove_if_refused(out, is_needed=lambda: has_endings(out))
    with removal, hold_lock(out), open_store(out, create=True) as store:
        todo = list(study.tasks) if force else pending_tasks(study.tasks, store, retry_failed)
        refused = study.check(todo)
        todo = [task for task in todo if task.key not in refused]
        clean_up(store, *study.verbs)
        stop, computed = Stop(), 0
        with stop.on_signals():
            if todo:
                with (backend or Backend()).open(out, stop, study.time_limit, study.retries) as engine:
                    if force:  # not earlier: if the engine does not start, nothing changes
                        store.mark_stale(task.key for task in todo)
                    try:
                        computed = _compute(todo, store, engine, announce, progress)
                    except InputError:  # the cluster went away
                        _export(study, store)
                        raise
            store.add(failed_ending(key, error) for key, error in refused.items())
            _export(study, store)
        clean_up(store, *study.verbs)
        stopped = stop.is_requested and computed < len(todo)
        return _study_status(study, store, computed=computed, stopped=stopped)


def resume(
    study: Study, out: str | os.PathLike[str], backend: Backend | None = None, **options: Any
) -> StudyStatus:
    """Continue a study with `run`. Raise an `InputError` if the directory has no store."""
    with open_store(out):
        pass
    return run(study, out, backend, **options)


def status(study: Study, out: str | os.PathLike[str]) -> StudyStatus:
    """Return the status of a study, which may be running. `out` must not have another study."""
    with open_store(out) as store:
        running = is_locked(out)
        if not running:
            require_same_study(study, store)
        return _study_status(study, store, running=running)


def _export(study: Study, store: Store) -> None:
    """Export the rows. Older files are kept if all rows belong to another study, or if a table is lost."""
    endings = store.endings(rows=False)
    kept = [endings[task.key] for task in study.tasks if task.key in endings]
    if (kept or not endings) and all(map(store.has_tables, kept)):
        export(study, store)


def _compute(
    todo: list[Task], store: Store, engine: Engine, announce: Announce, progress: Progress | None
) -> int:
    """Compute tasks, and store each one when it ends. Return how many were stored."""
    computed = 0

    def compute(tasks: Sequence[Task], first: bool = False) -> Iterator[tuple[str, Ending]]:
        nonlocal computed
        for endings in engine.run(tasks, first):
            store.add(endings)
            computed += len(endings)
            if progress is not None:
                progress(computed, len(todo))
            yield from ((ending.key, ending) for ending in endings)

    firsts = {task.verb.name: task for task in reversed(todo)}
    measured = dict(compute(list(firsts.values()), first=True))
    # One task alone does not show what tasks of a group cost together, so a few of each verb are measured.
    trials: dict[str, list[Task]] = {}
    for group in group_tasks(task for task in todo if task.key not in measured):
        if group[0].group is not None:
            trials.setdefault(group[0].verb.name, group[:TRIAL])
    measured |= compute([task for trial in trials.values() for task in trial])
    if announce is not None and not engine.stop.is_requested:
        means = {
            verb: sum(measured[task.key].seconds for task in trial) / len(trial)
            for verb, trial in trials.items()
        }
        first = {verb: measured[task.key] for verb, task in firsts.items()}
        announce(_cost(todo, first, means, engine.workers))
    for _ in compute([task for task in todo if task.key not in measured]):
        pass
    return computed


def _cost(todo: list[Task], firsts: Mapping[str, Ending], shares: Mapping[str, float], workers: int) -> Cost:
    if any(ending.error is not None for ending in firsts.values()):
        return Cost(len(todo), workers, None, None)
    total = sum(shares.get(task.verb.name, firsts[task.verb.name].seconds) for task in todo)
    longest = max(ending.seconds for ending in firsts.values())
    return Cost(len(todo), workers, firsts[todo[0].verb.name].seconds, max(total / workers, longest))


def pending_tasks(tasks: Iterable[Task], store: Store, retry_failed: bool) -> list[Task]:
    """Return the tasks to compute: those that have not ended, are marked as stale, or have lost a table."""
    finished = store.finished()
    if retry_failed:
        finished = {key: ending for key, ending in finished.items() if ending.error is None}
    return [task for task in tasks if task.key not in finished]


def _require_store_of_rows(study: Study, folder: Path) -> None:
    """Raise an `InputError` if `folder` has a result but no store, because a run would replace it."""
    if os.path.lexists(folder / STORE):
        return
    for place in (folder, *(folder / name for name in list(study.verbs)[1:])):
        for path in (place / MANIFEST, place / ROWS):
            if os.path.lexists(path):
                raise InputError(
                    f"{path}: this directory holds a result whose store ({STORE}) is missing, and a run "
                    "would overwrite it; choose another directory"
                )


def clean_up(store: Store, *verbs: str) -> None:
    """Remove drafts, marker files, and tables to which no row refers. The caller must hold the lock."""
    kept = {store.folder / path for ending in store.endings(rows=False).values() for _, path in ending.parts}
    drafts = dict.fromkeys((".*", *(f"{verb}/.*" for verb in verbs)), DRAFT)
    for place, pattern in (LEFTOVERS | drafts).items():
        for path in store.folder.glob(place):
            if re.fullmatch(pattern, path.name) and path.is_file() and path not in kept:
                path.unlink(missing_ok=True)


def _study_status(study: Study, store: Store, **rest: Any) -> StudyStatus:
    finished = store.finished()
    ended = [(task, finished[task.key]) for task in study.tasks if task.key in finished]
    failures = tuple(
        Failure(task.case.to_row(), ending.error) for task, ending in ended if ending.error is not None
    )
    seconds = sum((ending.seconds for _, ending in ended), 0.0)
    return StudyStatus(len(study.tasks), len(ended) - len(failures), failures, seconds=seconds, **rest)
