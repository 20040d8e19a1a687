"""Describe rows in words: settings that vary or are constant, failures, and labels of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import short_names
from attnlaw.core.verb import Verb

MOST_CASES = 6  # further cases are shown only in the table
NOT_SHOWN = ("task", "case", "attnlaw_version", "remark", "seed")  # only the download has them
LONGEST_MESSAGE = 300  # letters of an error


def format_setting(value: Any) -> str:
    """Return the value of a setting in words.

    >>> format_setting(True), format_setting(math.inf), format_setting(0.5), format_setting("relu")
    ('yes', '∞', '0.5', 'relu')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "∞" if value == math.inf else f"{value:g}" if isinstance(value, float) else str(value)


def format_short(value: Any) -> str:
    """Return a number with four significant digits, and any other value in words.

    >>> format_short(0.123456), format_short(7), format_short("relu")
    ('0.1235', '7', 'relu')
    """
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else format_setting(value)


def capital(text: str) -> str:
    """Return the text with a capital letter at the start."""
    return f"{text[:1].upper()}{text[1:]}"


def varying_settings(rows: pl.DataFrame, names: Iterable[str]) -> list[str]:
    columns = set(rows.columns) if rows.height > 1 else set()
    return [name for name in names if name in columns and rows[name].n_unique() > 1]


def independent_settings(rows: pl.DataFrame, names: Sequence[str], fixed: Sequence[str]) -> list[str]:
    """Return the settings that vary between rows that agree in `fixed` and in all other settings.

    If two settings determine each other, the function returns only the first.

    >>> rows = pl.DataFrame({"alpha": [1, 2, 1, 2], "noise": [0, 0, 1, 1], "decay": [3, 4, 5, 6]})
    >>> independent_settings(rows, ["noise", "decay"], ["alpha"])
    ['noise']
    """
    kept = list(names)
    for name in reversed(names):
        fixed_names = [*fixed, *(other for other in kept if other != name)]
        if fixed_names and not (rows.group_by(fixed_names).agg(pl.col(name).n_unique())[name] > 1).any():
            kept.remove(name)
    return kept


RowsByCase = Iterator[tuple[dict[str, Any], pl.DataFrame]]


def rows_by_case(rows: pl.DataFrame, names: Sequence[str]) -> RowsByCase:
    """Yield at most six combinations of settings, each with its rows. A null matches every value."""
    if not rows.height:
        return
    if not names:
        yield {}, rows
        return
    combinations = rows.select(names).unique(maintain_order=True).to_dicts()
    whole = [values for values in combinations if not any(_covers(other, values) for other in combinations)]
    for case in whole[:MOST_CASES]:
        yield case, rows_like(rows, case)


def rows_like(rows: pl.DataFrame, case: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows that have these settings. A null (a setting without effect) matches every value."""
    fits = [pl.col(name).eq_missing(pl.lit(value)) | pl.col(name).is_null() for name, value in case.items()]
    return rows.filter(pl.all_horizontal(fits))


def _covers(other: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether `other` differs from `values`, but only where `values` has None."""
    known = {name: value for name, value in values.items() if value is not None}
    return other != values and all(other[name] == value for name, value in known.items())


def variant_tables(verb: Verb[Any, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the variants, which have labels and colours, of each column that has variants."""
    choices = {name: known.rule.choices for name, known in setting_fields(verb.settings).items()}
    tables = {name: variants for name, variants in choices.items() if isinstance(variants, Mapping)}
    return tables | {quantity.name: quantity.choices for quantity in verb.every_quantity if quantity.choices}


class ValueLabels:
    """The labels of values: the declared label of a variant, or the last part of a model's path."""

    def __init__(self, verb: Verb[Any, Any], rows: pl.DataFrame) -> None:
        known = setting_fields(verb.settings)
        self.variants = variant_tables(verb)
        files = {"model", *(name for name, setting in known.items() if setting.rule.is_path)}
        texts = {name: rows[name].drop_nulls() for name in files if rows.schema.get(name) == pl.String}
        self.short = {name: short_names(text.unique(maintain_order=True)) for name, text in texts.items()}

    def label_of(self, name: str, value: Any) -> str:
        if isinstance(value, str) and value in self.short.get(name, {}):
            return self.short[name][value]
        return str(getattr(self._variant(name, value), "label", None) or format_setting(value))

    def palette_index(self, name: str, value: Any) -> int | None:
        """Return the index of a variant's fixed colour in the palette, or None."""
        return getattr(self._variant(name, value), "colour", None)

    def _variant(self, name: str, value: Any) -> Any:
        return self.variants.get(name, {}).get(value) if isinstance(value, str) else None

    def describe(self, values: Mapping[str, Any]) -> str:
        """Return names and values as text, such as "target rank 0.5, residual yes", leaving out nulls."""
        return ", ".join(
            f"{name.replace('_', ' ')} {self.label_of(name, value)}"
            for name, value in values.items()
            if value is not None
        )


def showable_columns(rows: pl.DataFrame) -> list[str]:
    """Return the columns that a table on a page may show."""
    return [name for name, dtype in rows.schema.items() if not dtype.is_nested() and name not in NOT_SHOWN]


def constant_settings(rows: pl.DataFrame, result_columns: Iterable[str]) -> list[str]:
    """Return the settings that have the same value in all rows, if there are several rows."""
    results = set(result_columns)
    names = [name for name in showable_columns(rows) if name not in results and rows[name].n_unique() == 1]
    return names if rows.height > 1 else []


def shared_settings(rows: pl.DataFrame, result_columns: Iterable[str]) -> str:
    """Return a sentence about the settings that all rows share, or "" if there are none."""
    shared = {
        name: rows[name][0]
        for name in constant_settings(rows, result_columns)
        if rows[name].count() and name != "status"
    }
    words = ", ".join(f"{name.replace('_', ' ')} {format_setting(value)}" for name, value in shared.items())
    return f"The same in all rows: {words}." if words else ""


def failed_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of failed cases. There are none if the rows have no column `status`."""
    has_status = rows.schema.get("status") == pl.String
    return rows.filter(pl.col("status") == "failed") if has_status else rows.clear()


def failure_sentence(rows: pl.DataFrame) -> str:
    """Return a sentence that says how many tasks failed, with the first error. Return "" if no task failed.

    >>> rows = pl.DataFrame({"status": ["done", "failed"], "remark": [None, "weights: torn; copy them"]})
    >>> failure_sentence(rows)
    '1 of 2 tasks failed: weights: torn; copy them.'
    """
    lost = failed_rows(rows)
    if not lost.height:
        return ""
    errors = lost["remark"].drop_nulls()
    first = str(errors[0]).strip().partition("\n")[0] if errors.len() else "the error message was not saved"
    cut = first if len(first) <= LONGEST_MESSAGE else f"{first[:LONGEST_MESSAGE]}…"
    return f"{lost.height} of {rows.height} tasks failed: {cut.rstrip('.')}."
