"""What a verb is: a record of settings, a table of quantities, and what it runs. All else is read off it.

| derived | by |
|---|---|
| options and help of the command, `--json` | `attnlaw.command.app` |
| keys of a study file, their values and their messages | `attnlaw.study.study_file` |
| rows, JSON, saved tables and their check | `Verb.row`, `Verb.schema`, `attnlaw.core.result` |
| labels of tables, axes and pages | `Verb.label` |
| the Python function, its help and its types | `attnlaw.core.function` |

The way of data is the same for every verb:

    words | TOML | Python --Verb.cases--> [Settings] --run--> [record] --Result.collect--> Result
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from itertools import product
from typing import Any, Generic, TypeVar

from attnlaw.core import result
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.lazy import version
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec, column_kinds, to_cells
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, Settings, require_known, setting_fields

S = TypeVar("S", bound=Settings)
R = TypeVar("R")
V = TypeVar("V")


@dataclass(frozen=True)
class CasePart:
    """One part of a large case: the settings of its task, how many things it finds, its work in any unit."""

    case: Settings
    count: int = 1
    work: float = 1.0


@dataclass(frozen=True)
class CaseSplit(Generic[S, R]):
    """How a large case is computed in parts, by workers, to the same result as in one process.

    `verb` computes a part, and its tables are all that is kept of it; `join` makes the result of them, given
    by name for each part, in the order of `parts`. `part_noun` says what `CasePart.count` counts.
    """

    verb: Verb[Any, Any]
    parts: Callable[[S], list[CasePart]]
    join: Callable[[S, Iterable[Mapping[str, Any]]], R]
    part_noun: str = "parts"


@dataclass(frozen=True, repr=False)
class Verb(Generic[S, R]):
    """A verb of the command line, of studies and of Python, declared once.

    Args:
        name: The word that users type.
        title: The title of its page.
        settings: The record of its settings. Its docstring is the help text of the command.
        quantities: The columns that its rows have besides the settings. A record has them as attributes, or
            all of them in a mapping `quantities`. Its `outcome` and `remark`, if any, say how it ended.
        run: Computes cases together (a curve is solved at once). It yields for each case, in order, a record
            or the `InputError` of this case.
        tables: What is too large for a row.
        charts: Names of functions in the `charts.py` of its folder.
        simulation: The verb that a command also runs if its settings are given: the simulation of the theory.
        is_random: Whether a study repeats it with a `seed` (or one of `seeds`) for each repetition.
        precheck: Raises an `InputError` for a case that cannot work, before anything expensive runs.
        split: How one case is computed in parts by many workers.
        batch_key: A study passes cases with equal keys to `run` at once; each result must be the same as
            alone. A case with the key None runs alone.
        summary: Returns further keys of the JSON of one case. They are also written to summary.json.
        example: A doctest for the documentation of the Python function.
    """

    name: str
    title: str
    settings: type[S]
    quantities: tuple[Quantity, ...]
    run: Callable[[Sequence[S], Progress], Iterator[R | InputError]]
    tables: tuple[TableSpec[R], ...] = ()
    charts: tuple[str, ...] = ()
    simulation: Verb[Any, Any] | None = None
    is_random: bool = False
    precheck: Callable[[S], object] | None = None
    split: CaseSplit[S, R] | None = None
    batch_key: Callable[[S], Hashable] | None = None
    summary: Callable[[Result], dict[str, Any]] | None = None
    example: str = ""

    def __repr__(self) -> str:
        return f"<verb {self.name}: {self.title}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return declared_verb, (self.settings.__module__, self.name)

    def cases(self, given: Mapping[str, Any]) -> list[S]:
        """The records of what was given: several where a setting has a list of values, the last fastest."""
        known = setting_fields(self.settings)
        for name in given:
            require_known(name, known, self.name)
        axes = {name: self._values(name, value) for name, value in given.items()}
        for name, values in axes.items():
            if not values:
                raise BadSetting(name, "found an empty list; give a value")
        return self.require_used([self.settings.parse(case, self.name) for case in grid(axes)], given)

    def _values(self, name: str, value: Any) -> list[Any]:
        values = list(value) if self._is_sweep(name, value) else [value]
        return expand_values(setting_fields(self.settings)[name], values)

    def _is_sweep(self, name: str, value: Any) -> bool:
        return setting_fields(self.settings)[name].rule.sweepable and isinstance(value, list | tuple)

    def require_used(self, cases: list[S], given: Iterable[str]) -> list[S]:
        """The cases; a `BadSetting` for a setting that was given and plays a part in none of them."""
        known = setting_fields(self.settings)
        for name in given:
            conditions = known[name].rule.conditions
            if not conditions or not all(name in case.inactive() for case in cases):
                continue
            for owner, attribute in conditions:
                variants = known[owner].rule.choices or {}
                fitting = [key for key, variant in variants.items() if getattr(variant, attribute)]
                if (owner, attribute) == conditions[-1] or getattr(cases[0], owner) not in fitting:
                    raise BadSetting(name, f"needs {{{owner}}} {' or '.join(fitting)}")
        return cases

    def __call__(self, *words: Any, progress: Progress | None = None, **given: Any) -> Result:
        """Run the given settings. A list of values makes several cases, and so does a directory of models."""
        places = [name for name, field in setting_fields(self.settings).items() if field.rule.positional]
        if len(words) > len(places):
            raise TypeError(f"{self.name} takes {len(places)} positional arguments, found {len(words)}")
        given |= dict(zip(places, words, strict=False))
        cases = self.cases({name: value for name, value in given.items() if value is not None})
        records = []
        shown = nullcontext(progress) if progress is not None else result.load_views().progress(self.name)
        with shown as report:
            for record in self.run(cases, report):
                if isinstance(record, InputError):
                    raise record
                records.append(record)
        return Result.collect(self, zip(cases, records, strict=True))

    def values(self, record: R) -> dict[str, Any]:
        """The quantities of a record, by name."""
        known = getattr(record, "quantities", None)
        if known is not None:
            return {quantity.name: known.get(quantity.name) for quantity in self.quantities}
        return {quantity.name: getattr(record, quantity.name, None) for quantity in self.quantities}

    def cells(self, record: R | InputError) -> dict[str, Any]:
        """What a record adds to a row: quantities with their errors, status, remark."""
        if isinstance(record, InputError):
            return {"status": str(Outcome.FAILED), "remark": str(record)}
        return {
            **to_cells(self.quantities, self.values(record)),
            "status": str(getattr(record, "outcome", Outcome.DONE)),
            "remark": getattr(record, "remark", None),
        }

    def row(self, case: S, record: R | InputError) -> dict[str, Any]:
        """One flat row: verb, settings, quantities with their errors, status, remark, version."""
        return {
            "verb": self.name,
            **self.setting_cells(case),
            **self.cells(record),
            "attnlaw_version": version(),
        }

    def setting_cells(self, case: S) -> dict[str, Any]:
        """What a case adds to a row: its settings."""
        return {self.setting_columns[name]: value for name, value in case.to_row().items()}

    @cached_property
    def setting_columns(self) -> dict[str, str]:
        """The columns of rows that state settings, by their names: `x_setting` where `x` is a quantity."""
        taken = column_kinds(self.quantities)
        known = setting_fields(self.settings).items()
        stated = [name for name, field in known if not field.rule.machine_only]
        return {name: f"{name}_setting" if name in taken else name for name in stated}

    @cached_property
    def schema(self) -> dict[str, str]:
        """The columns of its rows with their kinds."""
        kinds = {"verb": "text"}
        known = setting_fields(self.settings)
        for name, column in self.setting_columns.items():
            kinds[column] = KIND_OF.get(known[name].types[0], "text")
        ends = dict.fromkeys(("status", "remark", "attnlaw_version"), "text")
        return kinds | column_kinds(self.quantities) | ends

    def label(self, name: str) -> str:
        """How tables, axes and pages call a column of its rows or of its tables."""
        for columns in (self.quantities, *(table.columns for table in self.tables)):
            for quantity in columns:
                if quantity.name == name:
                    return quantity.label
        known = setting_fields(self.settings)
        return known[name].label if name in known else name.replace("_", " ")

    def axis(self, name: str) -> str:
        """The title of an axis or a legend: what the column is, with its symbol and unit."""
        every = (
            quantity
            for columns in (self.quantities, *(table.columns for table in self.tables))
            for quantity in columns
        )
        return next(
            (quantity.axis for quantity in every if quantity.name == name and quantity.axis), self.label(name)
        )


KIND_OF: dict[Any, str] = {
    float: "float",
    int: "int",
    bool: "bool",
    str: "text",
    tuple[int, ...]: "ints",
    tuple[str, ...]: "texts",
}


def grid(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations of the values of the axes, the last one fastest.

    >>> list(grid({"a": [1, 2], "b": [3]}))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return (dict(zip(axes, point, strict=True)) for point in product(*axes.values()))


def run_each_case(
    work: Callable[[S, Progress], R],
) -> Callable[[Sequence[S], Progress], Iterator[R | InputError]]:
    """The `run` of a verb whose cases have nothing to share: what one cannot do, the others still do."""

    @wraps(work)
    def run(cases: Sequence[S], progress: Progress) -> Iterator[R | InputError]:
        for case in cases:
            yield attempt(work, case, progress)

    return run


def attempt(work: Callable[..., R], *given: Any) -> R | InputError:
    """Return what `work` returns, or the `InputError` that it raises."""
    try:
        return work(*given)
    except InputError as error:
        return error


def expand_values(field: SettingField, values: list[Any]) -> list[Any]:
    """The values of a setting, each replaced by those that it stands for."""
    if field.rule.expand is None:
        return values
    return [part for value in values for part in field.rule.expand(value)]


def declared_verb(module: str, name: str) -> Verb[Any, Any]:
    """The verb of a name that a module declares: what a worker process makes of a verb that was sent."""
    members = vars(import_module(module)).values()
    return next(member for member in members if isinstance(member, Verb) and member.name == name)
