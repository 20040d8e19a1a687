"""The tables [fixed], [grid] and [[list]] of a study, expanded into the cases of every verb.

A case of [[list]] may say otherwise than [fixed], name a verb of its own, and hold lists or spans: it is then
a small grid by itself.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.base.errors import InputError
from attnlaw.base.files import require_possible
from attnlaw.study.task import Plain
from attnlaw.study.verb import Arguments, Verb

MOST_TASKS = 1_000_000
MOST_POINTS = 100_000
MOST_ENTRIES = 100_000


def _verb_names(value: Any, verbs: Mapping[str, Verb], where: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise InputError(f"{where}: verb: found {value!r}, expected one of {', '.join(verbs)}")
    for name in names:
        if not isinstance(name, str) or name not in verbs:
            raise InputError(f"{where}: verb: found {name!r}, expected one of {', '.join(verbs)}")
    return list(dict.fromkeys(names))


def table(content: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{where}: {name}: found {table!r}, expected a table [{name}]")
    return table


def read_cases(
    content: Mapping[str, Any], verbs: Mapping[str, Verb], folder: Path, where: str
) -> dict[str, list[dict[str, Any]]]:
    """The cases of every verb, in order: explicit ones first to last, the grid's last key fastest."""
    fixed, grid = table(content, "fixed", where), table(content, "grid", where)
    explicit = content.get("list", [{}])
    if not isinstance(explicit, list) or not explicit or not all(isinstance(case, dict) for case in explicit):
        raise InputError(f"{where}: list: found {explicit!r}, expected tables [[list]]")
    chosen = [_verb_names(case.get("verb", content.get("verb")), verbs, where) for case in explicit]
    arguments = {name: Arguments(verbs[name]) for names in chosen for name in names}
    cases: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments}
    for names, case in zip(chosen, explicit, strict=True):
        for name in names:
            own, others = arguments[name], [other for other in arguments if other != name]
            # A fixed key may belong to another verb of the study alone.
            strange = {key for key in fixed if key not in own.types}
            foreign = {key for key in strange if any(key in arguments[other].types for other in others)}
            tables = {
                "[fixed]": {k: value for k, value in fixed.items() if k not in foreign and k not in case},
                "[[list]]": {key: value for key, value in case.items() if key != "verb"},
                "[grid]": grid,
            }
            axes = _axes(name, verbs[name], own, tables, folder, where)
            count = len(cases[name]) + math.prod(len(values) for values in axes.values())
            if count > MOST_TASKS:
                raise InputError(f"{where}: {count} cases, expected at most {MOST_TASKS}; split the study")
            cases[name] += [
                dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())
            ]
    return cases


def _axes(
    name: str,
    verb: Verb,
    arguments: Arguments,
    tables: Mapping[str, Mapping[str, Any]],
    folder: Path,
    where: str,
) -> dict[str, list[Plain]]:
    """The values of every key, those of the three tables in turn."""
    axes: dict[str, list[Plain]] = {}
    for label, table in tables.items():
        place = f"{where}: {label}"
        for key, value in table.items():
            arguments.check_name(key, name, place)
            if key in axes:
                raise InputError(f"{place} {key}: already given above; keep it in one place")
            values = _values(key, value, arguments, verb, label, place)
            converted = [arguments.convert(key, one, place) for one in values]
            axes[key] = _on_disk(converted, key, folder, place) if key in verb.files else converted
    return axes


def _values(key: str, value: Any, arguments: Arguments, verb: Verb, label: str, where: str) -> list[Any]:
    """The points of one axis: a list, a span, or a single value where one is enough."""
    if label == "[fixed]" and isinstance(value, list | dict):
        raise InputError(f"{where} {key}: found {value!r}, expected one value; lists go under [grid]")
    if isinstance(value, list) and value:
        return value
    numeric = {int, float} & set(arguments.types[key])
    if isinstance(value, str) and numeric and (label == "[grid]" or ":" in value):
        return span(value, f"{where} {key}")
    if isinstance(value, list | dict) or (label == "[grid]" and key not in verb.files):
        raise InputError(f"{where} {key}: found {value!r}, expected a list of values or FROM:TO:COUNT")
    return [value]


def span(text: str, where: str) -> list[float]:
    """`0.05:1:40` as 40 values from 0.05 to 1.

    >>> span("0:1:3", "study.toml")
    [0.0, 0.5, 1.0]
    """
    try:
        first, last, points = text.split(":")
        low, high, count = float(first), float(last), int(points)
    except ValueError as error:
        raise InputError(f"{where}: found {text!r}, expected FROM:TO:COUNT such as 0.05:1:40") from error
    if not -np.inf < low < high < np.inf:
        raise InputError(f"{where}: found {text!r}, but FROM must be below TO, both finite")
    if not 2 <= count <= MOST_POINTS:
        raise InputError(f"{where}: found {text!r}, but COUNT must be from 2 to {MOST_POINTS}")
    return [float(value) for value in np.linspace(low, high, count)]


def _on_disk(values: list[Plain], key: str, folder: Path, where: str) -> list[Plain]:
    """Paths as absolute ones, patterns as the paths they match; what is not on disk stays (a hub id).

    A path that exists as it is written is no pattern, and the study's own directory never is.
    """
    found: list[Plain] = []
    for value in values:
        path = folder.absolute() / str(value)
        patterned = any(char in str(value) for char in "*?[")
        if patterned and not os.path.exists(path):  # noqa: PTH110 (this never raises)
            pattern = Path(glob.escape(str(folder.absolute()))) / str(value)
            _check_reach(pattern, f"{where} {key}: {value!r}")
            matches = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (it may be absolute)
            if not matches:
                raise InputError(f"{where} {key}: {value!r} matches nothing; paths start at the study file")
            found += [_normal(match) for match in matches]
        else:
            found.append(_normal(str(path)) if require_possible(path).exists() else value)
    return found


def _normal(path: str) -> str:
    """The path without `..`; after a link these may lead elsewhere: then the path that it stands for."""
    short = os.path.normpath(path)
    if ".." not in Path(path).parts or os.path.realpath(short) == os.path.realpath(path):
        return short
    return os.path.realpath(path)


def _check_reach(pattern: Path, where: str) -> None:
    """An `InputError` for a `**` that reaches too much; links, which it follows, may lead in a circle."""
    if "**" not in pattern.parts:
        return
    start = Path(*pattern.parts[: pattern.parts.index("**")])
    seen = 0
    for top in glob.iglob(str(start)):  # noqa: PTH207 (the pattern may be absolute)
        for _, folders, files in os.walk(top, followlinks=True):
            folders[:] = [name for name in folders if not name.startswith(".")]
            seen += len(folders) + len(files)
            if seen > MOST_ENTRIES:
                raise InputError(
                    f"{where}: ** reaches more than {MOST_ENTRIES} files and folders; "
                    "start it in a folder nearer to what is meant"
                )
