"""A study file to fill in, made from a verb's declaration: every key with its meaning and its default."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.core.verb import Verb
from attnlaw.study.file import RunSettings, study_keys

WIDTH = 110


def template(verb: Verb[Any, Any]) -> str:
    """The text of a study of one verb. As it stands it has one case: the defaults, and what must be given.

    >>> from attnlaw.verbs import find_verb
    >>> print(template(find_verb("two_layer"))[:37])
    # Two linear layers that interpolate:
    """
    keys = study_keys(verb)
    lines = [
        f"{verb.title}: a study of the verb {verb.name}, as made by attnlaw study new {verb.name}.",
        "A key counts once its # is gone; the values are the defaults. All files: docs/scale.md.",
        "Run it with: attnlaw study run FILE --out DIR, draw it with: attnlaw report DIR --figures pdf",
    ]
    head = "\n".join(f"# {line}" for line in lines)
    fixed = "\n".join(_key(field, keys) for field in keys.values())
    swept = [field for field in keys.values() if field.is_number and field.rule.sweepable]
    grid = "\n".join(f"#{field.name} = {_toml(_points(field))}" for field in swept[:2])
    run = "\n".join(_key(field, keys) for field in setting_fields(RunSettings).values())
    parts = [
        f'{head}\nverb = "{verb.name}"',
        f"[fixed]  # one value for each key\n{fixed}",
        f'[grid]  # all combinations of lists, or of spans "FROM:TO:COUNT"\n{grid}'.rstrip(),
        "#[[list]]  # explicit cases, each crossed with the grid; any keys",
        f"[run]\n{run}",
    ]
    return "\n\n".join(parts) + "\n"


def _key(field: SettingField, keys: Mapping[str, SettingField]) -> str:
    """What a key means and may be, and its line: commented out where it has a default."""
    rule = field.rule
    what = [rule.help.rstrip("."), field.expected]
    if rule.requires:
        what.append(f"needs {rule.requires}")
    for owner, attribute in rule.conditions:
        choices = (keys[owner].rule.choices or {}).items()
        able = [name for name, variant in choices if getattr(variant, attribute)]
        what.append(f"where {owner} is {' or '.join(able)}")
    if rule.exclusions:
        what.append(f"not beside {' or '.join(rule.exclusions)}")
    lines = textwrap.wrap("; ".join(what) + ".", WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    words = "\n".join(f"# {line}" for line in lines)
    if field.default is MISSING:
        return f"{words}\n{field.name} = {_toml(rule.metavar or field.name.upper())}"
    value = (
        _toml(field.default) if field.default is not None else f"...  # {rule.metavar or 'none unless given'}"
    )
    return f"{words}\n#{field.name} = {value}"


def _points(field: SettingField) -> list[Any]:
    """Two values to sweep over: the default, or the least, and something above it."""
    rule, whole = field.rule, int in field.types and float not in field.types
    known = [value for value in (field.default, rule.minimum) if isinstance(value, int | float) and value > 0]
    first = float(known[0]) if known and math.isfinite(known[0]) else 1.0
    second = min(2.0 * first, rule.maximum) if rule.maximum is not None else 2.0 * first
    above = -math.inf if rule.greater_than is None else rule.greater_than
    pair = dict.fromkeys(value if value > above else above + value for value in (first, second))
    return [int(value) for value in pair] if whole else list(pair)


def _toml(value: Any) -> str:
    """A value as TOML writes it; a text in quotes is the same in JSON."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return json.dumps(value, ensure_ascii=False)
