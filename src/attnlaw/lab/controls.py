"""Turn declared settings into controls: sliders, choices, switches and texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any

from attnlaw.core.settings import SettingField, Settings, setting_fields

MOST_SLIDER_STEPS = 100  # between the ends of a slider
PER_DECADE = 25  # steps of a logarithmic slider
LOG_STEPS_FROM_RATIO = 50.0  # high / low from which steps are logarithmic
DIGITS = 3


@dataclass(frozen=True)
class Control:
    """A control for one setting on a page, such as a slider."""

    name: str
    label: str
    help: str
    panel: str
    kind: str  # a key of `CONTROL_KINDS`
    value: Any  # what it shows at first
    steps: tuple[float, ...] = ()  # values of a slider, in increasing order
    options: tuple[str, ...] = ()  # the possible values of a choice
    optional: bool = False  # whether it may be left out, as it is at first


def build_controls(settings: type[Settings], excluded: tuple[str, ...] = ()) -> list[Control]:
    """Return the controls of all settings of a class, except those named in `excluded`."""
    known = [field for name, field in setting_fields(settings).items() if name not in excluded]
    return [build_control(field) for field in known if not field.rule.machine_only]


def build_control(field: SettingField) -> Control:
    kind = next(kind for kind, fits in CONTROL_KINDS.items() if fits(field))
    optional, value = field.default is None, _initial_value(field)
    label = label_with_symbol(field.name, field.rule.symbol)
    common = (field.name, label, field.rule.help, field.rule.panel, kind)
    if kind == "slider":
        steps = slider_steps(field)
        return Control(*common, _nearest_step(steps, value), tuple(steps), optional=optional)
    return Control(*common, value, options=tuple(field.rule.choices or ()), optional=optional)


def label_with_symbol(name: str, symbol: str) -> str:
    """Return the label of a name in words, with its symbol in brackets if it has one.

    >>> label_with_symbol("weight_decay", "λ"), label_with_symbol("seed", "")
    ('weight decay (λ)', 'seed')
    """
    words = name.replace("_", " ")
    return f"{words} ({symbol})" if symbol else words


CONTROL_KINDS: dict[str, Callable[[SettingField], bool]] = {
    "switch": lambda field: field.types == (bool,),
    "choice": lambda field: field.rule.choices is not None,
    "slider": lambda field: bool(field.types) and field.is_number,
    "text": lambda field: True,
}


def slider_steps(field: SettingField) -> list[float]:
    """Return the values of a slider, including its initial value.

    The values are equally spaced. If the ends are far apart, they are equally spaced on a logarithmic scale.

    >>> from attnlaw.core.settings import SettingRule
    >>> share = SettingField("p", SettingRule("", greater_than=0, maximum=1), (float,), 0.5)
    >>> slider_steps(share)[:2], slider_steps(share)[-1], len(slider_steps(share))
    ([0.01, 0.02], 1.0, 100)
    >>> slider_steps(SettingField("n", SettingRule("", minimum=1), (int,), 100))[:3]
    [10, 11, 12]
    """
    low, high = _slider_ends(field)
    if low > 0 and high / low >= LOG_STEPS_FROM_RATIO:
        count = math.ceil(PER_DECADE * math.log10(high / low))
        exact = [low * (high / low) ** (i / count) for i in range(count + 1)]
        values = [float(f"{value:.{DIGITS}g}") for value in exact]
    else:
        step = _round_step((high - low) / MOST_SLIDER_STEPS)
        inner = range(math.ceil(low / step), math.floor(high / step) + 1)
        values = [low, *(round(i * step, 12) for i in inner), high]
    if float not in field.types:
        values = [round(value) for value in values]
    start = _initial_value(field)
    if isinstance(start, int | float) and math.isfinite(start):
        values.append(start)
    above = field.rule.greater_than
    return sorted(value for value in dict.fromkeys(values) if above is None or value > above)


def _round_step(least: float) -> float:
    """Return the smallest number that is 1, 2 or 5 times a power of ten and at least `least`.

    >>> _round_step(0.0145), _round_step(0.02)
    (0.02, 0.02)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _slider_ends(field: SettingField) -> tuple[float, float]:
    """Return the declared ends of a slider, else the bounds of the setting, else ends around its default."""
    rule = field.rule
    if rule.slider_range is not None:
        return rule.slider_range
    start = _initial_value(field)
    middle = float(start) if isinstance(start, int | float) and math.isfinite(start) else 0.0
    low, high = rule.greater_than if rule.minimum is None else rule.minimum, rule.maximum
    if low is not None and high is not None and high <= LOG_STEPS_FROM_RATIO * max(abs(low), 1.0):
        return low, high
    around = (middle / 10, middle * 10) if middle > 0 else (0.0, 1.0 if float in field.types else 10.0)
    return max(around[0], low or 0.0), min(around[1], high or math.inf)


def _initial_value(field: SettingField) -> Any:
    if field.rule.lab_default is not None:
        return field.rule.lab_default
    return None if field.default is MISSING else field.default


def _nearest_step(steps: list[float], value: Any) -> float:
    """Return the step that is nearest to the value. If there is no value, return the middle step."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return steps[len(steps) // 2]
    return min(steps, key=lambda step: abs(step - value))
