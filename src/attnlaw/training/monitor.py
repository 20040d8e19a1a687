"""A monitored training run: what a monitor is told, and what it writes while a model trains.

| file | holds |
|---|---|
| `columns` | the columns of its tables |
| `spectral_monitor` | `SpectralMonitor`, which measures and writes |
| `charts` | the steps of a run, drawn |

D of some inputs during training: the relative margin of the model's own predictions, without labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.forward.classifier import ModelInputs, as_inputs
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import check_value, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.training.monitor.columns import QUANTITIES, STEP_MATRICES, STEP_MODES, STEPS

if TYPE_CHECKING:
    import polars as pl

WARN, STOP = "warn", "stop"


@settings_dataclass
class MonitorSettings(ModelSettings):
    """When a module is measured during training, and what of it."""

    every: int = setting(100, "Steps from one measurement to the next.", minimum=1)
    quantities: tuple[str, ...] = setting(QUANTITIES, f"Some of {', '.join(QUANTITIES)}.")
    max_overhead: float = setting(
        0.02, "The share of the training time that measuring may take.", greater_than=0
    )
    margins: Any = setting(
        None,
        "Inputs without labels, and the steps from one measurement of D to the next.",
        machine_only=True,  # no row can state inputs
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


@dataclass(frozen=True, eq=False)
class MonitoredRun:
    """The steps of one model that were measured so far, with the columns of `columns`."""

    steps: pl.DataFrame
    matrices: pl.DataFrame
    modes: pl.DataFrame

    @property
    def quantities(self) -> dict[str, Any]:
        """The numbers of the run by name."""
        return {
            "measured_steps": self.steps.height,
            "failed_steps": (self.steps["status"] == "failed").sum(),
            "last_step": self.steps["step"].max(),
            "seconds": self.steps["seconds"].sum(),
            "overhead": self.steps["overhead"][-1],
        }

    @property
    def remark(self) -> str | None:
        """That of the last measurement."""
        remark: str | None = self.steps["remark"][-1]
        return remark

    def __repr__(self) -> str:
        return f"<MonitoredRun {self.steps.height} steps>"


def run(case: MonitorSettings, progress: Progress) -> MonitoredRun:
    raise InputError("a run is monitored while it trains; use attnlaw.training.SpectralMonitor in its loop")


VERB = Verb(
    "monitor",
    "Training run",
    MonitorSettings,
    (
        Quantity("measured_steps", "steps that were measured", kind="int", in_summary=True),
        Quantity("failed_steps", "steps whose weights could not be measured", kind="int", in_summary=True),
        Quantity("last_step", "the largest step that was measured", kind="int", in_summary=True),
        Quantity("seconds", "time that all measurements took"),
        Quantity("overhead", "share of the training time that measuring took, at the last measurement"),
    ),
    run_each_case(run),
    tables=(
        TableSpec("steps", STEPS, lambda run: run.steps),
        TableSpec("step_matrices", STEP_MATRICES, lambda run: run.matrices),
        TableSpec("step_modes", STEP_MODES, lambda run: run.modes),
    ),
    charts=("steps",),
)


EXPECTED = "expected inputs and a number of steps, such as (ids, 1000)"


@dataclass(frozen=True, eq=False)
class WatchedMargins:
    """Inputs whose margins are measured at every step of which `every` is a divisor."""

    inputs: ModelInputs
    every: int

    @classmethod
    def of(cls, model: Any, given: Any, spacing: int) -> WatchedMargins:
        """What was given as (inputs, every), tried once on the model, before training.

        `spacing` is that of the monitor, which `every` must be a multiple of.
        """
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise BadSetting("margins", EXPECTED, type(given).__name__)
        margins = cls(as_inputs(given[0]), check_value("margins", given[1], int, minimum=1))
        if margins.every % spacing:
            raise BadSetting(
                "margins", f"expected a multiple of the monitor's {{every}} {spacing}", margins.every
            )
        measure_margins(model, margins.inputs)
        return margins

    def add_to_row(self, row: dict[str, Any], model: Any) -> dict[str, Any]:
        """The row of a step with the columns of margins; without them, and why, where a model has none."""
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
