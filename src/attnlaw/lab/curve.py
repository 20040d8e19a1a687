"""The curve of a page: how one quantity depends on one slider, with its current value marked. Each change
adds points for at most `BUDGET` seconds, and all points are kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.progress import no_progress
from attnlaw.core.settings import setting_fields
from attnlaw.lab.controls import slider_steps
from attnlaw.lab.page_model import State
from attnlaw.render.charts.lines import draw_marked_curve

BUDGET = 0.7  # seconds
LEVELS = 6  # halvings of the axis: 2 ** LEVELS + 1 points
MOST_CURVES = 64  # whose points are kept


@dataclass(frozen=True)
class CurveSpec:
    """What a curve shows. Its quantity does not depend on the `irrelevant` settings."""

    setting: str
    quantity: str
    title: str
    x: str
    y: str
    caption: str
    irrelevant: tuple[str, ...] = ()


CURVES = {
    "learn": CurveSpec(
        "alpha",
        "estimation_error",
        "Error for each number of samples",
        "samples / d² (α)",
        "estimation error (E)",
        "Error of the learned matrix that theory predicts, if only the number of samples changes. The dot "
        "is the current setting. Lower is better: 0 means that the student has learned the target exactly.",
        ("thresholds", "spectrum"),
    )
}
_points: dict[str, dict[float, float]] = {}


def curve_chart(spec: CurveSpec, state: State, value: float | None) -> Any:
    """Return the chart of a curve. `value` is the quantity at the current setting, if known."""
    points, here = curve_points(spec, state), _current(spec, state)
    ends = slider_ends(spec, state)
    return draw_marked_curve(points, (here, value), spec.x, spec.y, ends, f"now: α = {here:g}, E = {{:.3g}}")


def curve_points(spec: CurveSpec, state: State) -> dict[float, float]:
    """Return the points of a curve. Compute missing points for at most `BUDGET` seconds."""
    dropped = (spec.setting, *spec.irrelevant)
    others = {name: value for name, value in state.arguments.items() if name not in dropped}
    while len(_points) >= MOST_CURVES:
        _points.pop(next(iter(_points)))
    points = _points.setdefault(repr((state.verb.name, sorted(others.items()))), {})
    missing = [x for x in _axis_values(slider_ends(spec, state)) if x not in points]
    until = time.monotonic() + BUDGET
    for x in missing:
        if len(points) > 2 and time.monotonic() > until:
            break
        points[x] = _value_at(spec, state, others | {spec.setting: x})
    return {x: y for x, y in points.items() if math.isfinite(y)}


def _value_at(spec: CurveSpec, state: State, arguments: dict[str, Any]) -> float:
    """Return the quantity for one case. It is NaN if the case failed."""
    (case,) = state.verb.cases(arguments)
    (record,) = state.verb.run([case], no_progress)
    value = None if isinstance(record, InputError) else state.verb.cells(record).get(spec.quantity)
    return math.nan if value is None else float(value)


def _axis_values(ends: tuple[float, float]) -> Iterator[float]:
    """Yield values between the ends, evenly in the logarithm: both ends, the middle, the quarters, ...

    >>> [round(value, 2) for value in _axis_values((1.0, 16.0))][:5]
    [1.0, 16.0, 4.0, 2.0, 8.0]
    """
    low, high = ends
    yield low
    yield high
    for level in range(1, LEVELS + 1):
        for part in range(1, 2**level, 2):
            yield float(f"{low * (high / low) ** (part / 2**level):.6g}")


def slider_ends(spec: CurveSpec, state: State) -> tuple[float, float]:
    """Return the ends of the curve's slider, which are also the ends of its x axis."""
    steps = slider_steps(setting_fields(state.verb.settings)[spec.setting])
    return steps[0], steps[-1]


def _current(spec: CurveSpec, state: State) -> float:
    default = setting_fields(state.verb.settings)[spec.setting].default
    return float(state.arguments.get(spec.setting, default))
