"""D of some inputs during training: the relative margin of the model's own predictions, without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlaw.analysis.forward.classifier import ModelInputs, as_inputs
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.settings import check_value

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
