"""Compute tasks in this process, one by one or in groups; the module `cluster` does the same on Dask. A
failed task is tried again, unless its error is permanent. Tasks of one group (`Verb.batch_key`) share most of
their work, so their batches grow as the time per task falls, from `LEAST` tasks if one takes up to `LONG`
seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from attnlaw.study.task import Ending, Task, group_tasks, run_task, run_tasks_together, time_again

BATCH, CHUNK = 0.25, 1.0  # seconds of a batch of single tasks, and of a group
LEAST, LONG = 32, 3.0
MOST_IN_BATCH = 500


@dataclass
class Stop:
    """A request to stop, from the user or because a part of a case failed.

    A user's request interrupts a task that this process is computing.
    """

    by_user: bool = False
    is_pointless: bool = False
    computing: bool = False

    @property
    def is_requested(self) -> bool:
        return self.by_user or self.is_pointless

    def request_stop(self, number: int, frame: FrameType | None) -> None:
        self.by_user = True
        if self.computing:
            raise KeyboardInterrupt

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Request a stop on SIGINT (Ctrl-C) and SIGTERM (end of a job), but only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self.request_stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


class TimeUp(BaseException):
    """An error for a task that exceeded its time limit. No `Exception`, so that tasks do not catch it."""


@dataclass
class Engine:
    """An engine that computes tasks in this process. If a task exits the process, the whole run ends.

    `pace` is the mean time of a task in seconds, for each kind of task (see `pace_key`).
    """

    folder: Path  # directory of the store, to which tasks write their tables
    stop: Stop  # ends the work as soon as it is requested
    time_limit: float | None = None  # seconds for one attempt at a task; None sets no limit
    retries: int = 2  # attempts after the first one
    pace: dict[tuple[str, bool], float] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return 1

    def run(self, tasks: Sequence[Task], first: bool = False) -> Iterator[list[Ending]]:
        """Yield how each task ended.

        If `first` is true, quick tasks run twice, because imports make the first run slow.
        """
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1, user_api="blas"):
            for group in group_tasks(tasks):
                while group and not self.stop.is_requested:
                    size = 1 if first else self.batch_size(group[0])
                    chunk, group = group[:size], group[size:]
                    done: list[Ending] = []
                    if len(chunk) > 1:
                        with suppress(TimeUp, KeyboardInterrupt), self._interruptible():
                            done = run_tasks_together(chunk, self.folder)
                    if done:
                        self.add_times(chunk[0], done)
                        yield done
                    keys = {ending.key for ending in done}
                    for task in chunk:
                        if task.key not in keys and (ending := self._run_alone(task, first)) is not None:
                            yield [ending]

    def is_final(self, ending: Ending) -> bool:
        return ending.error is None or ending.permanent or ending.attempts > self.retries

    def add_times(self, task: Task, endings: Iterable[Ending]) -> None:
        """Update the mean time of this kind of task. The old mean has the weight of one new measurement."""
        seconds = [ending.seconds for ending in endings]
        before = self.pace.get(pace_key(task))
        known = seconds if before is None else [before, *seconds]
        if known:
            self.pace[pace_key(task)] = sum(known) / len(known)

    def batch_size(self, task: Task) -> int:
        """Return how many tasks like this one fill a batch: half of their time limit at most."""
        pace = self.pace.get(pace_key(task))
        if pace is None:
            return 1
        pace = max(pace, 1e-6)
        if task.group is None:
            return max(1, min(MOST_IN_BATCH, int(BATCH / pace)))
        size = max(int(CHUNK / pace), LEAST if pace <= LONG else 1)
        allowed = MOST_IN_BATCH if self.time_limit is None else int(self.time_limit / 2 / pace)
        return max(1, min(MOST_IN_BATCH, size, allowed))

    def _run_alone(self, task: Task, first: bool) -> Ending | None:
        """Return the ending of a task after all its attempts, or None if a stop was requested."""
        attempts = 0
        while True:
            ending = self._attempt(task)
            if ending is None:
                return None
            attempts += 1
            ending = replace(ending, attempts=attempts)
            if self.is_final(ending):
                break
        if first:
            ending = time_again(ending, lambda: self._attempt(task))
        if ending.error is None:
            self.add_times(task, [ending])
        return ending

    def _attempt(self, task: Task) -> Ending | None:
        if self.stop.is_requested:
            return None
        try:
            with self._interruptible():
                return run_task(task, self.folder)
        except TimeUp:
            limit = self.time_limit or 0.0
            return Ending(task.key, limit, error=f"exceeded its time limit of {limit:g} s")
        except KeyboardInterrupt:
            return None

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` if a stop is requested, and in the main thread `TimeUp` at the limit."""

        def ring(number: int, frame: FrameType | None) -> None:
            raise TimeUp

        limited = self.time_limit is not None and threading.current_thread() is threading.main_thread()
        self.stop.computing = True
        try:
            if limited:
                before = signal.signal(signal.SIGALRM, ring)
                signal.setitimer(signal.ITIMER_REAL, self.time_limit or 0.0)
            yield
        finally:
            if limited:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)
            self.stop.computing = False


def pace_key(task: Task) -> tuple[str, bool]:
    """Return the kind of a task: its verb, and whether it has a group. Times are averaged for each kind."""
    return task.verb.name, task.group is not None
