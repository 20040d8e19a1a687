"""Verbs for tests of the machinery: tasks that count themselves, wait, fail, hang, exit, or write a table.

Each call leaves a line in the file `calls` of its `log` folder, whatever becomes of it afterwards. Polars is
imported where it is used: it has threads, which a server that forks must not have.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.variants import by_name
from attnlaw.core.verb import CasePart, CaseSplit, Verb, run_each_case
from attnlaw.study import Study, read_study

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Found:
    """What any of these verbs finds."""

    square: float | None = None
    largest: float | None = None
    values: Any = None


def _lines(result: Found) -> pl.DataFrame | None:
    import polars as pl

    return None if result.values is None else pl.DataFrame({"value": result.values})


def _called(log: str | None, x: float) -> None:
    if log is not None:
        with (Path(log) / "calls").open("a") as file:
            file.write(f"{x:g}\n")


def calls(log: Path) -> list[float]:
    """The settings of all calls so far, in their order."""
    path = log / "calls"
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def at_once(log: Path) -> list[int]:
    """The sizes of all calls with several cases."""
    path = log / "at_once"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _verb(
    name: str, cls: type[Settings], work: Callable[[Any, Progress], Found], lines: str = "", **rest: Any
) -> Verb[Any, Found]:
    """A verb of one quantity, with a table of lines where it has a name."""
    quantity = Quantity("largest") if name == "draw" else Quantity("square")
    tables = (TableSpec(lines, (Quantity("value"),), _lines),) if lines else ()
    return Verb(name, name, cls, (quantity,), run_each_case(work), tables=tables, **rest)


@settings_dataclass
class Square(Settings):
    x: float = setting(help="What is squared.")
    seconds: float = setting(0.0, "How long it takes.", minimum=0)
    log: str | None = setting(None, "Where calls are counted.")


def square(case: Square, progress: Progress) -> Found:
    """x squared, after some seconds."""
    _called(case.log, case.x)
    time.sleep(case.seconds)
    return Found(square=case.x * case.x)


@settings_dataclass
class Draw(Settings):
    x: float = setting(help="The mean.")
    seed: int = setting(0, "Seed.", minimum=0)
    seeds: int = setting(4, "Repetitions.", minimum=1)
    jobs: int | None = setting(None, "Threads.", minimum=1, machine_only=True)


def draw(case: Draw, progress: Progress) -> Found:
    """Linear algebra of drawn numbers: its last bits depend on the number of BLAS threads."""
    assert (case.seeds, case.jobs) == (1, 1)
    matrix = np.random.default_rng(case.seed).standard_normal((60, 60)) + case.x
    values = np.linalg.svd(matrix, compute_uv=False)
    return Found(largest=float(values[0]), values=values)


def _refuse(case: Draw) -> None:
    if case.x == -13:
        raise InputError("x: -13 brings bad luck; choose another")


@settings_dataclass
class Poisoned(Settings):
    x: float = setting(help="What is squared.")
    how: str = setting("well", "What happens at one x.")
    at: float = setting(2.0, "That x.")
    log: str | None = setting(None, "Where calls are counted.")


def poisoned(case: Poisoned, progress: Progress) -> Found:
    """x squared, but at one x: raise, be wrong input, hang, freeze, or exit the process."""
    _called(case.log, case.x)
    if case.x != case.at:
        return Found(square=case.x * case.x)
    if case.how == "raises":
        raise ArithmeticError("poison\nin two lines")
    if case.how == "input":
        raise InputError("x: not this one")
    if case.how == "hangs":
        time.sleep(600)
    if case.how == "freezes":
        ctypes.PyDLL(None).sleep(600)  # compiled code that does not let go of the interpreter
    if case.how == "exits":
        os._exit(3)
    return Found(square=float("nan"))


@settings_dataclass
class Shared(Poisoned):
    curve: str = setting("one", "The group.")
    seconds: float = setting(0.0, "How long the cases of a call take together.", minimum=0)


def shared(cases: Sequence[Shared], progress: Progress) -> Iterator[Found]:
    """All squares in the time of one; a call with several cases leaves their number in the file `at_once`."""
    log = cases[0].log
    assert len({case.curve for case in cases}) == 1
    if log is not None and len(cases) > 1:
        with (Path(log) / "at_once").open("a") as file:
            file.write(f"{len(cases)}\n")
    time.sleep(cases[0].seconds)
    return (poisoned(case, progress) for case in cases)


@settings_dataclass
class SecondTime(Settings):
    x: float = setting(help="What is squared.")
    how: str = setting(help="What happens the second time.")
    log: str = setting(help="Where calls are counted.")


def second_time(case: SecondTime, progress: Progress) -> Found:
    """x squared; the second time it is called, raise, hang, or interrupt the run."""
    _called(case.log, case.x)
    if calls(Path(case.log)).count(case.x) == 2:
        if case.how == "raises":
            raise ArithmeticError("only once")
        if case.how == "hangs":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGINT)
    return Found(square=case.x * case.x)


@settings_dataclass
class Recovers(Settings):
    x: float = setting(help="What is squared.")
    log: str = setting(help="Where calls are counted.")


def recovers(case: Recovers, progress: Progress) -> Found:
    """Fails twice, then works."""
    _called(case.log, case.x)
    if calls(Path(case.log)).count(case.x) < 3:
        raise OSError("not yet")
    return Found(square=case.x * case.x)


@settings_dataclass
class Torn(Square):
    at: int = setting(3, "Where it is killed.")


def torn(case: Torn, progress: Progress) -> Found:
    """x squared with a table; the first time at one x, the process is killed in the middle of writing it."""
    _called(case.log, case.x)
    time.sleep(case.seconds)
    if case.x == case.at and case.log is not None and calls(Path(case.log)).count(case.x) == 1:

        def half(self: Path, data: bytes) -> None:
            with self.open("wb") as file:
                file.write(data[:100])
            os.kill(os.getpid(), signal.SIGKILL)

        Path.write_bytes = half  # type: ignore[method-assign, assignment]
    return Found(square=case.x * case.x, values=np.arange(1000) * case.x)


@dataclass(frozen=True)
class Tool:
    name: str
    sharp: bool


TOOLS = by_name(Tool("knife", True), Tool("spoon", False))


@settings_dataclass
class Cut(Settings):
    """Settings that play a part in some cases alone."""

    tool: str = setting("spoon", "What cuts.", choices=TOOLS)
    edge: float = setting(1.0, "Of a knife.", greater_than=0, active_if=("tool", "sharp"))
    thickness: float = setting(1.0, "Of the slices.", greater_than=0, excluded_by="slices")
    slices: int | None = setting(None, "Instead of a thickness.", minimum=1)
    plates: int = setting(1, "For the slices.", minimum=1, requires="slices")
    only: tuple[str, ...] | None = setting(None, "What is cut.")
    model: str | None = setting(None, "A file.", is_path=True)
    square: bool = setting(False, "A switch with the name of another verb's quantity.")


def cut(case: Cut, progress: Progress) -> Found:
    return Found(largest=case.edge)


@settings_dataclass
class Term(Square):
    at: float | None = setting(None, "Where it is wrong input.")


def term(case: Term, progress: Progress) -> Found:
    """x squared in a table, after some seconds."""
    _called(case.log, case.x)
    time.sleep(case.seconds)
    if case.x == case.at:
        raise InputError("x: not this one")
    return Found(square=case.x * case.x, values=np.array([case.x * case.x]))


@settings_dataclass
class Total(Settings):
    terms: int = setting(help="How many squares are added.", minimum=1)
    seconds: float = setting(0.0, "How long each takes.", minimum=0)
    log: str | None = setting(None, "Where calls are counted.")
    at: float | None = setting(None, "Which is wrong input.")


def total(case: Total, progress: Progress) -> Found:
    """1 + 4 + 9 + ..."""
    return Found(square=float(sum(x * x for x in range(1, case.terms + 1))))


def _terms(case: Total) -> list[CasePart]:
    """The x-th counts for two things and for as much work as x."""
    if case.terms == 13:
        raise InputError("terms: 13 brings bad luck; choose another")
    given = {"seconds": case.seconds, "log": case.log, "at": case.at}
    return [CasePart(Term(x=x, **given), count=2, work=float(x)) for x in range(1, case.terms + 1)]


def _added(case: Total, tables: Iterable[Mapping[str, Any]]) -> Found:
    return Found(square=sum(float(part["lines"]["value"][0]) for part in tables))


SQUARE = _verb("square", Square, square)
DRAW = _verb("draw", Draw, draw, "values", is_random=True, precheck=_refuse)
POISONED = _verb("poisoned", Poisoned, poisoned)
SECOND_TIME = _verb("second_time", SecondTime, second_time)
RECOVERS = _verb("recovers", Recovers, recovers)
TORN = _verb("torn", Torn, torn, "lines")
CUT = Verb("cut", "Cut", Cut, (Quantity("largest"),), run_each_case(cut))
TERM = _verb("term", Term, term, "lines")
TOTAL = _verb("total", Total, total, split=CaseSplit(TERM, _terms, _added, part_noun="halves"))
SHARED = Verb("shared", "shared", Shared, (Quantity("square"),), shared, batch_key=lambda case: case.curve)
VERBS = by_name(SQUARE, DRAW, POISONED, SHARED, SECOND_TIME, RECOVERS, TORN, CUT, TERM, TOTAL)


def find(name: str) -> Verb[Any, Any]:
    """These verbs in place of attnlaw's."""
    if name not in VERBS:
        raise InputError(f"{name!r} is not a verb; expected one of {', '.join(VERBS)}")
    return VERBS[name]


# Where processes of their own find these verbs, and attnlaw.
PYTHONPATH = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))


def study(folder: Path, text: str) -> Study:
    """A study of these verbs, written to the folder, which stands for LOG in its text."""
    file = folder / "study.toml"
    file.write_text(text.replace("LOG", str(folder)))
    return read_study(file, find)


def rows(out: Path) -> pl.DataFrame:
    """What a run exported."""
    import polars as pl

    return pl.read_parquet(out / "rows.parquet")


def exported(out: Path) -> dict[str, bytes]:
    """The files of the result that a run exported, by name."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".json", ".parquet")}
