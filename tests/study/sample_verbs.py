"""Verbs for tests of the machinery: tasks that count themselves, wait, fail, hang, exit, or write a table.

Each call leaves a line in the file `calls` of its `log` folder, whatever becomes of it afterwards.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl

from attnlaw.base.errors import InputError
from attnlaw.study import Result, Study, Verb, read_study


def _called(log: str | None, x: float) -> None:
    if log is not None:
        with (Path(log) / "calls").open("a") as file:
            file.write(f"{x:g}\n")


def calls(log: Path) -> list[float]:
    """The arguments of all calls so far, in their order."""
    path = log / "calls"
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def square(*, x: float, seconds: float = 0.0, log: str | None = None) -> Result:
    """x squared, after some seconds."""
    _called(log, x)
    time.sleep(seconds)
    return Result({"square": x * x})


def draw(*, x: float, seed: int) -> Result:
    """Linear algebra of drawn numbers: its last bits depend on the number of BLAS threads."""
    matrix = np.random.default_rng(seed).standard_normal((60, 60)) + x
    values = np.linalg.svd(matrix, compute_uv=False)
    return Result({"largest": float(values[0])}, {"values": pl.DataFrame({"value": values})})


def poisoned(*, x: float, how: str = "well", at: float = 2.0, log: str | None = None) -> Result:
    """x squared, but at one x: raise, be wrong input, hang, freeze, or exit the process."""
    _called(log, x)
    if x == at and how == "raises":
        raise ArithmeticError("poison\nin two lines")
    if x == at and how == "input":
        raise InputError("x: not this one")
    if x == at and how == "hangs":
        time.sleep(600)
    if x == at and how == "freezes":
        ctypes.PyDLL(None).sleep(600)  # compiled code that does not let go of the interpreter
    if x == at and how == "exits":
        os._exit(3)
    if x == at and how == "nan":
        return Result({"square": float("nan")})
    return Result({"square": x * x})


def second_time(*, x: float, how: str, log: str) -> Result:
    """x squared; the second time it is called, raise, hang, or interrupt the run."""
    _called(log, x)
    if calls(Path(log)).count(x) == 2:
        if how == "raises":
            raise ArithmeticError("only once")
        if how == "hangs":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGINT)
    return Result({"square": x * x})


def recovers(*, x: float, log: str) -> Result:
    """Fails twice, then works."""
    _called(log, x)
    if calls(Path(log)).count(x) < 3:
        raise OSError("not yet")
    return Result({"square": x * x})


def torn(*, x: float, at: int = 3, seconds: float = 0.0, log: str | None = None) -> Result:
    """x squared with a table; the first time at one x, the process is killed in the middle of writing it."""
    _called(log, x)
    time.sleep(seconds)
    if x == at and log is not None and calls(Path(log)).count(x) == 1:

        def half(self: Path, data: bytes) -> None:
            with self.open("wb") as file:
                file.write(data[:100])
            os.kill(os.getpid(), signal.SIGKILL)

        Path.write_bytes = half  # type: ignore[method-assign, assignment]
    return Result({"square": x * x}, {"lines": pl.DataFrame({"value": np.arange(1000) * x})})


def imports(*, x: float) -> Result:
    """x squared, with a module that takes its time to load."""
    from study.slow_module import square_of

    return Result({"square": square_of(x)})


VERBS = {
    "imports": Verb(imports),
    "square": Verb(square),
    "draw": Verb(draw, draws=True),
    "poisoned": Verb(poisoned),
    "recovers": Verb(recovers),
    "second_time": Verb(second_time),
    "torn": Verb(torn),
}


def study(folder: Path, text: str) -> Study:
    """A study of these verbs, written to the folder, which stands for LOG in its text."""
    file = folder / "study.toml"
    file.write_text(text.replace("LOG", str(folder)))
    return read_study(file, VERBS)


def rows(out: Path) -> pl.DataFrame:
    """What a run exported."""
    return pl.read_parquet(out / "rows" / "*.parquet")
