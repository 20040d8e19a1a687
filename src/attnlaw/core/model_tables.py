"""Records of one or several models: tables with a column `model`, and a summary and a case for each."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self

from attnlaw.core.old_result import DisplayMixin
from attnlaw.core.tables import stack_tables, unique_names


class ModelTables(DisplayMixin):
    """The base of frozen records whose fields are polars tables (or None) and tuples with an entry a model.

    `summaries` are dicts of plain values, `cases` the quantities of each model by name.
    """

    summaries: tuple[dict[str, Any], ...]
    cases: tuple[dict[str, Any], ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the only model."""
        (only,) = self.summaries
        return only

    @property
    def quantities(self) -> dict[str, Any]:
        """The quantities of the only model, by name: numbers, `Estimate`s, texts."""
        (only,) = self.cases
        return only

    @property
    def names(self) -> list[str]:
        return [summary["model"] for summary in self.summaries]

    def as_json(self, as_list: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """One summary, or a list when there are several models (or when `as_list` asks for one)."""
        return list(self.summaries) if as_list or len(self.summaries) > 1 else self.summaries[0]

    def __add__(self, other: Self) -> Self:
        """Both in one: rows of the first, then rows of the second; a name met again gets a number."""
        names = unique_names(self.names, other.names)
        joined: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            first, second = getattr(self, field.name), getattr(other, field.name)
            if isinstance(first, tuple):
                joined[field.name] = first + second
            elif first is not None or second is not None:
                joined[field.name] = stack_tables(first, second, names)
        renamed = tuple({**summary, "model": names[summary["model"]]} for summary in other.summaries)
        return replace(self, **joined | {"summaries": self.summaries + renamed})  # type: ignore[type-var]
