"""Compute one large case on many workers. Its parts are tasks of a store, as in a study, so finished parts
are never computed again. If a part fails in all attempts, its case fails with the same error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import remove_if_refused
from attnlaw.core.verb import CaseSplit, Verb
from attnlaw.study.backends import Backend
from attnlaw.study.engine import Engine, Stop
from attnlaw.study.run import clean_up, pending_tasks
from attnlaw.study.store import Store, has_endings, hold_lock, open_store
from attnlaw.study.task import Ending, Task

TimedProgress = Callable[[int, int, float | None], None]  # units done, all units, seconds left


class SplitStopped(Exception):
    """An error for a run that the user stops."""


Plan = tuple[Any, list[Task], InputError | None]  # a case, its tasks in order, or the error if it has none


def run_split(
    verb: Verb[Any, Any],
    cases: Sequence[Any],
    store: str | os.PathLike[str],
    backend: Backend | None = None,
    *,
    force: bool = False,
    progress: TimedProgress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Iterator[Any]:
    """Yield the record or the `InputError` of each case, as `Verb.run` does.

    SIGINT and SIGTERM raise `SplitStopped`. attnlaw keeps the finished parts.

    Args:
        store: the directory of the store. Parts that an earlier run stored there are not computed again.
        backend: the place where parts are computed, by default this process.
        force: whether to compute all parts again.
        progress: a function that receives the finished work, all work, and the remaining seconds.
        announce: a function that receives a sentence about how much will be computed.
    """
    split = verb.split
    if split is None:
        raise InputError(f"{verb.name} cannot be split among workers; run it in one process")
    plans: list[Plan] = []
    for case in cases:
        try:
            parts = split.parts(case)
            plans.append((case, [Task(split.verb, part.case, part.count, part.work) for part in parts], None))
        except InputError as error:
            plans.append((case, [], error))
    if not any(tasks for _, tasks, _ in plans):  # every case was refused
        yield from (reason for _, _, reason in plans)
        return
    with (
        remove_if_refused(store, lambda: has_endings(store)),
        hold_lock(store),
        open_store(store, create=True) as opened,
    ):
        clean_up(opened)
        every = list({task.key: task for _, tasks, _ in plans for task in tasks}.values())
        todo = every if force else pending_tasks(every, opened, retry_failed=True)
        if todo:
            if announce is not None:
                count, of = (sum(task.count for task in tasks) for tasks in (todo, every))
                announce(f"{count} of {of} {split.part_noun} to compute, in {len(todo)} tasks")
            stop = Stop()
            with stop.on_signals(), (backend or Backend()).open(store, stop) as engine:
                if force:  # not earlier: if the engine does not start, nothing changes
                    opened.mark_stale(task.key for task in todo)
                _compute(plans, todo, opened, engine, progress)
            clean_up(opened)
            if stop.by_user:
                raise SplitStopped
        endings = opened.endings()
        for case, tasks, reason in plans:
            yield reason or _join_parts(split, case, tasks, opened, endings)


def _compute(
    plans: Sequence[Plan], todo: Sequence[Task], store: Store, engine: Engine, progress: TimedProgress | None
) -> None:
    """Compute the missing parts of all cases, one case after the other. If a part fails, its case ends."""
    tasks = {task.key: task for task in todo}
    count, work = sum(task.count for task in todo), sum(task.work for task in todo)
    done_count, done, began = 0, 0.0, time.monotonic()
    for _, case_tasks, _ in plans:
        engine.stop.is_pointless = False
        pending = pending_tasks(case_tasks, store, retry_failed=True)  # cases may share some
        for endings in engine.run(pending):
            store.add(endings)
            engine.stop.is_pointless |= any(ending.error is not None for ending in endings)
            done_count += sum(tasks[ending.key].count for ending in endings)
            done += sum(tasks[ending.key].work for ending in endings)
            if progress is not None:
                left = (time.monotonic() - began) * (work - done) / done if done else None
                progress(done_count, count, left)


def _join_parts(
    split: CaseSplit[Any, Any], case: Any, tasks: list[Task], store: Store, endings: Mapping[str, Ending]
) -> Any:
    for number, task in enumerate(tasks, start=1):
        if task.key in endings and (error := endings[task.key].error) is not None:
            return InputError(
                f"{error}; this happened in part {number} of {len(tasks)}, and all finished parts are kept"
            )
    try:
        return split.join(case, (store.tables(endings[task.key]) for task in tasks))
    except InputError as error:
        return error
