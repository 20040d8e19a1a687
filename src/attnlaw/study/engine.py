"""Where tasks are computed: here, one after the other, or on a Dask cluster (see `cluster`).

An engine takes tasks and yields how they ended, in any order; a task that failed is tried again up to
`Policy.retries` times, unless its error is permanent.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from attnlaw.study.pacing import Pace
from attnlaw.study.task import Ending, Task, group_tasks, run_task, run_tasks_together, time_again


@dataclass(frozen=True)
class RetryPolicy:
    """What a task may cost: seconds for an attempt (None: no limit), and attempts after the first."""

    time_limit: float | None = None
    retries: int = 2

    def is_final(self, ending: Ending) -> bool:
        """Whether the task is finished or must not be tried again."""
        return ending.error is None or ending.permanent or ending.attempts > self.retries


class Stop:
    """Whether to stop: the user asked for it, or a task failed without which the others are in vain.

    While a task is computed in this process, asking interrupts it.
    """

    def __init__(self) -> None:
        self.by_user = False
        self.is_pointless = False
        self.computing = False

    @property
    def is_requested(self) -> bool:
        return self.by_user or self.is_pointless

    def request_stop(self, number: int, frame: FrameType | None) -> None:
        self.by_user = True
        if self.computing:
            raise KeyboardInterrupt

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ask on SIGINT (Ctrl-C) and SIGTERM (a job's end), where this is the main thread."""
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


class Engine(Protocol):
    """Computes tasks. `first` asks for a measured first task: a quick one runs again, for its time alone."""

    @property
    def workers(self) -> int: ...

    def run(
        self, tasks: Sequence[Task], folder: Path, policy: RetryPolicy, stop: Stop, first: bool = False
    ) -> Iterator[list[Ending]]: ...


class TimeUp(BaseException):
    """Raised inside a task that exceeds its limit; not an `Exception`, so that no task swallows it."""


class InProcessEngine:
    """Computes tasks in this process. A task that exits the process ends the run; a cluster survives that."""

    workers = 1

    def __init__(self) -> None:
        self.pace = Pace()

    def run(
        self, tasks: Sequence[Task], folder: Path, policy: RetryPolicy, stop: Stop, first: bool = False
    ) -> Iterator[list[Ending]]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1, user_api="blas"):
            for group in group_tasks(tasks):
                while group and not stop.is_requested:
                    size = 1 if first else self.pace.batch_size(group[0], policy.time_limit)
                    chunk, group = group[:size], group[size:]
                    done = self._run_group(chunk, folder, policy, stop) if len(chunk) > 1 else []
                    if done:
                        self.pace.add_times(chunk[0], done)
                        yield done
                    keys = {ending.key for ending in done}
                    for task in chunk:
                        if task.key not in keys:
                            yield from self._run_alone(task, folder, policy, stop, first)

    def _run_group(self, tasks: list[Task], folder: Path, policy: RetryPolicy, stop: Stop) -> list[Ending]:
        """The endings of those that are done at once."""
        try:
            with _computing(stop), _alarm(policy.time_limit):
                return run_tasks_together(tasks, folder)
        except (TimeUp, KeyboardInterrupt):
            return []

    def _run_alone(
        self, task: Task, folder: Path, policy: RetryPolicy, stop: Stop, first: bool
    ) -> Iterator[list[Ending]]:
        """How one task ended; nothing if the user asked to stop."""
        ending = self._run_with_retries(task, folder, policy, stop)
        if ending is None:
            return
        if first:
            ending = time_again(ending, lambda: self._attempt(task, folder, policy, stop))
        if ending.error is None:
            self.pace.add_times(task, [ending])
        yield [ending]

    def _run_with_retries(self, task: Task, folder: Path, policy: RetryPolicy, stop: Stop) -> Ending | None:
        """The ending after as many attempts as it takes and the policy allows."""
        attempts = 0
        while (ending := self._attempt(task, folder, policy, stop)) is not None:
            attempts += 1
            ending = replace(ending, attempts=attempts)
            if policy.is_final(ending):
                break
        return ending

    def _attempt(self, task: Task, folder: Path, policy: RetryPolicy, stop: Stop) -> Ending | None:
        """The ending, or None if the user asked to stop."""
        if stop.is_requested:
            return None
        try:
            with _computing(stop), _alarm(policy.time_limit):
                return run_task(task, folder)
        except TimeUp:
            limit = policy.time_limit or 0.0
            return Ending(task.key, limit, error=f"exceeded its time limit of {limit:g} s")
        except KeyboardInterrupt:
            return None


@contextmanager
def _computing(stop: Stop) -> Iterator[None]:
    """A stop that is asked for meanwhile interrupts it."""
    stop.computing = True
    try:
        yield
    finally:
        stop.computing = False


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Raise `TimeUp` in the main thread after some seconds; compiled code ends before it is raised."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
