"""The settings of a monitored training run, and the verb under which its rows are saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.training.monitor.columns import QUANTITIES, STEP_MATRICES, STEP_MODES, STEPS

if TYPE_CHECKING:
    import polars as pl

WARN, STOP = "warn", "stop"


@settings_dataclass
class MonitorSettings(ModelSettings):
    """The settings of a monitor: when to measure a module during training, and which quantities."""

    every: int = setting(100, "Number of training steps from one measurement to the next.", minimum=1)
    quantities: tuple[str, ...] = setting(
        QUANTITIES, f"Quantities to measure: some of {', '.join(QUANTITIES)}."
    )
    max_overhead: float = setting(
        0.02,
        "Largest share of the training's CPU time for measurements; attnlaw measures less often to "
        "stay below it.",
        greater_than=0,
    )
    margins: Any = setting(
        None,
        "Pair (inputs, every): inputs without labels, and the number of steps between measurements "
        "of the relative margin D on them.",
        machine_only=True,  # rows cannot contain inputs
    )
    approximate: bool = setting(
        False, "Estimate the singular values of matrices whose shorter side is at least 8192."
    )
    rules: str | None = setting(
        None,
        "Rule file with rules for training steps, or the name of an example that comes with attnlaw.",
        is_path=True,
    )
    on_fail: str = setting(
        WARN,
        "What to do if a rule does not hold: warn, or stop the training.",
        choices=dict.fromkeys((WARN, STOP)),
        requires="rules",
    )

    def check(self) -> None:
        super().check()
        for name in self.quantities:
            if name not in QUANTITIES:
                raise BadSetting("quantities", f"expected some of {', '.join(QUANTITIES)}", name)


@dataclass(frozen=True, eq=False)
class MonitoredRun:
    """The steps of one model that a monitor has measured. `columns` describes the columns of the tables."""

    steps: pl.DataFrame
    matrices: pl.DataFrame
    modes: pl.DataFrame

    @property
    def quantities(self) -> dict[str, Any]:
        return {
            "measured_steps": self.steps.height,
            "failed_steps": (self.steps["status"] == "failed").sum(),
            "last_step": self.steps["step"].max(),
            "seconds": self.steps["seconds"].sum(),
            "overhead": self.steps["overhead"][-1],
        }

    @property
    def remark(self) -> str | None:
        """The remark of the last measurement, or None."""
        remark: str | None = self.steps["remark"][-1]
        return remark

    def __repr__(self) -> str:
        return f"<MonitoredRun {self.steps.height} steps>"


def run(case: MonitorSettings, progress: Progress) -> MonitoredRun:
    raise InputError(
        "a training run is monitored while it trains; use attnlaw.training.SpectralMonitor in its loop"
    )


VERB = Verb(
    "monitor",
    "Training run",
    MonitorSettings,
    (
        Quantity(
            "measured_steps", "number of training steps that were measured", kind="int", in_summary=True
        ),
        Quantity(
            "failed_steps",
            "number of training steps whose weights could not be measured",
            kind="int",
            in_summary=True,
        ),
        Quantity("last_step", "last training step that was measured", kind="int", in_summary=True),
        Quantity("seconds", "CPU seconds that all measurements took together"),
        Quantity("overhead", "CPU time of all measurements, relative to the CPU time of the training"),
    ),
    run_each_case(run),
    tables=(
        TableSpec("steps", STEPS, lambda run: run.steps),
        TableSpec("step_matrices", STEP_MATRICES, lambda run: run.matrices),
        TableSpec("step_modes", STEP_MODES, lambda run: run.modes),
    ),
    charts=("steps",),
)
