"""A simulation beside the theory, in the background: it tells how far it is, and ends when it is told to."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.lab.state import State


class TrainingStopped(Exception):
    """What the progress of a stopped simulation raises."""


class Training:
    """The simulation of a state, in a thread of its own.

    `results` are the results once `is_over`, None where it was stopped or failed; `error` says why it failed.
    """

    def __init__(self, state: State) -> None:
        assert state.verb.simulation is not None
        self.state, self.verb = state, state.verb.simulation
        self.cases = state.simulation_cases()
        if self.verb.precheck is not None:
            for case in self.cases:
                self.verb.precheck(case)
        self.done, self.total = 0, 0
        self.results: list[Any] | None = None
        self.error: str | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let it end at its next step."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """The cases with their results."""
        return list(zip(self.cases, self.results or [], strict=True))

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _report_progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise TrainingStopped
        self.done, self.total = done, total

    def _run(self) -> None:
        try:
            results = []
            for result in self.verb.run(self.cases, self._report_progress):
                if isinstance(result, InputError):
                    raise result
                results.append(result)
            self.results = results
        except TrainingStopped:
            pass
        except InputError as error:
            self.error = str(error)
