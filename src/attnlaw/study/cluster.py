"""Compute tasks on a Dask cluster. Workers get batches of tasks in advance (see `engine`) and return short
rows. If one dies, its batch returns as an error, and marker files (see `task`) show which task it was
computing: only this one counts as failed. Tasks that were computed together have no markers, and are tried
alone."""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, KilledWorker

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.study.engine import LEAST, Engine, pace_key
from attnlaw.study.task import QUICK, Ending, Task, cause_of_death, error_line, group_tasks, run_batch

AHEAD = 3  # batches sent for each worker
LAST_WAIT = QUICK  # seconds that running batches get after a stop, enough for the second run of a first task
FETCH = 10.0  # seconds for a worker to send what it has finished
ASK_AGAIN = 5.0  # seconds between looks for missing workers
MOST_DEATHS = 20  # workers that may die before they begin a task; then the task fails


@dataclass(frozen=True)
class _Pending:
    """A task that has not ended, with its failed attempts and the worker deaths that it did not cause."""

    task: Task
    attempts: int = 0
    deaths: int = 0

    @property
    def is_suspect(self) -> bool:
        return bool(self.attempts or self.deaths)


@dataclass(kw_only=True)
class DaskEngine(Engine):
    """An engine that computes tasks with the workers of a Dask client.

    `planned` is the number of workers, if this process started the cluster. Dask restarts a worker that dies,
    but gives up after some failures. Then the engine requests the planned number of workers again.
    """

    client: Client
    planned: int | None = None
    last_request: float = field(default_factory=time.monotonic)

    @property
    def workers(self) -> int:
        """The number of worker processes: the planned number, or the number in the running cluster."""
        return self.planned or max(1, len(self.client.nthreads()))

    def run(self, tasks: Sequence[Task], first: bool = False) -> Iterator[list[Ending]]:
        """Yield how each task ended. Raise an `InputError` if the connection to the scheduler is lost."""
        try:
            yield from self._run(tasks, first)
        except Exception as error:
            lost = isinstance(error, OSError | CancelledError) or self.client.status != "running"
            # An `InputError`, or an error about a file, has another cause.
            if not lost or isinstance(error, InputError) or getattr(error, "filename", None) is not None:
                raise
            raise InputError(
                "the connection to the Dask scheduler was lost; all finished rows are kept: run the same "
                "command again"
            ) from error

    def _run(self, tasks: Sequence[Task], first: bool) -> Iterator[list[Ending]]:
        waiting = deque(_Pending(task) for group in group_tasks(tasks) for task in group)
        flying: dict[Any, list[_Pending]] = {}
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        while (waiting or flying) and not self.stop.is_requested:
            workers = self.workers
            while waiting and len(flying) < AHEAD * workers:
                batch = self._batch(waiting, workers)
                sent = [pending.task for pending in batch]
                future = self.client.submit(run_batch, sent, self.folder, self.time_limit, first, pure=False)
                flying[future] = batch
                future.add_done_callback(ended.put)
            self._restore()
            for future in _take_ended(ended, 0.2):
                finished, again = self._collect_batch(future, flying.pop(future))
                waiting.extend(again)
                if finished:
                    yield finished
        if not flying:
            return
        # After a stop, cancel batches that no worker has begun, and keep those that end soon.
        begun = {key for keys in self.client.processing().values() for key in keys}
        self.client.cancel([future for future in flying if future.key not in begun])
        until = time.monotonic() + LAST_WAIT
        while any(future.key in begun for future in flying) and time.monotonic() < until:
            for future in _take_ended(ended, 0.1):
                batch = flying.pop(future)
                if future.status == "finished":
                    yield self._collect_batch(future, batch)[0]
        self.client.cancel(list(flying), force=True)

    def _restore(self) -> None:
        if self.planned is None or time.monotonic() < self.last_request + ASK_AGAIN:
            return
        self.last_request = time.monotonic()
        if len(self.client.nthreads()) < self.planned:
            self.client.cluster.scale(self.planned)

    def _batch(self, waiting: deque[_Pending], workers: int) -> list[_Pending]:
        """Take the next batch of tasks of the same kind. One that failed or lost its worker runs alone."""
        first = waiting[0]
        share = math.ceil(len(waiting) / (AHEAD * workers))
        if first.task.group is not None:  # in small batches, a task would cost as much as alone
            share = max(share, LEAST)
        size = 1 if first.is_suspect else min(share, self.batch_size(first.task))
        kind = pace_key(first.task)
        batch = [waiting.popleft()]
        while waiting and len(batch) < size:
            if waiting[0].is_suspect or pace_key(waiting[0].task) != kind:
                break
            batch.append(waiting.popleft())
        return batch

    def _collect_batch(self, future: Any, batch: list[_Pending]) -> tuple[list[Ending], list[_Pending]]:
        endings: Sequence[Ending | None]
        if future.status == "cancelled":
            raise CancelledError
        if future.status == "error":
            endings = [self._ending_after_death(future.exception(), pending) for pending in batch]
        else:
            endings = _fetch_endings(future) or [None] * len(batch)
            self.add_times(batch[0].task, [ending for ending in endings if ending is not None])
        finished, again = [], []
        for pending, ending in zip(batch, endings, strict=True):
            if ending is None:
                again.append(replace(pending, deaths=pending.deaths + 1))
                continue
            if ending.key != pending.task.key:
                raise InputError(
                    f"a worker that joined has another version of attnlaw than {__version__}; all finished "
                    "rows are kept: install the same version there, and run the same command again"
                )
            counted = replace(ending, attempts=pending.attempts + 1)
            if self.is_final(counted):
                finished.append(counted)
            else:
                again.append(replace(pending, attempts=counted.attempts))
        return finished, again

    def _ending_after_death(self, error: BaseException, pending: _Pending) -> Ending | None:
        """Return the ending of a task whose batch was lost, or None if the task did not cause the loss."""
        key = pending.task.key
        if not isinstance(error, KilledWorker):  # for example a worker that cannot import the task's module
            return Ending(key, 0.0, error=error_line(error), permanent=True)
        cause = cause_of_death(key, self.folder, self.time_limit)
        if cause is None and pending.deaths < MOST_DEATHS:
            return None
        return Ending(
            key, self.time_limit or 0.0, error=cause or "several workers in a row died before they began"
        )


def _fetch_endings(future: Any) -> list[Ending]:
    """Return the endings of a finished batch. The list is empty if the worker died before it sent them."""
    try:
        endings: list[Ending] = future.result(timeout=FETCH) if future.status == "finished" else []
    except (KilledWorker, TimeoutError):
        endings = []
    if not endings:
        future.cancel()
    return endings


def _take_ended(ended: queue.SimpleQueue[Any], seconds: float) -> list[Any]:
    """Return all futures that have ended. If there are none, wait up to `seconds` for the first."""
    taken = []
    try:
        taken.append(ended.get(timeout=seconds))
        while True:
            taken.append(ended.get_nowait())
    except queue.Empty:
        return taken
