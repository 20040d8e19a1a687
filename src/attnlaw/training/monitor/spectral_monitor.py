"""Measure spectra every k steps of a training run, at a cost that the user limits.

| letter | meaning |
|---|---|
| f | `max_overhead`, the share of the training time that measuring may take |
| T | training time: seconds since the first step, without those spent measuring |
| C | seconds spent measuring so far |
| c | forecast: 1.25 times the cost of the dearest recent measurement; separate for spectra and margins |

All times are CPU seconds of the process, summed over its threads. Elapsed time would count what other
processes do, and would miss all but one of the threads that measure.

A due step (a multiple of k) is measured if C + c <= f T. The cost of the first measurement is not known in
advance. The monitor makes it at the first due step, and adds its time to C. So C stays below f T, except
after the first measurement of a young run and after a measurement that is much dearer than all recent ones.
Margins have a separate k. They are measured together with the spectra, if the cost of both fits.
"""

from __future__ import annotations

import fcntl
import operator
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.check.rules import is_at_least
from attnlaw.analysis.forward.classifier import ModelInputs, as_inputs
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.checkpoints.formats.torch_file import import_torch
from attnlaw.core.errors import BadSetting, InputError, as_input_error
from attnlaw.core.files import read_json, remove_if_refused, writable_directory, write_all
from attnlaw.core.result import MANIFEST, ROWS, Result
from attnlaw.core.settings import check_value
from attnlaw.spectra.measure import Selection, units_of
from attnlaw.training.monitor import STOP, VERB, MonitoredRun, MonitorSettings
from attnlaw.training.monitor.history import History
from attnlaw.training.monitor.snapshot import (
    Snapshot,
    failed_snapshot,
    require_unsharded,
    step_frame,
    take_snapshot,
)
from attnlaw.training.monitor.watchdog import GateFailed, Watchdog, failure_text

SPECTRA, MARGINS = "spectra", "margins"  # measurements whose cost is forecast
RECENT = 8  # measurements whose largest cost gives the forecast
MARGIN = 1.25  # the forecast over that cost, because costs vary and grow with the rows of a run


class SpectralMonitor:
    """A monitor that measures a module during training and keeps rows for `attnlaw report`.

    Call `step(step)` after every step of the optimizer. Monitoring does not disturb the training: it computes
    no gradients, draws no random numbers and writes no parameters. If there are several processes, only the
    first process measures. Weights that are split among processes are not supported.

    The directory has a result that `attnlaw.load` reads, with a case for each model: attnlaw.json,
    rows.parquet and the tables `steps`, `step_matrices` and `step_modes`. Each measurement replaces all these
    files, with a lock on steps.lock. Therefore models with different names may share a directory, even if
    several programs write to it at once. A run that resumes in the same directory keeps the rows of earlier
    steps, and replaces the rows from its first measured step on.

    Args:
        model: the `nn.Module` to watch.
        directory: the directory to write the result to.
        clock: a function that returns seconds. By default, the clock counts CPU seconds of this process. If
            the training waits for a device without using the CPU, `time.perf_counter` bounds the elapsed
            time.
        options: `MonitorSettings`: `every`, `quantities` (some of "proxies", "stable_rank", "outliers",
            "alpha", "factor_excess", "factor_imbalance", "scores", "means" and "modes"), `max_overhead`,
            `margins=(inputs, every)` (docs/how-to/watch-training.md), and the options that choose matrices of
            a model (`name`, `heads`, `map`, `layers`, `only`, `jobs`, `approximate`). `rules` is a rule file
            about `steps` (docs/commands/check.md). If a rule does not hold at a measured step, the monitor
            warns. With `on_fail="stop"` the monitor writes the row and then raises `GateFailed`. If there are
            several processes, only the first process raises the error, and the launcher ends the others.

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
        clock: Callable[[], float] = time.process_time,
        **options: Any,
    ) -> None:
        self.model = unwrap_module(model)
        require_unsharded(self.model)
        if "every" in options:
            options["every"] = _as_whole_number("every", options["every"])
        self.settings = MonitorSettings.parse({"model": self.model, **options}, "SpectralMonitor")
        opened = self.settings.open()
        # Errors in the options appear before training.
        units_of(opened, Selection.from_settings(self.settings, opened.network))
        self.name = opened.name
        self.directory = Path(directory)
        self._clock = clock
        self._began: float | None = None
        self._spent = 0.0
        self._costs: dict[str, deque[float]] = {}  # seconds of the last measurements of each kind
        self._unwritten: list[Snapshot] = []
        self._first: int | None = None  # the first step that was measured
        self._history: History | None = None  # up to the last measurement
        self._resumed = False  # whether rows of abandoned steps are dropped
        self._margins: WatchedMargins | None = None
        with remove_if_refused(self.directory, is_needed=lambda: False):
            stored = self._prepare_directory() if is_first_process() else None
            rules = self.settings.rules
            earlier = None if stored is None else stored.tables.get("steps")
            self._watchdog = None if rules is None else Watchdog(rules, self.name, earlier)

    def _prepare_directory(self) -> Result | None:
        """Try the margins, create the directory, and return what it has of this model."""
        if self.settings.margins is not None:
            self._margins = WatchedMargins.of(self.model, self.settings.margins, self.settings.every)
        writable_directory(self.directory)
        with _directory_lock(self.directory):
            return self._split_cases()[1]

    def step(self, step: int) -> Snapshot | None:
        """Measure if the step is due and the cost fits into `max_overhead`. Return the snapshot, or None."""
        step, now = _as_whole_number("step", step), self._read_clock()
        if step % self.settings.every or not self._can_afford(now, SPECTRA):
            return None
        due = self._margins is not None and step % self._margins.every == 0
        margins = self._margins if due and self._can_afford(now, SPECTRA, MARGINS) else None
        return self._measure(step, now, margins)

    def stops_at(self, step: int) -> bool:
        """Return whether a failed rule would end the training at this step."""
        return self.settings.on_fail == STOP and step % self.settings.every == 0

    def measure(self, step: int) -> Snapshot | None:
        """Measure now, even if the cost exceeds `max_overhead`.

        The time of this measurement counts towards the overhead. Only the first process measures, and the
        others return None.
        """
        return self._measure(_as_whole_number("step", step), self._read_clock(), self._margins)

    def _measure(self, step: int, start: float, margins: WatchedMargins | None) -> Snapshot | None:
        if not is_first_process():
            return None
        if self._history is None:
            with _directory_lock(self.directory):
                stored = self._split_cases()[1]
            tables = {} if stored is None else stored.tables
            matrices, modes = tables.get("step_matrices"), tables.get("step_modes")
            self._history = History.of(self.name, matrices, modes, before=step)
        quantities, approximate = self.settings.quantities, self.settings.approximate
        try:
            snapshot = take_snapshot(self.settings, step, quantities, self._history, approximate)
        except InputError as error:
            # The options were checked before, so the weights have diverged: a row records that.
            snapshot, margins = failed_snapshot(self.name, step, str(error)), None
        between, margin_seconds = self._clock(), 0.0
        if margins is not None:
            snapshot = replace(snapshot, row=margins.add_to_row(snapshot.row, self.model))
            margin_seconds = self._clock() - between
            self._add_cost(MARGINS, margin_seconds)
        seconds = self._clock() - start
        training = self._training_time(start)
        overhead = (self._spent + seconds) / training if training > 0 else None
        snapshot = replace(snapshot, row={**snapshot.row, "seconds": seconds, "overhead": overhead})
        self._write(snapshot)
        try:
            return snapshot if self._watchdog is None else self._judge(snapshot, self._watchdog)
        finally:
            spent = self._clock() - start
            self._add_cost(SPECTRA, spent - margin_seconds)
            self._spent += spent

    def _judge(self, snapshot: Snapshot, watchdog: Watchdog) -> Snapshot:
        verdicts = watchdog.judge(step_frame([snapshot]))
        snapshot = replace(snapshot, verdicts=verdicts)
        if not verdicts.passed and self.settings.on_fail == STOP:
            raise GateFailed(snapshot, verdicts)
        if any(is_at_least(rule.level, "warning") for rule in verdicts.failed_rules):
            warnings.warn(failure_text(snapshot.step, verdicts), stacklevel=4)
        return snapshot

    def _read_clock(self) -> float:
        now = self._clock()
        if self._began is None:
            self._began = now
        return now

    def _add_cost(self, part: str, seconds: float) -> None:
        self._costs.setdefault(part, deque(maxlen=RECENT)).append(seconds)

    def _can_afford(self, now: float, *parts: str) -> bool:
        if any(part not in self._costs for part in parts):
            return True
        forecast = MARGIN * sum(max(self._costs[part]) for part in parts)
        return self._spent + forecast <= self.settings.max_overhead * self._training_time(now)

    def _training_time(self, now: float) -> float:
        return now - (now if self._began is None else self._began) - self._spent

    def _write(self, snapshot: Snapshot) -> None:
        """Write the rows of a snapshot. If that fails, warn and keep them until the next measurement."""
        if self._first is None:
            self._first = snapshot.step
        self._unwritten = [*(old for old in self._unwritten if old.step != snapshot.step), snapshot]
        try:
            with _directory_lock(self.directory):
                self._append()
        except (InputError, OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0]
            warnings.warn(
                f"{reason}; the monitor keeps these rows in memory and writes them with the next measurement",
                stacklevel=3,
            )
        else:
            self._unwritten, self._resumed = [], True

    def _append(self) -> None:
        """Add the unwritten rows. A run that resumes first drops rows from its first measured step on."""
        replaced = pl.col("step").is_in([snapshot.step for snapshot in self._unwritten])
        if not self._resumed:
            replaced |= pl.col("step") >= self._first
        before, stored, after = self._split_cases()
        new = {
            "steps": step_frame(self._unwritten),
            "step_matrices": pl.concat([snapshot.matrices for snapshot in self._unwritten]),
            "step_modes": pl.concat([snapshot.modes for snapshot in self._unwritten]),
        }
        old = {} if stored is None else {name: table.drop("case") for name, table in stored.tables.items()}
        whole = [
            pl.concat([old[name].filter(~replaced), rows]) if name in old else rows
            for name, rows in new.items()
        ]
        run = Result.collect(VERB, [(self.settings, MonitoredRun(*whole))])
        files = Result.concat([*before, run, *after]).files()
        # `write_all` renames the last file first: if a run is killed, every case of a table has its row.
        order = [*(name for name in files if name not in (ROWS, MANIFEST)), MANIFEST, ROWS]
        write_all({self.directory / name: files[name] for name in order})

    def _split_cases(self) -> tuple[list[Result], Result | None, list[Result]]:
        """Return the results stored before this model's, this model's result (or None), and the rest."""
        manifest, remedy = self.directory / MANIFEST, "give the monitor another directory"
        if not manifest.exists():
            if (self.directory / "steps.parquet").exists():
                raise InputError(
                    f"{self.directory}: this directory has steps that attnlaw 0.2 or earlier wrote; {remedy}"
                )
            return [], None, []
        written = read_json(manifest, remedy)
        if not isinstance(written, dict) or written.get("verb") != VERB.name:
            raise InputError(
                f"{self.directory}: this directory has files that were not written by a monitor; {remedy}"
            )
        cases = list(Result.open(self.directory, VERB, remedy))
        names = [case.row()["model"] for case in cases]
        if self.name not in names:
            return cases, None, []
        place = names.index(self.name)
        return cases[:place], cases[place], cases[place + 1 :]


def _as_whole_number(name: str, number: Any) -> int:
    try:
        return operator.index(number)
    except TypeError as error:
        raise InputError(f"{name} is {number!r}; expected a whole number") from error


def is_first_process() -> bool:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return bool(dist.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def unwrap_module(model: Any) -> Any:
    nn = import_torch("monitoring").nn
    if not isinstance(model, nn.Module):
        raise InputError(
            f"found a {type(model).__name__}, expected a torch.nn.Module; pass the model that you train"
        )
    wrappers = nn.DataParallel | nn.parallel.DistributedDataParallel
    while hasattr(model, "_orig_mod") or isinstance(model, wrappers):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


@contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    path = directory / "steps.lock"
    with as_input_error(f"{path}: cannot be locked", "give the monitor another directory"):
        file = path.open("a")
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        try:
            yield
        finally:
            # Closing is not enough: a process forked in the meantime would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)


@dataclass(frozen=True, eq=False)
class WatchedMargins:
    """Unlabelled inputs, and how often (in steps) to measure margins on them."""

    inputs: ModelInputs
    every: int

    @classmethod
    def of(cls, model: Any, given: Any, spacing: int) -> WatchedMargins:
        """Check the pair (inputs, every) that the user gave, and try the inputs once on the model.

        `every` must be a multiple of `spacing`, the number of steps between measurements of spectra.
        """
        if not isinstance(given, tuple | list) or len(given) != 2:
            wanted = "expected inputs and a number of steps, such as (ids, 1000)"
            raise BadSetting("margins", wanted, type(given).__name__)
        margins = cls(as_inputs(given[0]), check_value("margins", given[1], int, minimum=1))
        if margins.every % spacing:
            wanted = f"expected a multiple of the monitor's {{every}} {spacing}"
            raise BadSetting("margins", wanted, margins.every)
        measure_margins(model, margins.inputs)
        return margins

    def add_to_row(self, row: dict[str, Any], model: Any) -> dict[str, Any]:
        """Return the row of a step with columns of margins, or a remark on why they are missing."""
        try:
            margins = measure_margins(model, self.inputs)
        except InputError as error:
            return row | {"remark": _join_remarks(row["remark"], f"no margins: {error}")}
        mean = margins.mean_log
        return row | {
            "margins_mean_log": mean and mean.value,
            "margins_mean_log_error": mean and mean.error,
            "margins_median": margins.median.value,
            "remark": _join_remarks(row["remark"], margins.remark and f"margins: {margins.remark}"),
        }


def _join_remarks(*remarks: str | None) -> str | None:
    return "; ".join(filter(None, remarks)) or None
