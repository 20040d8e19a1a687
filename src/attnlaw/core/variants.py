"""Tables of named variants, such as activations or students. A variant may have a parameter: `clip:2`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Generic, Protocol, Self, TypeVar


class HasName(Protocol):
    @property
    def name(self) -> str: ...


class Variant(HasName, Protocol):
    """One entry in a table of variants: `relu`, or `clip:C` with a parameter that `at` sets."""

    @property
    def example(self) -> str | None:
        """The name with an example value, such as `clip:2`, or None if there is no parameter."""

    def at(self, parameter: str) -> Self:
        """Return the variant with this parameter. Raise a ValueError if the text is not a valid parameter."""


N = TypeVar("N", bound=HasName)
V = TypeVar("V", bound=Variant)


def with_parameter(variant: V, parameter: str, value: float) -> V:
    """Return a copy of the variant with this parameter, and with a name such as `clip:2`."""
    name = f"{variant.name.partition(':')[0]}:{parameter}"
    return replace(variant, name=name, example=None, parameters=(value,))  # type: ignore[type-var]


def parse_positive(parameter: str) -> float:
    """Parse a positive number. Raise a ValueError if the text is not a valid parameter."""
    value = float(parameter)
    if not 0 < value < math.inf:
        raise ValueError(f"{parameter} is not a positive number")
    return value


class Variants(Mapping[str, V], Generic[V]):
    """A table of variants by name, for the `choices` of a setting.

    Iteration yields the name with a placeholder, `clip:C`, but `in` accepts only names with a value, such as
    `clip:2`.
    """

    def __init__(self, *variants: V) -> None:
        self._listed = {variant.name: variant for variant in variants}
        known = [variant for variant in variants if variant.example is not None]
        self._parametric = {variant.name.partition(":")[0]: variant for variant in known}

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
        """The end of an error message, which lists the possible names."""
        examples = [variant.example for variant in self._parametric.values() if variant.example is not None]
        ending = f", for example {' or '.join(examples)}" if examples else ""
        return f"expected one of {', '.join(self)}{ending}"


def by_name(*variants: N) -> dict[str, N]:
    """Return a table of variants by name."""
    return {variant.name: variant for variant in variants}
