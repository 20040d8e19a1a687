"""Write the command of a result again, as a user would type it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from attnlaw.core.errors import as_option
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, setting_fields


def typed_command(result: Result, verb: str | None = None, without: tuple[str, ...] = ()) -> str:
    """Return the command that computes a result, with every setting that is not the default.

    A model that was given as a Python object, or under another name, has no path here. The command then has
    the placeholder MODEL. Settings that differ between cases are left out, except those without an option.

    Args:
        verb: the verb to call instead. It gets only the settings that it has.
        without: names of settings to leave out.
    """
    from attnlaw.verbs import find_verb

    known = setting_fields(result.verb.settings)
    wanted = known if verb is None else setting_fields(find_verb(verb).settings)
    places: list[str] = []
    options: list[str] = []
    cases = [result.settings(case) for case in range(len(result))]
    for name in result.verb.setting_columns:
        if name not in wanted or name in without:
            continue
        values = list(dict.fromkeys(str(case[name]) for case in cases if case[name] is not None))
        if known[name].rule.positional:
            metavar = known[name].rule.metavar or name.upper()
            named = any(case.get("name") for case in cases)
            places += [metavar if named or _is_object(value) else shlex.quote(value) for value in values]
        elif name != "name" and len(values) == 1:
            options += _option(known[name], cases[0][name])
    return " ".join(["attnlaw", verb or result.verb.name, *dict.fromkeys(places), *options])


def _option(field: SettingField, value: Any) -> list[str]:
    if value is None or value == field.default or value is False:
        return []
    if value is True:
        return [as_option(field.name)]
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [as_option(field.name), shlex.quote(text)]


def _is_object(title: str) -> bool:
    """Return whether a title is the name of a Python type instead of a path."""
    return title.isidentifier() and not Path(title).exists()
