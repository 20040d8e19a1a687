"""D of some inputs during training: the relative margin of the model's own predictions, without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.settings import require
from attnlaw.forward.headed import Inputs, as_inputs
from attnlaw.forward.margins import measure_margins

EXPECTED = "expected inputs and a number of steps, such as (ids, 1000)"


@dataclass(frozen=True, eq=False)
class WatchedMargins:
    """Inputs whose margins are measured at every step of which `every` is a divisor."""

    inputs: Inputs
    every: int

    @classmethod
    def of(cls, model: Any, given: Any, spacing: int) -> WatchedMargins:
        """What was given as (inputs, every), tried once on the model, before training.

        `spacing` is that of the monitor, which `every` must be a multiple of.
        """
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise BadSetting("margins", EXPECTED, type(given).__name__)
        found = cls(as_inputs(given[0]), require("margins", given[1], int, least=1))
        if found.every % spacing:
            raise BadSetting(
                "margins", f"expected a multiple of the monitor's {{every}} {spacing}", found.every
            )
        measure_margins(model, found.inputs)
        return found

    def added(self, row: dict[str, Any], model: Any) -> dict[str, Any]:
        """The row of a step with the columns of margins; without them, and why, where a model has none."""
        try:
            found = measure_margins(model, self.inputs)
        except InputError as error:
            return row | {"remark": _joined(row["remark"], f"no margins: {error}")}
        mean = found.mean_log
        return row | {
            "margins_mean_log": mean and mean.value,
            "margins_mean_log_error": mean and mean.error,
            "margins_median": found.median.value,
            "remark": _joined(row["remark"], found.remark and f"margins: {found.remark}"),
        }


def _joined(*remarks: str | None) -> str | None:
    return "; ".join(filter(None, remarks)) or None
