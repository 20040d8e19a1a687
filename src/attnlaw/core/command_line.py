"""Write the command that computes a result again, perhaps with other settings. Answers end with commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING
from typing import Any

from attnlaw.core.errors import InputError, as_option
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, parse_range, setting_fields

LEAST_RANGE = 4  # evenly spaced values that are written as FROM:TO:COUNT


def command(result: Result, *flags: str, **changes: Any) -> str:
    """Return the command that computes a result and its simulation.

    Several cases become one command if they are all combinations of values of their settings. Otherwise the
    command computes only the first case. The command leaves out settings that have their default value.
    Evenly spaced numbers become FROM:TO:COUNT. `flags` are added at the end. `changes` gives some settings
    another value, or a list of values. The value None leaves a setting out of the command.

    >>> import attnlaw
    >>> result = attnlaw.limit(width=[8, 64], heads=1, draws=100)
    >>> command(result, "--details", width=["16", math.inf])
    'attnlaw limit --heads 1 --width 16,inf --draws 100 --details'
    >>> curve = attnlaw.learn(alpha="0.1:0.5:5")
    >>> command(curve, simulate=30, seeds=2)
    'attnlaw learn --alpha 0.1:0.5:5 --simulate 30 --seeds 2'
    """
    known, values = dict(setting_fields(result.verb.settings)), _values_of(result)
    if result.verb.simulation is not None:
        more = setting_fields(result.verb.simulation.settings)
        known |= {name: field for name, field in more.items() if name not in known}
    if result.simulation is not None and len(result.simulation):
        values = _values_of(result.simulation) | values
    for name, change in changes.items():
        values[name] = _different(change if isinstance(change, list) else [change])
    given = {name: [value for value in values.get(name, []) if value is not None] for name in known}
    # Without its required settings (a dimension) there is no simulation.
    if any(field.default is MISSING and not given[name] for name, field in known.items()):
        known = dict(setting_fields(result.verb.settings))
    words = ["attnlaw", result.verb.name.partition(".")[0]]
    for name, field in known.items():
        words += _words(field, given[name])
    return shlex.join([*words, *flags])


def _values_of(result: Result) -> dict[str, list[Any]]:
    """Return the values of each setting in the cases of a result, or in its first case."""
    known, columns = setting_fields(result.verb.settings), result.verb.setting_columns
    rows = [{name: row[column] for name, column in columns.items()} for row in result.rows.to_dicts()]
    # A setting that has no effect in a case is None there.
    values = {name: _different(row[name] for row in rows if row[name] is not None) for name in columns}
    # Repetitions of a study differ in settings that a command takes once.
    lost = [name for name in columns if len(values[name]) > 1 and not known[name].rule.sweepable]
    grid = math.prod(len(values[name]) or 1 for name in columns if name not in lost)
    if grid != len(_different([value for name, value in row.items() if name not in lost] for row in rows)):
        values = {name: _different([rows[0][name]]) for name in columns}
    return {name: [] if name in lost else values[name] for name in columns}


def _different(values: Iterable[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())


def _words(field: SettingField, values: list[Any]) -> list[str]:
    defaults = list(field.rule.default_sweep) or [field.default]
    if not values or values[0] is False or values == defaults:
        return []
    if values[0] is True:
        return [as_option(field.name)]
    texts = [_text(value) for value in values]
    if field.is_number and len(values) >= LEAST_RANGE and (even := f"{texts[0]}:{texts[-1]}:{len(texts)}"):
        with suppress(InputError):
            texts = [even] if parse_range(field.name, even) == values else texts
    return texts if field.rule.positional else [as_option(field.name), ",".join(texts)]


def _text(value: Any) -> str:
    """Return a value as a word of the command line: 16.0 becomes 16."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
