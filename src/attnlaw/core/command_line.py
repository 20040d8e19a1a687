"""Write the command that computes a result again, perhaps with other settings. Answers end with commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from typing import Any

from attnlaw.core.errors import as_option
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, setting_fields


def command(result: Result, *flags: str, **changes: Any) -> str:
    """Return a complete command for the settings of a result.

    Several cases become one command if they are all combinations of the values of their settings. If not, the
    command computes the first case. Settings with their default value are left out.

    Args:
        flags: words that are added at the end, such as `--details`.
        changes: settings with another value, or with a list of values. None leaves a setting out.

    >>> import attnlaw
    >>> result = attnlaw.limit(width=[8, 64], heads=1, draws=100)
    >>> command(result, "--details", width=["16", math.inf])
    'attnlaw limit --heads 1 --width 16,inf --draws 100 --details'
    """
    known = setting_fields(result.verb.settings)
    columns = result.verb.setting_columns
    rows = [{name: row[column] for name, column in columns.items()} for row in result.rows.to_dicts()]
    values = {name: _different(row[name] for row in rows) for name in columns}
    # Repetitions of a study differ in settings that a command takes once.
    lost = [name for name in columns if len(values[name]) > 1 and not known[name].rule.sweepable]
    grid = math.prod(len(values[name]) for name in columns if name not in lost)
    if grid != len(_different([value for name, value in row.items() if name not in lost] for row in rows)):
        values = {name: _different([rows[0][name]]) for name in columns}
    words = ["attnlaw", result.verb.name]
    for name, field in known.items():
        chosen = [] if name in lost else values.get(name, [])
        if name in changes:
            change = changes[name]
            chosen = _different(change if isinstance(change, list) else [change])
        words += _words(field, [value for value in chosen if value is not None])
    return shlex.join([*words, *flags])


def _different(values: Iterable[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())


def _words(field: SettingField, values: list[Any]) -> list[str]:
    defaults = list(field.rule.default_sweep) or [field.default]
    if not values or values[0] is False or values == defaults:
        return []
    if values[0] is True:
        return [as_option(field.name)]
    texts = [_text(value) for value in values]
    return texts if field.rule.positional else [as_option(field.name), ",".join(texts)]


def _text(value: Any) -> str:
    """Return a value as a word of the command line.

    >>> _text(16.0), _text(0.1), _text([1, 2])
    ('16', '0.1', '1,2')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
