"""A view on a result for its charts: finished rows, tables with their settings, and how lines are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, count
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import polars as pl

from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import nan_to_null
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.figure import Figure, palette
from attnlaw.render.charts.labels import (
    ValueLabels,
    format_setting,
    independent_settings,
    rows_by_case,
    varying_settings,
)
from attnlaw.render.charts.style import PALETTE, without_validation

MOST_VALUES = 6  # of a setting, in words
LONGEST_SUFFIX = 80  # letters of a model's name in the name of a file
# Every chart of a result has a view of its own: under a slider that must not cost a pass over the rows each.
FINISHED_ROWS: WeakKeyDictionary[Result, pl.DataFrame] = WeakKeyDictionary()
NO_CASE: Mapping[str, Any] = {}


class Drawing(NamedTuple):
    """A chart of some rows: how it is drawn, the settings that these rows share, a note for the caption."""

    draw: Callable[[], Any]
    case: Mapping[str, Any] = NO_CASE
    note: str = ""


class ChartView:
    """What charts read of a result: rows that did not fail, and tables; what is no number is null."""

    def __init__(self, result: Result) -> None:
        self.result, self.verb = result, result.verb

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The finished rows; `case` is the number by which tables know them."""
        if self.result not in FINISHED_ROWS:
            known = setting_fields(self.verb.settings).items()
            infinite = [name for name, setting in known if setting.rule.allow_infinite]
            numbered = self.result.rows.with_columns(case=pl.int_range(pl.len(), dtype=pl.Int64))
            finished = numbered.filter(pl.col("status") != "failed")
            FINISHED_ROWS[self.result] = nan_to_null(finished, *infinite)
        return FINISHED_ROWS[self.result]

    @cached_property
    def simulation(self) -> ChartView | None:
        return None if self.result.simulation is None else ChartView(self.result.simulation)

    @cached_property
    def value_labels(self) -> ValueLabels:
        return ValueLabels(self.verb, self.rows)

    @cached_property
    def settings(self) -> list[str]:
        """The settings that rows state; a seed tells repetitions apart and nothing else."""
        known = setting_fields(self.verb.settings).items()
        return [name for name, setting in known if not setting.rule.machine_only and name != "seed"]

    def frame(self, table: str) -> pl.DataFrame:
        """The lines of a table, each with the settings of its row (the table's columns come first)."""
        if table not in self.result.tables:
            return pl.DataFrame()
        lines = nan_to_null(self.result.tables[table])
        missing = [name for name in self.settings if name in self.rows.columns and name not in lines.columns]
        return lines.join(self.rows.select("case", *missing), on="case", how="inner", maintain_order="left")

    def complete(self, rows: pl.DataFrame, *names: str) -> pl.DataFrame:
        """The rows that have a value in each of these columns; a missing table has neither."""
        return rows.drop_nulls(names) if rows.height else rows

    def cases(
        self, rows: pl.DataFrame, apart: Sequence[str]
    ) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
        """The rows of each case: one value of every setting that varies, except those in `apart`."""
        return rows_by_case(rows, self.other_settings(rows, apart)) if rows.height else iter(())

    def other_settings(self, rows: pl.DataFrame, apart: Sequence[str]) -> list[str]:
        """The settings that vary in rows beside some, and do not follow from those and each other."""
        return independent_settings(
            rows, [name for name in varying_settings(rows, self.settings) if name not in apart], apart
        )

    def figures(
        self, name: str, title: str, caption: str, drawings: Iterable[Drawing], on_page: bool = True
    ) -> list[Figure]:
        """A figure of each drawing, whose note follows the caption."""
        return [
            self.figure(name, title, f"{caption} {drawing.note}".strip(), drawing.draw, drawing.case, on_page)
            for drawing in drawings
        ]

    def figure(
        self,
        name: str,
        title: str,
        caption: str,
        draw: Callable[[], Any],
        case: Mapping[str, Any] = NO_CASE,
        on_page: bool = True,
    ) -> Figure:
        """The figure of a case, which its title states; that of one of several models is named after it.

        Args:
            on_page: False if the page shows the same and lets a reader choose: the figure is for papers.
        """
        description, model = self.value_labels.describe(case), case.get("model")
        return Figure(
            name if model is None else f"{name}{self._file_suffixes[model]}",
            f"{title}: {description}" if description else title,
            caption,
            without_validation(draw),
            on_page,
            None if model is None else self.value_labels.label_of("model", model),
            partial(self._describe_settings, case),
            self._version,
        )

    @cached_property
    def _version(self) -> str:
        """The versions that computed the rows."""
        return ", ".join(sorted(self.rows[VERSION_COLUMN].drop_nulls().unique()))

    def _describe_settings(self, case: Mapping[str, Any]) -> str:
        """The settings of a case's rows and of the simulation, with the values that they have."""
        known = [name for name in case if name in self.rows.columns]
        alike = [pl.col(name).eq_missing(pl.lit(case[name])) | pl.col(name).is_null() for name in known]
        rows = self.rows.filter(pl.all_horizontal(alike)) if alike else self.rows
        words = self._setting_texts(rows)
        if "seed" in rows.columns and rows["seed"].n_unique() > 1:
            words.append(f"{rows['seed'].n_unique()} seeds")
        if self.simulation is not None:
            words += self.simulation._setting_texts(self.simulation.rows, self.settings)
        return ", ".join(words)

    def _setting_texts(self, rows: pl.DataFrame, left_out: Sequence[str] = ()) -> list[str]:
        """Each setting that rows state with its values."""
        return [
            f"{self.verb.label(name)} {self._describe_values(rows[name])}"
            for name in self.settings
            if name in rows.columns and name not in left_out
            if rows[name].count() and not rows[name].dtype.is_nested()
        ]

    def _describe_values(self, values: pl.Series) -> str:
        """The values of a setting in words: all of them where they are few, else the first and the last.

        A list in parentheses, so that commas around it tell settings apart.
        """
        distinct = values.drop_nulls().unique(maintain_order=True)
        if distinct.len() > MOST_VALUES and distinct.dtype.is_numeric():
            ends = f"{format_setting(distinct.min())} to {format_setting(distinct.max())}"
            return f"{ends} ({distinct.len()} values)"
        labels = [self.value_labels.label_of(values.name, value) for value in distinct.head(MOST_VALUES)]
        rest = distinct.len() - MOST_VALUES
        words = ", ".join([*labels, *([f"{rest} more"] if rest > 0 else [])])
        return f"({words})" if distinct.len() > 1 else words

    @cached_property
    def _file_suffixes(self) -> dict[str, str]:
        """What the names of figures of one model end with: fit for a file, no two alike."""
        return unique_suffixes(self.value_labels.short.get("model", {}))


def has_values(rows: pl.DataFrame, *names: str) -> bool:
    """Whether every one of these columns is there and has a value."""
    return all(name in rows.columns and rows[name].count() for name in names)


def unique_suffixes(labels: Mapping[str, str]) -> dict[str, str]:
    """Endings for the names of files, no two alike, of names that may hold anything.

    >>> unique_suffixes({"a/b": "b", "a/B": "B", "c: d": "c: d"})
    {'a/b': '_b', 'a/B': '_B-2', 'c: d': '_c-d'}
    """
    suffixes: dict[str, str] = {}
    for model, label in labels.items():
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", label)[-LONGEST_SUFFIX:].strip("-.") or "model"
        taken = {ending.lower() for ending in suffixes.values()}
        numbered = (f"_{plain}-{number}" for number in count(2))
        suffixes[model] = next(name for name in chain([f"_{plain}"], numbered) if name.lower() not in taken)
    return suffixes


def average_repetitions(rows: pl.DataFrame, x: str, y: str, by: Sequence[str]) -> pl.DataFrame:
    """Means over the repetitions of a setting as x, y, error and the columns of `by`.

    Errors that the rows state add in squares; without them the spread over repetitions is the error.
    """
    stated = f"{y}_error"
    combined_error = (
        pl.when(pl.col(stated).null_count() == 0).then((pl.col(stated) ** 2).sum().sqrt() / pl.len())
        if stated in rows.columns
        else pl.lit(None, dtype=pl.Float64)
    )
    spread = pl.col(y).std() / pl.len().sqrt()
    means = rows.group_by(x, *by, maintain_order=True).agg(
        pl.col(y).mean().alias("_y"), pl.coalesce(combined_error, spread).alias("_error")
    )
    return means.select(pl.col(x).alias("x"), pl.col("_y").alias("y"), pl.col("_error").alias("error"), *by)


def with_series(
    view: ChartView, rows: pl.DataFrame, by: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with a column `series` that names the values of `by`, and a colour for each of its values.

    Variants and models are called by their labels alone, and variants have colours of their own.
    """
    labels = view.value_labels
    alone = len(by) == 1 and by[0] in {*labels.variants, *labels.short}
    series, fixed_colours = [], {}
    for values in rows.select(by).iter_rows() if by else ((),) * rows.height:
        if not alone:
            series.append(labels.describe(dict(zip(by, values, strict=True))))
            continue
        series.append(labels.label_of(by[0], values[0]))
        place = labels.palette_index(by[0], values[0])
        if place is not None:
            fixed_colours[series[-1]] = PALETTE[place]
    return rows.with_columns(series=pl.Series(series, dtype=pl.String)), palette(series) | fixed_colours


def rows_with_same_settings(
    rows: pl.DataFrame, others: pl.DataFrame, ignored: Sequence[str], view: ChartView
) -> pl.DataFrame:
    """The rows whose settings, except some, are among those of other rows."""
    shared = [
        name
        for name in view.settings
        if name not in ignored and has_values(rows, name) and has_values(others, name)
    ]
    if not shared:
        return rows
    return rows.join(others.select(shared).unique(), on=shared, how="semi", nulls_equal=True)


def simulation_label(simulation: ChartView, setting: str, sizes: Sequence[Any]) -> str:
    """How a legend calls what was measured at some sizes: "trained students, d = 20"."""
    title = simulation.verb.title[0].lower() + simulation.verb.title[1:]
    symbol = setting_fields(simulation.verb.settings)[setting].rule.symbol or setting.replace("_", " ")
    return f"{title}, {symbol} = {', '.join(map(str, sizes))}" if sizes else title
