"""Read a study file (TOML, see docs/commands/study.md), and write one to fill in. The seed of a task comes
from the study's `SeedSequence` by position: child number `repetition` of child number `case`. So cases
added at the end, and more repetitions, do not change earlier seeds."""

from __future__ import annotations

import glob
import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_origin

import numpy as np

from attnlaw.core.errors import BadSetting, BadUsage, InputError
from attnlaw.core.files import MEGABYTE, parse_toml, read_bounded, require_valid_path
from attnlaw.core.settings import (
    SettingField,
    Settings,
    parse_range,
    require_known,
    setting,
    setting_fields,
    settings_dataclass,
)
from attnlaw.core.verb import Verb, attempt, expand_values, grid
from attnlaw.study.shipped import shipped_studies
from attnlaw.study.task import Task
from attnlaw.verbs import find_verb as verb_of

SECTIONS = ("verb", "fixed", "grid", "list", "run", "quick")
PACKAGE = "package:"
SEED_SETTINGS = ("seed", "seeds")  # set by the study itself if the verb draws at random
LARGEST = 16  # megabytes of a study file
MOST_TASKS = 1_000_000
YEAR = 366 * 86400


@settings_dataclass
class RunSettings(Settings):
    """The table [run] of a study file."""

    seed: int = setting(0, "Random seed of the study. Every task derives its own seed from it.", minimum=0)
    seeds: int = setting(
        1,
        "Number of times to repeat every combination of settings with new random numbers.",
        minimum=1,
    )
    time_limit: float | None = setting(
        None, "Time limit in seconds for one attempt at a task.", greater_than=0, maximum=YEAR
    )
    retries: int = setting(2, "Number of times that a failed task is tried again.", minimum=0)


@dataclass(frozen=True)
class Study:
    """A study: its tasks in order, and the way to run them."""

    path: Path
    tasks: tuple[Task, ...]
    time_limit: float | None = None
    retries: int = 2

    @property
    def verbs(self) -> dict[str, Verb[Any, Any]]:
        """The verbs of this study's tasks, by name, in the order of their first task."""
        return {task.verb.name: task.verb for task in self.tasks}

    def check(self, tasks: Sequence[Task]) -> dict[str, InputError]:
        """Check all tasks before the first one runs. Return errors, keyed by task.

        An example is a model that does not exist. The keys are those of the tasks. Raise a `BadUsage` if a
        setting is wrong, and an `InputError` if no task of the study can work.
        """
        errors = {}
        for task in tasks:
            if task.verb.precheck is not None:
                error = attempt(task.verb.precheck, task.case)
                if isinstance(error, BadSetting):
                    raise BadUsage(error.message(place=f"{self.path}: ")) from error
                if isinstance(error, InputError):
                    errors[task.key] = error
        if errors and len(errors) == len(self.tasks):
            raise InputError(f"{self.path}: {next(iter(errors.values()))}")
        return errors


def read_study(
    path: str | os.PathLike[str], find: Callable[[str], Verb[Any, Any]] = verb_of, *, quick: bool = False
) -> Study:
    """Read a study file and expand it into tasks.

    Args:
        path: the path of the file, or the name of a study that comes with attnlaw (see `attnlaw study list`).
        find: a function that returns the verb with a given name, by default one of attnlaw's.
        quick: whether to use the values of the table [quick].

    Raises:
        BadUsage: if the file is not valid. The message names the file and the key.

    >>> study = read_study("limit-width", quick=True)
    >>> len(study.tasks), list(study.verbs)
    (15, ['limit'])
    """
    try:
        return _read_study(path, find, quick)
    except InputError as error:
        raise BadUsage(str(error)) from error


def _read_study(path: str | os.PathLike[str], find: Callable[[str], Verb[Any, Any]], quick: bool) -> Study:
    file = Path(path)
    if not os.path.lexists(path):
        file = shipped_studies().get(os.fspath(path), file)
    where = str(path)
    data = read_bounded(file, LARGEST, remedy="give a study file, or a name that attnlaw study list shows")
    content = parse_toml(data, where, "docs/commands/study.md shows an example", LARGEST * MEGABYTE)
    with _located(f"{where}: "):
        for name in content:
            if name not in SECTIONS:
                raise InputError(f"unknown key {name}; expected {', '.join(SECTIONS)}")
        if quick:
            content = _apply_quick(content)
        with _located("[run] "):
            run = RunSettings.parse(_table(content, "run"), "this table")
        sweeps = _sweeps(content, file.parent, find)
        count = sum(sweep.count * (run.seeds if sweep.verb.is_random else 1) for sweep in sweeps)
        if count > MOST_TASKS:
            raise InputError(
                f"{count} tasks are too many, expected at most {MOST_TASKS}; split the study "
                "into several files"
            )
        tasks = {task.key: task for sweep in sweeps for task in sweep.tasks(run)}
    return Study(file.absolute(), tuple(tasks.values()), run.time_limit, run.retries)


def task_seed(seed: int, position: int, repetition: int) -> int:
    """Return the seed of a task, a number of 53 bits that any JSON reader can read exactly.

    The seed comes from spawn `repetition` of spawn `position` of the study's `SeedSequence`. The same study
    file always gives the same seeds.

    >>> import numpy as np
    >>> child = np.random.SeedSequence(7).spawn(4)[3].spawn(2)[1]
    >>> task_seed(7, 3, 1) == int(child.generate_state(1, np.uint64)[0] >> 11)
    True
    """
    child = np.random.SeedSequence(seed, spawn_key=(position, repetition))
    return int(child.generate_state(1, np.uint64)[0]) >> 11


@contextmanager
def _located(place: str, labels: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Put `place` in front of an error message, or, for a bad setting, its label in `labels`."""
    try:
        yield
    except BadSetting as error:
        raise InputError(error.message(place=labels.get(error.name, place))) from error
    except InputError as error:
        raise InputError(f"{place}{error}") from error


def _expect(fits: bool, key: str, value: Any, wanted: str) -> None:
    if not fits:
        raise InputError(f"{key}: found {value!r}, expected {wanted}")


def _table(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table: Any = content.get(name, {})
    _expect(isinstance(table, dict), name, table, f"a table [{name}]")
    return dict(table)


def _apply_quick(content: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values by those of [quick], whose new keys go to [run] or [fixed]."""
    tables = {name: _table(content, name) for name in ("fixed", "grid", "run")}
    explicit = [dict(case) for case in content.get("list", [])]
    for key, value in _table(content, "quick").items():
        holders = [table for table in (*explicit, tables["grid"], tables["fixed"]) if key in table]
        for table in holders or [tables["run" if key in setting_fields(RunSettings) else "fixed"]]:
            table[key] = value
    return {**content, **tables, **({"list": explicit} if explicit else {})}


def study_keys(verb: Verb[Any, Any]) -> dict[str, SettingField]:
    """Return the settings of a verb that a study file can set."""
    drawn = SEED_SETTINGS if verb.is_random else ()
    known = setting_fields(verb.settings).items()
    return {name: field for name, field in known if not field.rule.machine_only and name not in drawn}


class _Sweep:
    """The cases of one verb, as grids of values. `labels` names the table that gave each key last."""

    def __init__(self, verb: Verb[Any, Any]) -> None:
        self.verb = verb
        self.keys = study_keys(verb)
        self.reserved_names = setting_fields(verb.settings).keys() - self.keys.keys()
        self.grids: list[dict[str, list[Any]]] = []
        self.labels: dict[str, str] = {}

    @property
    def count(self) -> int:
        return sum(math.prod(map(len, axes.values())) for axes in self.grids)

    def add(self, tables: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
        """Add a grid of all combinations of the values in these tables."""
        axes: dict[str, list[Any]] = {}
        for label, table in tables.items():
            for key, value in table.items():
                with _located(f"{label} "):
                    if key in SEED_SETTINGS and key in self.reserved_names:
                        raise InputError(
                            f"{key}: every task needs a different seed; set this key under [run]"
                        )
                    field = self.keys[require_known(key, self.keys, self.verb.name)]
                    if key in axes:
                        raise InputError(f"{key}: this key appears twice; keep it in one place")
                    values = [field.validate(point) for point in _points(field, value, label)]
                    on_disk = _expand_paths(values, key, folder) if field.rule.is_path else values
                    axes[key] = [part for point in on_disk for part in _expand_value(field, point)]
                    self.labels[key] = f"{label} "
        self.grids.append(axes)

    def tasks(self, run: RunSettings) -> Iterator[Task]:
        """Return a task for each case, or one for each repetition if the verb draws random numbers."""
        cases = [case for axes in self.grids for case in grid(axes)]
        # A key with an effect in some cases is left out of the others. Without any effect, it is an error.
        useful = {key for key in self.labels if not all(self._is_idle(key, case) for case in cases)}
        records: list[Settings] = []
        for key, field in self.keys.items():
            if field.default is MISSING and any(key not in case for case in cases):
                raise InputError(f"{key} is missing; {self.verb.name} needs it under [fixed] or [grid]")
        with _located("", self.labels):
            for position, case in enumerate(cases):
                kept = {k: v for k, v in case.items() if k not in useful or not self._is_idle(k, case)}
                for repetition in range(run.seeds if self.verb.is_random else 1):
                    given = {"seed": task_seed(run.seed, position, repetition), "seeds": 1, "jobs": 1}
                    extras = {name: value for name, value in given.items() if name in self.reserved_names}
                    records.append(self.verb.settings.parse(kept | extras, self.verb.name))
            self.verb.require_used(records, self.labels)
        return (Task(self.verb, record) for record in records)

    def _is_idle(self, key: str, case: Mapping[str, Any]) -> bool:
        """Return whether the case does not give the key, or the rules of the key exclude it."""
        if key not in case:
            return True
        rule = self.keys[key].rule
        waits = rule.requires is not None and case.get(rule.requires) is None
        return waits or any(case.get(other) is not None for other in rule.exclusions)


def _sweeps(content: Mapping[str, Any], folder: Path, find: Callable[[str], Verb[Any, Any]]) -> list[_Sweep]:
    """Return the cases of every verb, in order. The last key of the grid varies fastest."""
    fixed, crossed = _table(content, "fixed"), _table(content, "grid")
    explicit = content.get("list", [{}])
    _expect(_is_list(explicit, dict), "list", explicit, "tables [[list]]")
    chosen = []
    for case in explicit:
        value = case.get("verb", content.get("verb"))
        if value is None:
            raise InputError('verb is missing; begin the file with a line such as: verb = "learn"')
        names = [value] if isinstance(value, str) else value
        _expect(_is_list(names, str), "verb", value, "the name of a verb, or a list of names")
        chosen.append(dict.fromkeys(names))
    with _located("verb: "):
        sweeps = {name: _Sweep(find(name)) for names in chosen for name in names}
    known = {key for sweep in sweeps.values() for key in sweep.keys}
    for names, case in zip(chosen, explicit, strict=True):
        for sweep in (sweeps[name] for name in names):
            foreign = known - sweep.keys.keys()
            tables = {
                "[fixed]": {k: value for k, value in fixed.items() if k not in foreign and k not in case},
                "[[list]]": {key: value for key, value in case.items() if key != "verb"},
                "[grid]": crossed,
            }
            sweep.add(tables, folder)
    return list(sweeps.values())


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, kind) for entry in value)


def _points(field: SettingField, value: Any, label: str) -> list[Any]:
    if label == "[fixed]":
        if isinstance(value, list) and not any(get_origin(kind) is tuple for kind in field.types):
            raise BadSetting(
                field.name, "expected one value; to vary this key, put a list under [grid]", value
            )
        return [value]
    if isinstance(value, list) and value:
        return value
    if isinstance(value, str) and field.is_number and (label == "[grid]" or ":" in value):
        return list(parse_range(field.name, value))
    if isinstance(value, list) or (label == "[grid]" and not field.rule.is_path):
        raise BadSetting(field.name, "expected a list of values or FROM:TO:COUNT", value)
    return [value]


def _expand_value(field: SettingField, value: Any) -> list[Any]:
    """Return the values that a value stands for. If it cannot be read, its task will say so."""
    values = attempt(expand_values, field, [value])
    return [value] if isinstance(values, InputError) else values


def _expand_paths(values: list[Any], key: str, folder: Path) -> list[str]:
    """Make paths absolute, find `package:PATH` on `sys.path`, and expand patterns. Hub ids stay."""
    paths: list[str] = []
    for value in map(str, values):
        inside, packaged = value.removeprefix(PACKAGE), value.startswith(PACKAGE)
        homes = [Path(home) for home in sys.path if home] if packaged else [folder]
        places = [require_valid_path(home.absolute() / inside) for home in homes]
        path = next((place for place in places if place.exists()), places[0])
        if path.exists():
            paths.append(_normalise_path(str(path)))
        elif any(char in value for char in "*?["):
            pattern = str(Path(glob.escape(str(folder.absolute()))) / value)
            matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (it may be absolute)
            if not matches:
                raise InputError(f"{key}: {value!r} matches no file; give a path relative to the study file")
            paths += [_normalise_path(match) for match in matches]
        else:
            paths.append(value)
    return paths


def _normalise_path(path: str) -> str:
    """Remove `..` from a path. If a link would then change the target, return the resolved path."""
    short = os.path.normpath(path)
    if ".." not in Path(path).parts or os.path.realpath(short) == os.path.realpath(path):
        return short
    return os.path.realpath(path)


WIDTH = 110


def template(verb: Verb[Any, Any]) -> str:
    """Return a study file for the user to complete.

    It has one case, in which every setting has its default. The user must fill in settings without a default.

    >>> from attnlaw.verbs import find_verb
    >>> print(template(find_verb("two_layer"))[:25])
    # Train two linear layers
    """
    keys = study_keys(verb)
    lines = [
        f"{verb.title}: a study of the verb {verb.name}, written by: attnlaw study new {verb.name}",
        "To set a key, remove the # in front of it. The values shown are the defaults.",
        "Run the study with: attnlaw study run FILE --out DIR",
        "Draw its figures with: attnlaw report DIR --figures pdf",
        "docs/commands/study.md explains study files.",
    ]
    head = "\n".join(f"# {line}" for line in lines)
    # One of several settings must be given: the template gives an example of the first one.
    examples = dict([verb.settings.example_input]) if hasattr(verb.settings, "example_input") else {}
    fixed = "\n".join(_key(field, keys, examples.get(field.name)) for field in keys.values())
    free = [field for field in keys.values() if not (field.rule.conditions or field.rule.requires)]
    numbers = [field for field in free if field.is_number and field.name != "seed"]
    swept = [field for field in numbers if field.rule.sweepable] or numbers
    grid = "\n".join(f"#{field.name} = {_toml(_template_points(field))}" for field in swept[:2])
    run = "\n".join(_key(field, keys) for field in setting_fields(RunSettings).values())
    parts = [
        f'{head}\nverb = "{verb.name}"',
        f"[fixed]  # keys that have one value\n{fixed}",
        '[grid]  # keys that vary, as lists or ranges "FROM:TO:COUNT"; attnlaw runs all '
        f"combinations\n{grid}".rstrip(),
        "#[[list]]  # an extra case with any keys; attnlaw runs it with every combination of the grid",
        f"[run]  # how the study runs\n{run}",
    ]
    return "\n\n".join(parts) + "\n"


def _key(field: SettingField, keys: Mapping[str, SettingField], example: str | None = None) -> str:
    """Return the comment and the line of a key, commented out if it has a default and no example."""
    rule = field.rule
    expected = field.expected
    sentences = [rule.help.rstrip("."), expected[0].upper() + expected[1:]]
    if rule.requires:
        sentences.append(f"Only together with {rule.requires}")
    for owner, attribute in rule.conditions:
        choices = (keys[owner].rule.choices or {}).items()
        able = [name for name, variant in choices if getattr(variant, attribute)]
        sentences.append(f"Only if {owner} is {' or '.join(able)}")
    if rule.exclusions:
        sentences.append(f"Not together with {' or '.join(rule.exclusions)}")
    text = " ".join(f"{sentence}." for sentence in sentences)
    lines = textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    words = "\n".join(f"# {line}" for line in lines)
    if example is not None:
        return f"{words}\n{field.name} = {_toml(example)}"
    if field.default is MISSING:
        return f"{words}\n{field.name} = {_toml(_placeholder(field))}"
    missing = f"...  # {rule.metavar or 'not set by default'}"
    return f"{words}\n#{field.name} = {missing if field.default is None else _toml(field.default)}"


def _placeholder(field: SettingField) -> Any:
    if field.is_number:
        return _template_points(field)[-1] if field.rule.lab_default is None else field.rule.lab_default
    return field.rule.metavar or field.name.upper()


def _template_points(field: SettingField) -> list[Any]:
    """Return two example values for a sweep: the default (or the minimum) and a larger value."""
    rule, whole = field.rule, int in field.types and float not in field.types
    known = [value for value in (field.default, rule.minimum) if isinstance(value, int | float) and value > 0]
    first = float(known[0]) if known and math.isfinite(known[0]) else 1.0
    second = min(2.0 * first, rule.maximum) if rule.maximum is not None else 2.0 * first
    above = -math.inf if rule.greater_than is None else rule.greater_than
    pair = dict.fromkeys(value if value > above else above + value for value in (first, second))
    return [int(value) for value in pair] if whole else list(pair)


def _toml(value: Any) -> str:
    """Return a value as TOML. A text in quotes has the same form as in JSON."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return json.dumps(value, ensure_ascii=False)
