"""A study file (TOML): a verb, what is fixed, what varies, and how it is run.

    verb = "learn"                    # or several: ["audit", "fit"]
    [fixed]                           # the same in every task
    [grid]                            # the product of its lists; "0.05:1:40" is 40 points, both ends included
    [[list]]                          # explicit cases, each crossed with the grid, if there is one
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

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.base.errors import InputError
from attnlaw.base.files import parse_toml, read_bounded
from attnlaw.study.cases import MOST_TASKS, read_cases, table
from attnlaw.study.task import Task
from attnlaw.study.verb import Arguments, Verb

SECTIONS = ("verb", "fixed", "grid", "list", "run")
LONGEST = 366 * 86400  # seconds of a task's limit: a year


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
    data = read_bounded(file, megabytes=16, remedy="give a study file")
    content = parse_toml(data, where, "see docs/scale.md for an example")
    for name in content:
        if name not in SECTIONS:
            raise InputError(f"{where}: unknown key {name}; expected {', '.join(SECTIONS)}")
    run = _Run.read(table(content, "run", where), where)
    cases = read_cases(content, verbs, file.parent, where)
    count = sum(len(own) * (run.seeds if verbs[name].draws else 1) for name, own in cases.items())
    if count > MOST_TASKS:
        raise InputError(f"{where}: {count} tasks, expected at most {MOST_TASKS}; split the study")
    tasks = [task for name, own in cases.items() for task in _tasks(name, verbs[name], own, run, where)]
    distinct = {task.key: task for task in tasks}
    checks = {name: verbs[name].check for name in cases}
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
                if not (whole or isinstance(value, float)) or not 0 < value <= LONGEST:
                    raise InputError(
                        f"{where}: [run] time_limit: found {value!r}, expected seconds above 0, up to a year"
                    )
            elif not whole or value < least[name]:
                raise InputError(
                    f"{where}: [run] {name}: found {value!r}, expected a whole number from {least[name]} on"
                )
        return cls(**table)


def _tasks(name: str, verb: Verb, cases: list[dict[str, Any]], run: _Run, where: str) -> Iterator[Task]:
    accepted = Arguments(verb)
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
