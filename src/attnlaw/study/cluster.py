"""Tasks on a Dask cluster: a local one, one that is already there, or Slurm jobs through dask-jobqueue.

Tasks travel in batches (see `pacing`), a few ahead of the workers; back come short rows. Dask starts, watches
and restarts the worker processes. When one dies, its batch comes back as an error, and the markers that
workers keep (see `task`) tell which task it was computing: that one has failed an attempt, the others have
not. Tasks that are computed at once leave no marker: when their worker dies, each is computed alone.

This module needs Dask (the extra `cluster`); `backends.Backend` imports it if a cluster is asked for.
"""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed import Client, KilledWorker

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.study.engine import RetryPolicy, Stop
from attnlaw.study.pacing import LEAST, Pace, pace_key
from attnlaw.study.task import QUICK, Ending, Task, cause_of_death, error_line, group_tasks, run_batch

AHEAD = 3  # batches sent for each worker
LAST_WAIT = QUICK  # seconds that running batches get after a stop: also a first task on its second run
FETCH = 10.0  # seconds for a worker to send what it has finished
ASK_AGAIN = 5.0  # seconds between looks for missing workers
MOST_DEATHS = 20  # of workers that held a task without computing it


@dataclass(frozen=True)
class _Pending:
    """A task on its way: failed attempts, and workers that died with it though it was not to blame."""

    task: Task
    attempts: int = 0
    deaths: int = 0

    @property
    def is_suspect(self) -> bool:
        return bool(self.attempts or self.deaths)

    def can_share_batch(self, other: _Pending) -> bool:
        """Whether it may stand in a batch with another."""
        return not self.is_suspect and pace_key(self.task) == pace_key(other.task)


class DaskEngine:
    """Computes tasks through a Dask client (an `Engine`).

    A cluster of ours is to have `planned` workers. Dask restarts a worker that dies, but gives up where that
    fails; it is then asked for the planned number again.
    """

    def __init__(self, client: Client, planned: int | None = None) -> None:
        self.client = client
        self.planned = planned
        self.last_request = time.monotonic()
        self.pace = Pace()

    @property
    def workers(self) -> int:
        """Worker processes: those planned, or those there are."""
        return self.planned or max(1, len(self.client.nthreads()))

    def run(
        self, tasks: Sequence[Task], folder: Path, policy: RetryPolicy, stop: Stop, first: bool = False
    ) -> Iterator[list[Ending]]:
        """As of every engine; an `InputError` where the scheduler goes away."""
        try:
            yield from self._run(tasks, folder, policy, stop, first)
        except Exception as error:
            lost = isinstance(error, OSError | CancelledError) or self.client.status != "running"
            # An error of a file of the study, or one that says all itself, has another cause.
            if not lost or isinstance(error, InputError) or getattr(error, "filename", None) is not None:
                raise
            raise InputError(
                "the Dask scheduler went away; all finished rows are kept: run the same command again"
            ) from error

    def _run(
        self, tasks: Sequence[Task], folder: Path, policy: RetryPolicy, stop: Stop, first: bool
    ) -> Iterator[list[Ending]]:
        waiting = deque(_Pending(task) for group in group_tasks(tasks) for task in group)
        flying: dict[Any, list[_Pending]] = {}
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        while (waiting or flying) and not stop.is_requested:
            workers = self.workers
            while waiting and len(flying) < AHEAD * workers:
                batch = self._batch(waiting, workers, policy.time_limit)
                sent = [pending.task for pending in batch]
                future = self.client.submit(run_batch, sent, folder, policy.time_limit, first, pure=False)
                flying[future] = batch
                future.add_done_callback(ended.put)
            self._restore()
            for future in _take_ended(ended, 0.2):
                finished, again = self._collect_batch(future, flying.pop(future), folder, policy)
                waiting.extend(again)
                if finished:
                    yield finished
        yield from self._drain(flying, ended, folder, policy)

    def _restore(self) -> None:
        """Ask the cluster for the planned workers where some are missing."""
        if self.planned is None or time.monotonic() < self.last_request + ASK_AGAIN:
            return
        self.last_request = time.monotonic()
        if len(self.client.nthreads()) < self.planned:
            self.client.cluster.scale(self.planned)

    def _batch(self, waiting: deque[_Pending], workers: int, time_limit: float | None) -> list[_Pending]:
        """The next of one kind: as many as make a batch, fewer near the end, one alone after an accident."""
        first = waiting[0]
        share = math.ceil(len(waiting) / (AHEAD * workers))
        if first.task.group is not None:  # in small chunks each would cost as much as alone
            share = max(share, LEAST)
        size = 1 if first.is_suspect else min(share, self.pace.batch_size(first.task, time_limit))
        batch = [waiting.popleft()]
        while waiting and len(batch) < size and waiting[0].can_share_batch(first):
            batch.append(waiting.popleft())
        return batch

    def _drain(
        self,
        flying: dict[Any, list[_Pending]],
        ended: queue.SimpleQueue[Any],
        folder: Path,
        policy: RetryPolicy,
    ) -> Iterator[list[Ending]]:
        """After a stop: call back what no worker has begun, and keep what ends soon."""
        if not flying:
            return
        begun = {key for keys in self.client.processing().values() for key in keys}
        self.client.cancel([future for future in flying if future.key not in begun])
        until = time.monotonic() + LAST_WAIT
        while any(future.key in begun for future in flying) and time.monotonic() < until:
            for future in _take_ended(ended, 0.1):
                batch = flying.pop(future)
                if future.status == "finished":
                    yield self._collect_batch(future, batch, folder, policy)[0]
        self.client.cancel(list(flying), force=True)

    def _collect_batch(
        self, future: Any, batch: list[_Pending], folder: Path, policy: RetryPolicy
    ) -> tuple[list[Ending], list[_Pending]]:
        """Finished endings of a batch that ended, and tasks to try again."""
        endings: Sequence[Ending | None]
        if future.status == "cancelled":
            raise CancelledError
        if future.status == "error":
            endings = [_ending_after_death(future.exception(), pending, folder, policy) for pending in batch]
        else:
            endings = self._fetch_endings(future) or [None] * len(batch)
            self.pace.add_times(batch[0].task, [ending for ending in endings if ending is not None])
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
            if policy.is_final(counted):
                finished.append(counted)
            else:
                again.append(replace(pending, attempts=counted.attempts))
        return finished, again

    def _fetch_endings(self, future: Any) -> list[Ending]:
        """The endings of a finished batch; none if its worker died before it could send them."""
        try:
            endings: list[Ending] = future.result(timeout=FETCH) if future.status == "finished" else []
        except (KilledWorker, TimeoutError):
            endings = []
        if not endings:
            future.cancel()
        return endings


def _take_ended(ended: queue.SimpleQueue[Any], seconds: float) -> list[Any]:
    """Futures that have ended: those there are, or the first to come within some seconds."""
    taken = []
    try:
        taken.append(ended.get(timeout=seconds))
        while True:
            taken.append(ended.get_nowait())
    except queue.Empty:
        return taken


def _ending_after_death(
    error: BaseException, pending: _Pending, folder: Path, policy: RetryPolicy
) -> Ending | None:
    """What became of a task whose batch did not come back; None if it was not to blame."""
    key = pending.task.key
    if not isinstance(error, KilledWorker):  # for example a worker that cannot import the task's module
        return Ending(key, 0.0, error=error_line(error), permanent=True)
    cause = cause_of_death(key, folder, policy.time_limit)
    if cause is None and pending.deaths < MOST_DEATHS:
        return None
    return Ending(key, policy.time_limit or 0.0, error=cause or "worker after worker died before it began")
