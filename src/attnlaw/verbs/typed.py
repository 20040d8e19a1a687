"""Write the command of a result again, as a user would type it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attnlaw.core.errors import as_option
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, Settings, setting_fields
from attnlaw.verbs import find_verb


def typed_command(result: Result, verb: str | None = None) -> str | None:
    """Return the command that computes a result, with the settings that are the same in all cases.

    The word MODEL replaces a model that got another name, because no row has its path. Return None if a model
    is a Python object. `verb` is another verb to call, with those settings that it has.
    """
    known = setting_fields(result.verb.settings)
    wanted = known if verb is None else setting_fields(find_verb(verb).settings)
    places: list[str] = []
    options: list[str] = []
    cases = [result.settings(case) for case in range(len(result))]
    for name in result.verb.setting_columns:
        if name not in wanted:
            continue
        values = list(dict.fromkeys(str(case[name]) for case in cases if case[name] is not None))
        if known[name].rule.positional:
            if not any(case.get("name") for case in cases):
                if any(value.isidentifier() and not Path(value).exists() for value in values):  # a type
                    return None
                places += map(shlex.quote, values)
            else:
                places.append(known[name].rule.metavar or name.upper())
        elif name != "name" and len(values) == 1:
            options += option_words(known[name], cases[0][name], quoted=True)
    return " ".join(["attnlaw", verb or result.verb.name, *dict.fromkeys(places), *options])


def option_words(field: SettingField, value: Any, quoted: bool = False) -> list[str]:
    """Return the command-line words that give a setting its value. The default needs no words."""
    if value is None or value == field.default or value is False:
        return []
    if value is True:
        return [as_option(field.name)]
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [as_option(field.name), shlex.quote(text) if quoted else text]


def words_of(settings: type[Settings], row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the command-line words for some settings of a row."""
    known = setting_fields(settings)
    return [word for name in names for word in option_words(known[name], row[name])]
