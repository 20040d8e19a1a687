"""Run the simulation of a page in the background. It reports its progress and can be stopped."""

from __future__ import annotations

from threading import Event, Thread

from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.lab.page_model import State


class SimulationStopped(Exception):
    """An error that ends a simulation. The simulation raises it when it next reports its progress."""


class BackgroundSimulation:
    """A simulation with the settings of a page, which runs in a separate thread.

    At the end, `result` is its result, or None if it was stopped or failed. If it failed, `error` is the
    reason.
    """

    def __init__(self, state: State) -> None:
        assert state.verb.simulation is not None
        self.state, self.verb = state, state.verb.simulation
        for case in self.verb.cases(state.simulation_settings):
            if self.verb.precheck is not None:
                self.verb.precheck(case)
        self.done, self.total = 0, 0
        self.result: Result | None = None
        self.error: str | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _report_progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise SimulationStopped
        self.done, self.total = done, total

    def _run(self) -> None:
        try:
            self.result = self.verb(**self.state.simulation_settings, progress=self._report_progress)
        except SimulationStopped:
            pass
        except InputError as error:
            self.error = str(error)
