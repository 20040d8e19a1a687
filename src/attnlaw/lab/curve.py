"""The curve of a page: how one quantity depends on one slider, with its current value marked.

A curve takes at most `BUDGET` seconds of each change. Its points are kept, so moving the slider of its x axis
costs only the drawing. A slow theory gets few points at first and more with every change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt

from attnlaw.core.errors import InputError
from attnlaw.core.progress import no_progress
from attnlaw.core.settings import setting_fields
from attnlaw.lab.controls import slider_steps
from attnlaw.lab.page_model import State
from attnlaw.render.charts.encodings import HEIGHT, WIDTH, inline_data, log_axis
from attnlaw.render.charts.style import PALETTE

BUDGET = 0.7  # seconds
LEVELS = 6  # halvings of the axis: 2 ** LEVELS + 1 points
MOST_CURVES = 64  # whose points are kept


@dataclass(frozen=True)
class CurveSpec:
    """What a curve shows.

    `irrelevant` names settings that add other results, and do not change the quantity.
    """

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
        "Error against the number of samples",
        "samples / d² (α)",
        "estimation error (E)",
        "Error of the learned matrix in theory, if only the number of samples changes. The dot is the "
        "current setting. Lower is better: 0 means that the student has learned the target exactly.",
        ("thresholds", "spectrum"),
    )
}
_points: dict[str, dict[float, float]] = {}


def curve_chart(spec: CurveSpec, state: State, value: float | None) -> alt.LayerChart:
    """Return the chart of a curve. `value` is the quantity at the current setting, or None."""
    rows = [{"x": x, "y": y} for x, y in sorted(curve_points(spec, state).items())]
    here, ends = _current(spec, state), slider_ends(spec, state)
    # Between few points of a slow theory, a monotone line shows the trend without corners.
    across = alt.X("x:Q", title=spec.x).scale(type="log", nice=False, domain=list(ends))
    across = across.axis(log_axis(ends))
    up = alt.Y("y:Q", title=spec.y).scale(zero=True)
    line = alt.Chart(inline_data(rows)).mark_line(color=PALETTE[0], interpolate="monotone", clip=True)
    layers = [line.encode(x=across, y=up)]
    title = ""
    if value is not None and math.isfinite(value):
        mark = alt.Chart(inline_data([{"x": here, "y": value}]))
        layers.append(mark.mark_rule(color=PALETTE[1], strokeDash=[3, 3]).encode(x=across))
        layers.append(
            mark.mark_point(size=90, filled=True, color=PALETTE[1], opacity=1).encode(x=across, y=up)
        )
        title = f"now: α = {here:g}, E = {value:.3g}"
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def curve_points(spec: CurveSpec, state: State) -> dict[float, float]:
    """Return the known points of a curve, and compute further ones for at most `BUDGET` seconds."""
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
    """Return the ends of the slider that the curve follows, which are those of its x axis."""
    steps = slider_steps(setting_fields(state.verb.settings)[spec.setting])
    return steps[0], steps[-1]


def _current(spec: CurveSpec, state: State) -> float:
    default = setting_fields(state.verb.settings)[spec.setting].default
    return float(state.arguments.get(spec.setting, default))
