"""Verbs: the things attnlaw can do. A verb is declared once, as settings, quantities and a function to run.

Everything else follows from the declaration:

| what | where |
|---|---|
| options and help of the command, `--json` | `attnlaw.command.app` |
| keys of a study file, their values and messages | `attnlaw.study.study_file` |
| rows, JSON, saved tables and their checks | `Verb.row`, `Verb.schema`, `attnlaw.core.result` |
| labels of tables, axes and pages | `Verb.label` |
| the Python function, its help and its types | `attnlaw.core.function` |

Data take the same way through every verb:

    words | TOML | Python --Verb.cases--> [Settings] --run--> [record] --Result.collect--> Result
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from typing import Any, Generic, TypeVar

from attnlaw.core import result
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec, column_kinds, to_cells
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, Settings, require_known, setting_fields
from attnlaw.core.version import version

# Said on pages and screens of a verb whose paper was known by its abstract only.
DERIVED = "attnlaw's authors derived these equations: only the abstract of arXiv {paper} was available."
S = TypeVar("S", bound=Settings)
R = TypeVar("R")
V = TypeVar("V")
Run = Callable[[Sequence[S], Progress], Iterator[R | InputError]]


@dataclass(frozen=True)
class CasePart:
    """One part of a large case, which a worker can compute alone."""

    case: Settings  # the settings of the task that computes it
    count: int = 1  # how many things (such as matrices) it measures
    work: float = 1.0  # how much work it is compared with other parts, in any unit


@dataclass(frozen=True)
class PartKeeper(Generic[S, R]):
    """How a single process keeps the finished parts of a case, so that it can continue later.

    `run` computes a case, stores each finished part in a directory, and reuses the parts that are already
    there.
    """

    run: Callable[[S, Path, Progress], R]
    has_parts: Callable[[Path], bool]
    remove: Callable[[Path], None]


@dataclass(frozen=True)
class CaseSplit(Generic[S, R]):
    """How several workers compute a large case in parts. The result is the same as with a single process.

    `join` builds the record of the case from the tables of its parts, in order. `keeper` lets a single
    process keep finished parts in the directory of the results.
    """

    verb: Verb[Any, Any]  # computes one part. Only its tables are kept.
    parts: Callable[[S], list[CasePart]]  # returns the parts of a case
    join: Callable[[S, Iterable[Mapping[str, Any]]], R]
    part_noun: str = "parts"  # what `CasePart.count` counts
    keeper: PartKeeper[S, R] | None = None


@dataclass(frozen=True, repr=False)
class Verb(Generic[S, R]):
    """A verb: a computation that the command line, studies and Python share.

    Args:
        name: The word that users type.
        title: The title of the verb's page.
        settings: The class of the verb's settings. The docstring of this class is the help text of the
            command.
        quantities: The columns that the verb's rows have in addition to the settings. A record has these
            quantities as attributes, or all of them in a mapping `quantities`. A record may also have
            `outcome` and `remark`, which say how the computation ended.
        run: A function that computes several cases together, such as all points of a curve. The function
            yields, for each case in order, a record or the `InputError` of this case.
        tables: The tables that are too large for a row.
        charts: Names of functions in the file charts.py of the verb's folder.
        simulation: The verb that simulates what this verb predicts. A command also runs the simulation if the
            user gives any of its settings.
        is_random: Whether the verb draws random numbers. If so, a study repeats the verb with different
            values of `seed`.
        precheck: A function that raises an `InputError` for a case that cannot work, before anything
            expensive runs.
        split: How several workers compute one case in parts.
        batch_key: A function that returns the key of a case. A study may give cases with equal keys to `run`
            together, so this must not change their results. A case with the key None is computed alone.
        summary: A function that returns more keys for the JSON of one case and for summary.json.
        after_abstract: The arXiv number of a paper of which only the abstract was available, so that its
            equations were derived here.
        joint_summary: A function of a result with several cases. The function returns more keys, about all
            cases together, for the JSON of each case.
        example: A doctest that the documentation of the Python function shows.
        examples: A mapping from example commands to their descriptions. The first example is the simplest,
            and error messages show it.
    """

    name: str
    title: str
    settings: type[S]
    quantities: tuple[Quantity, ...]
    run: Run[S, R]
    tables: tuple[TableSpec[R], ...] = ()
    charts: tuple[str, ...] = ()
    simulation: Verb[Any, Any] | None = None
    is_random: bool = False
    precheck: Callable[[S], object] | None = None
    split: CaseSplit[S, R] | None = None
    batch_key: Callable[[S], Hashable] | None = None
    summary: Callable[[Result], dict[str, Any]] | None = None
    joint_summary: Callable[[Result], dict[str, Any]] | None = None
    after_abstract: str = ""
    example: str = ""
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def provenance(self) -> str:
        """A sentence about the source of the verb's equations, or "" if a paper gives them."""
        return DERIVED.format(paper=self.after_abstract) if self.after_abstract else ""

    def __repr__(self) -> str:
        return f"<verb {self.name}: {self.title}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return declared_verb, (self.settings.__module__, self.name)

    def cases(self, given: Mapping[str, Any]) -> list[S]:
        """Return a case for each combination of the given values. The last setting varies fastest."""
        known = setting_fields(self.settings)
        for name in given:
            require_known(name, known, self.name)
        axes = {}
        for name, value in given.items():
            axes[name] = expand_values(known[name], known[name].sweep_values(value))
        for name, values in axes.items():
            if not values:
                raise BadSetting(name, "found an empty list; give a value")
        return self.require_used([self.settings.parse(case, self.name) for case in grid(axes)], given)

    def require_used(self, cases: list[S], given: Iterable[str]) -> list[S]:
        """Return the cases. Raise a `BadSetting` if a given setting has no effect in any case."""
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
        """Run the verb. Several values of a setting, or a directory of models, make several cases."""
        placed = self._place(words)
        if twice := placed.keys() & given.keys():
            raise TypeError(f"{self.name} got two values for {min(twice)}")
        given |= placed
        cases = self.cases({name: value for name, value in given.items() if value is not None})
        records = []
        shown = nullcontext(progress) if progress is not None else result.load_views().progress(self.name)
        with shown as report:
            for record in self.run(cases, report):
                if isinstance(record, InputError):
                    raise record
                records.append(record)
        return Result.collect(self, zip(cases, records, strict=True))

    def _place(self, words: Sequence[Any]) -> dict[str, Any]:
        places = [field for field in setting_fields(self.settings).values() if field.rule.positional]
        placed = {place.name: word for place, word in zip(places, words, strict=False)}
        if len(words) > len(places):
            if not places or not places[-1].rule.sweepable:
                raise TypeError(f"{self.name} takes {len(places)} positional arguments, found {len(words)}")
            last = words[len(places) - 1 :]
            placed[places[-1].name] = [value for word in last for value in places[-1].sweep_values(word)]
        return placed

    def values(self, record: R) -> dict[str, Any]:
        known = getattr(record, "quantities", None)
        get = partial(getattr, record) if known is None else known.get
        return {quantity.name: get(quantity.name, None) for quantity in self.quantities}

    def cells(self, record: R | InputError) -> dict[str, Any]:
        """Return the cells that a record adds to a row: quantities with errors, status and remark."""
        if isinstance(record, InputError):
            return {"status": str(Outcome.FAILED), "remark": str(record)}
        return {
            **to_cells(self.quantities, self.values(record)),
            "status": str(getattr(record, "outcome", Outcome.DONE)),
            "remark": getattr(record, "remark", None),
        }

    def row(self, case: S, record: R | InputError) -> dict[str, Any]:
        """Return one flat row: verb, settings, quantities with their errors, status, remark and version."""
        ends = {"attnlaw_version": version()}
        return {"verb": self.name, **self.setting_cells(case), **self.cells(record), **ends}

    def setting_cells(self, case: S) -> dict[str, Any]:
        return {self.setting_columns[name]: value for name, value in case.to_row().items()}

    @cached_property
    def setting_columns(self) -> dict[str, str]:
        """The column of each setting: `x`, or `x_setting` if there is also a quantity `x`."""
        taken = column_kinds(self.quantities)
        known = setting_fields(self.settings).items()
        stated = [name for name, field in known if not field.rule.machine_only]
        return {name: f"{name}_setting" if name in taken else name for name in stated}

    @cached_property
    def schema(self) -> dict[str, str]:
        """The columns of the rows with their kinds."""
        kinds = {"verb": "text"}
        for name, column in self.setting_columns.items():
            kinds[column] = KIND_OF.get(setting_fields(self.settings)[name].types[0], "text")
        ends = dict.fromkeys(("status", "remark", "attnlaw_version"), "text")
        return kinds | column_kinds(self.quantities) | ends

    @property
    def every_quantity(self) -> Iterator[Quantity]:
        """The quantities of the rows, followed by the quantities of the tables."""
        return chain(self.quantities, *(table.columns for table in self.tables))

    def label(self, name: str) -> str:
        """Return the display name of a column, for tables, axes and pages."""
        for quantity in self.every_quantity:
            if quantity.name == name:
                return quantity.label
        known = setting_fields(self.settings)
        return known[name].label if name in known else name.replace("_", " ")

    def axis(self, name: str) -> str:
        """Return the title of an axis or a legend, with symbol and unit."""
        titles = (quantity.axis for quantity in self.every_quantity if quantity.name == name)
        known = setting_fields(self.settings)
        title = known[name].rule.axis if name in known else ""
        return next(filter(None, titles), title or self.label(name))


# A setting of another type is a text.
KIND_OF = {float: "float", int: "int", bool: "bool", tuple[int, ...]: "ints", tuple[str, ...]: "texts"}


def grid(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the values of the axes. The last axis varies fastest."""
    return (dict(zip(axes, point, strict=True)) for point in product(*axes.values()))


def run_each_case(work: Callable[[S, Progress], R]) -> Run[S, R]:
    """Return a `run` that computes each case alone. An error in one case does not stop the others."""

    @wraps(work)
    def run(cases: Sequence[S], progress: Progress) -> Iterator[R | InputError]:
        for case in cases:
            yield attempt(work, case, progress)

    return run


def attempt(work: Callable[..., R], *given: Any) -> R | InputError:
    """Return the result of `work`, or the `InputError` that `work` raises."""
    try:
        return work(*given)
    except InputError as error:
        return error


def expand_values(field: SettingField, values: list[Any]) -> list[Any]:
    """Expand the values of a setting. For example, a directory of a training run becomes its models."""
    if field.rule.expand is None:
        return values
    return [part for value in values for part in field.rule.expand(value)]


def declared_verb(module: str, name: str) -> Verb[Any, Any]:
    """Load the verb with this name from its module. Pickle calls this function in worker processes."""
    members = vars(import_module(module)).values()
    return next(member for member in members if isinstance(member, Verb) and member.name == name)
