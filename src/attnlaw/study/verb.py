"""A verb as a study sees it: a task function, and its arguments, read from the function's signature.

A study's keys are the names of the arguments; a wrong one, or a value of a wrong type, is told in one line.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from attnlaw.base.errors import InputError
from attnlaw.study.task import Plain, Result

EXPECTED = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
LARGEST = 2**63  # a whole number of TOML


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


class Arguments:
    """What a verb's function accepts, without the `seed` of a verb that draws.

    >>> def square(*, x: float, times: int = 1) -> Result: ...
    >>> Arguments(Verb(square)).complete({"x": 2}, "study.toml")
    {'x': 2.0, 'times': 1}
    """

    def __init__(self, verb: Verb) -> None:
        hints = get_type_hints(verb.function)
        found = inspect.signature(verb.function).parameters.values()
        kept = [parameter for parameter in found if not (verb.draws and parameter.name == "seed")]
        self.types = {parameter.name: _alternatives(hints[parameter.name]) for parameter in kept}
        self.defaults = {p.name: p.default for p in kept if p.default is not p.empty}

    def complete(self, given: Mapping[str, Any], where: str) -> dict[str, Plain]:
        """All arguments in the function's order: those given, in their types, and defaults for the rest."""
        for name in self.types:
            if name not in given and name not in self.defaults:
                raise InputError(f"{where}: {name} is missing; add it to [fixed], [grid] or [[list]]")
        return {
            name: self.convert(name, given[name], where) if name in given else self.defaults[name]
            for name in self.types
        }

    def check_name(self, name: str, verb: str, where: str) -> None:
        """An `InputError` for a key that the verb does not have."""
        if name in self.types:
            return
        close = difflib.get_close_matches(name, self.types, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; its keys: {', '.join(self.types)}"
        raise InputError(f"{where}: {name} is not an argument of {verb}{hint}")

    def convert(self, name: str, value: Any, where: str) -> Plain:
        """The value in the argument's type; 2.0 serves as an integer and "inf" as a number."""
        for kind in self.types[name]:
            fitted = _fitted(kind, value)
            if fitted is not None:
                return fitted
        expected = " or ".join(EXPECTED[kind] for kind in self.types[name] if kind in EXPECTED)
        raise InputError(f"{where}: {name}: found {value!r}, expected {expected}")


def _alternatives(hint: Any) -> tuple[type, ...]:
    """`int | None` as (int,): None is what an absent key stands for."""
    return tuple(kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType)


def _fitted(kind: type, value: Any) -> Plain:
    """The value as `kind`, or None where it is not of that kind."""
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if isinstance(value, int) and abs(value) > LARGEST:
        return None
    if kind is float:
        number = float(value) if isinstance(value, int | float) or value == "inf" else math.nan
        return None if math.isnan(number) else number
    if kind is int:
        return (
            int(value)
            if isinstance(value, int | float) and math.isfinite(value) and value == int(value)
            else None
        )
    return value if kind is str and isinstance(value, str) else None
