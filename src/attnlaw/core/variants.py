"""A table of variants of which some have a parameter: listed as `clip:C`, chosen as `clip:2`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Generic, Protocol, Self, TypeVar


class HasName(Protocol):
    """What a table of variants holds."""

    @property
    def name(self) -> str: ...


class Variant(HasName, Protocol):
    """One of them: `name` is `relu`, or `clip:C` where it has a parameter, which `at` then gives a value."""

    @property
    def example(self) -> str | None:
        """How one with a parameter is written, such as `clip:2`; None without one."""

    def at(self, parameter: str) -> Self:
        """The one whose parameter is written so, without an example; a ValueError where that is none."""


N = TypeVar("N", bound=HasName)
V = TypeVar("V", bound=Variant)


def with_parameter(variant: V, parameter: str, value: float) -> V:
    """A variant, a dataclass with `parameters`, with this one, called as it is written."""
    kind = variant.name.partition(":")[0]
    name = f"{kind}:{parameter}"
    return replace(variant, name=name, example=None, parameters=(value,))  # type: ignore[type-var]


def parse_positive(parameter: str) -> float:
    """A parameter that is a positive number; a ValueError where it is not.

    >>> parse_positive("2")
    2.0
    """
    value = float(parameter)
    if not 0 < value < math.inf:
        raise ValueError(f"{parameter} is not a positive number")
    return value


class Variants(Mapping[str, V], Generic[V]):
    """Variants by their names, a table in which a new one is a line; the `choices` of a setting.

    All are listed, also `clip:C`, but only `clip:2` is one that can be chosen, and so `in` it.
    """

    def __init__(self, *variants: V) -> None:
        self._listed = {variant.name: variant for variant in variants}
        self._parametric = {
            variant.name.partition(":")[0]: variant for variant in variants if variant.example is not None
        }

    def __getitem__(self, name: str) -> V:
        if name in self._listed:
            return self._listed[name]
        kind, _, parameter = name.partition(":")
        try:
            return self._parametric[kind].at(parameter)
        except ValueError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name].example is None
        except KeyError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    @property
    def expected(self) -> str:
        """What a name must be, in words."""
        examples = [variant.example for variant in self._parametric.values() if variant.example is not None]
        ending = f", for example {' or '.join(examples)}" if examples else ""
        return f"expected one of {', '.join(self)}{ending}"


def by_name(*variants: N) -> dict[str, N]:
    """Variants (students, masks, bounds, ...) by their names: the one table in which a new one is a line."""
    return {variant.name: variant for variant in variants}
