"""A study file (TOML): a verb, what is fixed, what varies, and how it is run.

    verb = "learn"                    # or several: ["audit", "fit"]
    [fixed]                           # the same in every task
    [grid]                            # the product of its lists; "0.05:1:40" is 40 points, both ends included
    [[list]]                          # explicit cases; with a grid beside them, each is crossed with the grid
    [run]
    seed = 0                          # of the study
    seeds = 1                         # repetitions of every case of a verb that draws
    time_limit = 600                  # seconds per task; none unless given
    retries = 2                       # further attempts at a task that failed

Keys are the command's options with underscores. Relative paths start at the study file. A task's seed is that
of child number (repetition) of child number (case) of the study's `SeedSequence`, by position: cases added at
the end, and more repetitions, leave all earlier seeds as they were.
"""

from __future__ import annotations

import glob
import itertools
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.errors import InputError
from attnlaw.study.arguments import Arguments
from attnlaw.study.task import Plain, Result, Task

SECTIONS = ("verb", "fixed", "grid", "list", "run")
MOST_TASKS = 1_000_000
MOST_POINTS = 100_000


@dataclass(frozen=True)
class Verb:
    """A task function and what a study must know of it.

    `draws`: it takes a `seed`, and `seeds` repeats it. `check` raises an `InputError` for arguments that
    cannot work, cheaply, before anything runs. `files` names the arguments that may be paths or patterns.
    """

    function: Callable[..., Result]
    draws: bool = False
    check: Callable[..., object] | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A study read and expanded: its tasks in order, and how to run them."""

    path: Path
    tasks: tuple[Task, ...]
    checks: Mapping[str, Callable[..., object] | None]
    time_limit: float | None = None
    retries: int = 2

    def check(self, tasks: list[Task]) -> None:
        """Have each verb look at the arguments of its tasks before any of them runs."""
        for task in tasks:
            check = self.checks[task.verb]
            if check is not None:
                try:
                    check(**dict(task.arguments))
                except InputError as error:
                    raise InputError(f"{self.path}: {error}") from error


def read_study(path: str | os.PathLike[str], verbs: Mapping[str, Verb]) -> Study:
    """Read a study file and expand it into tasks; whatever is wrong is told in one line with file and key."""
    file = Path(path)
    where = str(file)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); give a study file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: not TOML ({error}); see docs/scale.md for an example") from error
    for name in content:
        if name not in SECTIONS:
            raise InputError(f"{where}: unknown key {name}; expected {', '.join(SECTIONS)}")
    names = _verb_names(content.get("verb"), verbs, where)
    run = _Run.read(_table(content, "run", where), where)
    tasks = [
        task
        for name in names
        for task in _tasks(
            name, verbs[name], _cases(content, name, names, verbs, file.parent, where), run, where
        )
    ]
    distinct = {task.key: task for task in tasks}
    checks = {name: verbs[name].check for name in names}
    return Study(file.absolute(), tuple(distinct.values()), checks, run.time_limit, run.retries)


@dataclass(frozen=True)
class _Run:
    """The table [run]."""

    seed: int = 0
    seeds: int = 1
    time_limit: float | None = None
    retries: int = 2

    @classmethod
    def read(cls, table: Mapping[str, Any], where: str) -> _Run:
        least = {"seed": 0, "seeds": 1, "retries": 0}
        for name, value in table.items():
            if name not in cls.__dataclass_fields__:
                raise InputError(
                    f"{where}: [run] has no {name}; expected {', '.join(cls.__dataclass_fields__)}"
                )
            whole = isinstance(value, int) and not isinstance(value, bool)
            if name == "time_limit":
                if not (whole or isinstance(value, float)) or not 0 < value < float("inf"):
                    raise InputError(f"{where}: [run] time_limit: found {value!r}, expected seconds above 0")
            elif not whole or value < least[name]:
                raise InputError(
                    f"{where}: [run] {name}: found {value!r}, expected a whole number from {least[name]} on"
                )
        return cls(**table)


def _verb_names(value: Any, verbs: Mapping[str, Verb], where: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise InputError(f"{where}: verb: found {value!r}, expected one of {', '.join(verbs)}")
    for name in names:
        if not isinstance(name, str) or name not in verbs:
            raise InputError(f"{where}: verb: found {name!r}, expected one of {', '.join(verbs)}")
    return list(dict.fromkeys(names))


def _table(content: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{where}: {name}: found {table!r}, expected a table [{name}]")
    return table


def _cases(
    content: Mapping[str, Any],
    name: str,
    names: list[str],
    verbs: Mapping[str, Verb],
    folder: Path,
    where: str,
) -> Iterator[dict[str, Any]]:
    """The cases of one verb in order: explicit ones first, the grid's last key fastest."""
    accepted = Arguments(verbs[name].function)
    others = [Arguments(verbs[other].function) for other in names]
    fixed, grid = _table(content, "fixed", where), _table(content, "grid", where)
    explicit = content.get("list", [{}])
    if not isinstance(explicit, list) or not explicit or not all(isinstance(case, dict) for case in explicit):
        raise InputError(f"{where}: list: found {explicit!r}, expected tables [[list]]")
    # With several verbs, a fixed key may belong to one of them alone.
    fixed = {
        key: value
        for key, value in fixed.items()
        if key in accepted.types or not any(key in o.types for o in others)
    }
    for case in explicit:
        axes: dict[str, list[Any]] = {}
        for label, table in (("[fixed]", fixed), ("[[list]]", case), ("[grid]", grid)):
            for key, value in table.items():
                accepted.check_name(key, name, f"{where}: {label}")
                if key in axes:
                    raise InputError(f"{where}: {label} {key}: already given above; keep it in one place")
                place = f"{where}: {label}"
                values = _values(key, value, accepted, verbs[name], place) if table is grid else [value]
                if table is not grid and isinstance(value, list | dict):
                    raise InputError(
                        f"{place} {key}: found {value!r}, expected one value; lists go under [grid]"
                    )
                values = [accepted.convert(key, one, place) for one in values]
                axes[key] = _on_disk(values, key, folder, place) if key in verbs[name].files else values
        count = np.prod([len(values) for values in axes.values()], dtype=float)
        if count > MOST_TASKS:
            raise InputError(
                f"{where}: [grid] has {count:.3g} points, expected at most {MOST_TASKS}; split the study"
            )
        for point in itertools.product(*axes.values()):
            yield dict(zip(axes, point, strict=True))


def _values(key: str, value: Any, accepted: Arguments, verb: Verb, where: str) -> list[Any]:
    """The points of one axis of the grid."""
    if isinstance(value, str) and {int, float} & set(accepted.types[key]):
        return _span(value, f"{where} {key}")
    if isinstance(value, str) and key in verb.files:
        return [value]
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} {key}: found {value!r}, expected a list of values or FROM:TO:COUNT")
    return value


def _span(text: str, where: str) -> list[float]:
    """`0.05:1:40` as 40 values from 0.05 to 1.

    >>> _span("0:1:3", "study.toml")
    [0.0, 0.5, 1.0]
    """
    parts = text.split(":")
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        low, high, count = 0.0, 0.0, 0
    if len(parts) != 3 or not -np.inf < low < high < np.inf or not 2 <= count <= MOST_POINTS:
        raise InputError(f"{where}: found {text!r}, expected FROM:TO:COUNT such as 0.05:1:40, or a list")
    return [float(value) for value in np.linspace(low, high, count)]


def _on_disk(values: list[Plain], key: str, folder: Path, where: str) -> list[Plain]:
    """Patterns as the paths they match, paths as absolute ones; what is not on disk stays (a hub id)."""
    found: list[Plain] = []
    for value in values:
        path = folder.absolute() / str(value)
        if any(char in str(value) for char in "*?["):
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (the pattern may be absolute)
            if not matches:
                raise InputError(f"{where} {key}: {value!r} matches nothing; paths start at the study file")
            found += [os.path.normpath(match) for match in matches]
        else:
            found.append(os.path.normpath(path) if path.exists() else value)
    return found


def _tasks(name: str, verb: Verb, cases: Iterator[dict[str, Any]], run: _Run, where: str) -> Iterator[Task]:
    accepted = Arguments(verb.function)
    for position, case in enumerate(cases):
        arguments = tuple(accepted.complete(case, where).items())
        for repetition in range(run.seeds if verb.draws else 1):
            seed = task_seed(run.seed, position, repetition) if verb.draws else None
            yield Task(name, verb.function, arguments, seed)


def task_seed(seed: int, position: int, repetition: int) -> int:
    """53 bits (exact in any JSON reader) of child `repetition` of child `position` of the study's seed.

    >>> child = np.random.SeedSequence(7).spawn(4)[3].spawn(2)[1]
    >>> task_seed(7, 3, 1) == int(child.generate_state(1, np.uint64)[0] >> 11)
    True
    """
    child = np.random.SeedSequence(seed, spawn_key=(position, repetition))
    return int(child.generate_state(1, np.uint64)[0]) >> 11
