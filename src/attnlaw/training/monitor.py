"""Spectra during training: every k steps the chosen numbers, at a cost that the user bounds.

| letter | meaning |
|---|---|
| f | `max_overhead`, the share of the training time that measuring may take |
| T | training time: seconds since the first step, without those spent here |
| C | seconds spent here so far |
| c | seconds of the last measurement, the forecast of the next; of spectra and of margins apart |

A due step (a multiple of k) is measured if C + c <= f T. What the first measurement costs nobody knows before
it: it is made at the first due step, and counts. So C stays below f T, but for the first measurement while
the run is young and for measurements that take longer than the one before. Margins are measured with the
spectra, at multiples of their own k, if what both cost can be afforded.
"""

from __future__ import annotations

import fcntl
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.check.levels import is_at_least
from attnlaw.checkpoints.formats.torch_file import import_torch
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import BadSetting, InputError, as_input_error
from attnlaw.core.files import to_parquet, writable_directory, write_atomically
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.tables import to_frame
from attnlaw.spectra.measure import Selection, units_of
from attnlaw.training.columns import STEPS_SCHEMA, read_steps
from attnlaw.training.history import History
from attnlaw.training.margins import WatchedMargins
from attnlaw.training.snapshot import QUANTITIES, Snapshot, failed_snapshot, require_unsharded, take_snapshot
from attnlaw.training.watchdog import STOP, WARN, GateFailed, Watchdog, failure_text

SPECTRA, MARGINS = "spectra", "margins"  # what costs of its own


@settings_dataclass
class MonitorSettings(ModelSettings):
    """When a module is measured during training, and what of it."""

    every: int = setting(100, "Steps from one measurement to the next.", minimum=1)
    quantities: tuple[str, ...] = setting(QUANTITIES, f"Some of {', '.join(QUANTITIES)}.")
    max_overhead: float = setting(
        0.02, "The share of the training time that measuring may take.", greater_than=0
    )
    margins: Any = setting(
        None, "Inputs without labels, and the steps from one measurement of D to the next."
    )
    approximate: bool = setting(False, "Estimate matrices of shorter side 8192 and more.")
    rules: str | None = setting(None, "Rule file about steps, or the name of an example.", is_path=True)
    on_fail: str = setting(
        WARN,
        "What a rule that does not hold does.",
        choices=dict.fromkeys((WARN, STOP)),
        requires="rules",
    )

    def check(self) -> None:
        super().check()
        for name in self.quantities:
            if name not in QUANTITIES:
                raise BadSetting("quantities", f"expected some of {', '.join(QUANTITIES)}", name)


class SpectralMonitor:
    """Measures a module during training and keeps the rows in `directory` for `attnlaw report`.

    Call `step(step)` after every step of the optimizer. `options` are `MonitorSettings`: `every`,
    `quantities` (some of "proxies", "stable_rank", "outliers", "alpha", "factor_excess", "factor_imbalance",
    "scores", "means" and "modes"), `max_overhead`, `margins=(inputs, every)` (docs/monitor.md), and what
    chooses matrices of a model (`name`, `heads`, `map`, `layers`, `only`, `jobs`, `approximate`). Training is
    not disturbed: no gradients, no random numbers, no parameter is written. Of several processes the first
    alone measures. Weights split over processes are refused.

    `rules` is a rule file about `steps` (docs/check.md): what does not hold at a measured step is a warning,
    with `on_fail="stop"` a `GateFailed`, after the row is written. It is raised in the first process, whose
    launcher ends the others.

    steps.parquet, step_matrices.parquet and step_modes.parquet are replaced whole at every measurement, under
    a lock on steps.lock: models of different `name` may share a directory, also of several programs at work.
    A run that resumes in the same directory keeps the rows of earlier steps and replaces those from its
    first measured step on.

    >>> import tempfile, torch
    >>> block = torch.nn.TransformerEncoderLayer(16, 2, 32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     monitor = SpectralMonitor(block, folder, every=10, quantities=["stable_rank"])
    ...     [step for step in range(10) if monitor.step(step)]
    [0]
    """

    def __init__(
        self,
        model: Any,
        directory: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        self.model = unwrap_module(model)
        require_unsharded(self.model)
        if "every" in options:
            options["every"] = _as_whole_number("every", options["every"])
        self.settings = MonitorSettings.parse({"model": self.model, **options}, "SpectralMonitor")
        opened = self.settings.open()
        # What would stop a measurement is told before training.
        units_of(opened, Selection.from_settings(self.settings, opened.network))
        self.name = opened.name
        self.directory = Path(directory)
        self._clock = clock
        self._began: float | None = None
        self._spent = 0.0
        self._costs: dict[str, float] = {}  # seconds of the last measurement, by what was measured
        self._unwritten: list[Snapshot] = []
        self._first: int | None = None  # the first step that was measured
        self._history: History | None = None  # of the run up to the last measurement
        self._resumed = False  # whether the rows that it leaves behind are gone
        self._margins: WatchedMargins | None = None
        stored = None
        if is_first_process():
            if self.settings.margins is not None:
                self._margins = WatchedMargins.of(self.model, self.settings.margins, self.settings.every)
            writable_directory(self.directory)
            with _directory_lock(self.directory):
                stored, *_ = (
                    _read_rows(path) for path in (self.steps_path, self.matrices_path, self.modes_path)
                )
        rules = self.settings.rules
        self._watchdog = None if rules is None else Watchdog(rules, self.name, stored)

    @property
    def steps_path(self) -> Path:
        return self.directory / "steps.parquet"

    @property
    def matrices_path(self) -> Path:
        return self.directory / "step_matrices.parquet"

    @property
    def modes_path(self) -> Path:
        return self.directory / "step_modes.parquet"

    def step(self, step: int) -> Snapshot | None:
        """Measure if the step is due and the measurement can be afforded; None where nothing was done."""
        step, now = _as_whole_number("step", step), self._read_clock()
        if step % self.settings.every or not self._can_afford(now, SPECTRA):
            return None
        due = self._margins is not None and step % self._margins.every == 0
        return self._measure(
            step, now, self._margins if due and self._can_afford(now, SPECTRA, MARGINS) else None
        )

    def stops_at(self, step: int) -> bool:
        """Whether rules may end the run at this step: it is due, and they are asked to."""
        return self.settings.on_fail == STOP and step % self.settings.every == 0

    def measure(self, step: int) -> Snapshot | None:
        """Measure now, whatever it costs (it counts); None on all processes but the first."""
        return self._measure(_as_whole_number("step", step), self._read_clock(), self._margins)

    def _measure(self, step: int, start: float, margins: WatchedMargins | None) -> Snapshot | None:
        if not is_first_process():
            return None
        if self._history is None:
            with _directory_lock(self.directory):
                matrices, modes = _read_rows(self.matrices_path), _read_rows(self.modes_path)
            self._history = History.of(self.name, matrices, modes, before=step)
        quantities, approximate = self.settings.quantities, self.settings.approximate
        try:
            taken = take_snapshot(self.settings, step, quantities, self._history, approximate)
        except InputError as error:
            # The options were checked before: the weights have diverged, which is for the rows to tell.
            taken, margins = failed_snapshot(self.name, step, str(error)), None
        between = self._clock()
        if margins is not None:
            taken = replace(taken, row=margins.add_to_row(taken.row, self.model))
            self._costs[MARGINS] = self._clock() - between
        seconds = self._clock() - start
        training = self._training_time(start)
        overhead = (self._spent + seconds) / training if training > 0 else None
        taken = replace(taken, row={**taken.row, "seconds": seconds, "overhead": overhead})
        self._write(taken)
        spent = self._clock() - start
        self._costs[SPECTRA] = spent if margins is None else spent - self._costs[MARGINS]
        self._spent += spent
        return taken if self._watchdog is None else self._judge(taken, self._watchdog)

    def _judge(self, taken: Snapshot, watchdog: Watchdog) -> Snapshot:
        """The snapshot with its verdicts; a warning, or the end, where rules do not hold."""
        verdicts = watchdog.judge(to_frame([taken.row], STEPS_SCHEMA))
        taken = replace(taken, verdicts=verdicts)
        if not verdicts.passed and self.settings.on_fail == STOP:
            raise GateFailed(taken, verdicts)
        if any(is_at_least(rule.level, "warning") for rule in verdicts.failed_rules):
            warnings.warn(failure_text(taken.step, verdicts), stacklevel=4)
        return taken

    def _read_clock(self) -> float:
        now = self._clock()
        if self._began is None:
            self._began = now
        return now

    def _can_afford(self, now: float, *parts: str) -> bool:
        if any(part not in self._costs for part in parts):
            return True
        forecast = sum(self._costs[part] for part in parts)
        return self._spent + forecast <= self.settings.max_overhead * self._training_time(now)

    def _training_time(self, now: float) -> float:
        return now - (now if self._began is None else self._began) - self._spent

    def _write(self, taken: Snapshot) -> None:
        """Add the rows to the files; where that fails, say so and try again with the next ones."""
        if self._first is None:
            self._first = taken.step
        self._unwritten = [*(old for old in self._unwritten if old.step != taken.step), taken]
        steps = to_frame([snapshot.row for snapshot in self._unwritten], STEPS_SCHEMA)
        matrices, modes = (
            pl.concat([getattr(snapshot, name) for snapshot in self._unwritten])
            for name in ("matrices", "modes")
        )
        try:
            with _directory_lock(self.directory):
                self._append(self.matrices_path, matrices)
                self._append(self.modes_path, modes)
                self._append(self.steps_path, steps)
        except (InputError, OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0]
            warnings.warn(f"{reason}; the rows are kept until the next measurement", stacklevel=3)
        else:
            self._unwritten, self._resumed = [], True

    def _append(self, path: Path, rows: pl.DataFrame) -> None:
        """Add rows, each in place of an earlier one of its step.

        The first time, rows from the first measured step on are of weights that a resumed run has left.
        """
        replaced = pl.col("step").is_in([snapshot.step for snapshot in self._unwritten])
        if not self._resumed:
            replaced |= pl.col("step") >= self._first
        stored = _read_rows(path)
        earlier = [] if stored is None else [stored.filter(~(replaced & (pl.col("model") == self.name)))]
        with write_atomically(path) as draft:
            draft.write_bytes(to_parquet(pl.concat([*earlier, rows], how="diagonal_relaxed")))


def _as_whole_number(name: str, number: Any) -> int:
    """A whole number of Python, numpy or torch as one of Python."""
    try:
        return operator.index(number)
    except TypeError as error:
        raise InputError(f"{name} is {number!r}; expected a whole number") from error


def is_first_process() -> bool:
    """Whether this is rank 0 of a distributed run, or the only process."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return bool(dist.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def unwrap_module(model: Any) -> Any:
    """The module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`."""
    nn = import_torch("monitoring").nn
    if not isinstance(model, nn.Module):
        raise InputError(f"cannot monitor a {type(model).__name__}; pass the nn.Module that is trained")
    wrappers = nn.DataParallel | nn.parallel.DistributedDataParallel
    while hasattr(model, "_orig_mod") or isinstance(model, wrappers):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


@contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; wait while another monitor has it."""
    path = directory / "steps.lock"
    with as_input_error(f"{path}: cannot be locked", "monitor into another directory"):
        file = path.open("a")
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        try:
            yield
        finally:
            # Closing is not enough: a process that was forked meanwhile would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)


def _read_rows(path: Path) -> pl.DataFrame | None:
    """The rows of a file; None where there is none yet."""
    return read_steps(path, "monitor into another directory") if path.exists() else None
