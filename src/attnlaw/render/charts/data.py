"""What charts are drawn from: finished rows of a verb, the tables beside them, and how lines are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count
from typing import Any

import polars as pl

from attnlaw.core.chart_specs import Chart
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import setting_fields
from attnlaw.core.verb import Verb
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.figure import Figure, palette
from attnlaw.render.charts.labels import ValueLabels, format_setting, independent_settings, varying_settings
from attnlaw.render.charts.style import PALETTE, without_validation

MOST_VALUES = 6  # of a setting, in words
LONGEST_SUFFIX = 80  # letters of a model's name in the name of a file


@dataclass(frozen=True, eq=False)
class ChartData:
    """What charts are drawn from: finished rows of a verb, the tables beside them, the verb beside it.

    `key` is the column by which rows and tables are told to belong together.
    """

    verb: Verb[Any, Any]
    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    key: str
    simulation_data: ChartData | None = None

    @cached_property
    def value_labels(self) -> ValueLabels:
        return ValueLabels(self.verb, self.rows)

    @cached_property
    def settings(self) -> list[str]:
        """The settings that rows state; a seed tells repetitions apart and nothing else."""
        known = setting_fields(self.verb.settings).items()
        return [name for name, setting in known if not setting.rule.machine_only and name != "seed"]

    def quantity(self, name: str, table: str | None = None) -> Quantity | None:
        quantities = next(
            (table_spec.columns for table_spec in self.verb.tables if table_spec.name == table),
            self.verb.quantities,
        )
        return next((quantity for quantity in quantities if quantity.name == name), None)

    def frame(self, table: str | None) -> pl.DataFrame:
        """The rows; or those of a table, each with the settings of its row (its own columns come first)."""
        if table is None:
            return self.rows
        table_rows = self.tables.get(table)
        if table_rows is None:
            return pl.DataFrame()
        missing = [
            name for name in self.settings if name in self.rows.columns and name not in table_rows.columns
        ]
        return table_rows.join(
            self.rows.select(self.key, *missing), on=self.key, how="inner", maintain_order="left"
        )

    def has_values(self, rows: pl.DataFrame, *names: str) -> bool:
        return bool(rows.height) and all(name in rows.columns and rows[name].count() for name in names)

    def other_settings(self, rows: pl.DataFrame, apart: Sequence[str]) -> list[str]:
        """The settings that vary in rows beside some, and do not follow from those and each other."""
        return independent_settings(
            rows, [name for name in varying_settings(rows, self.settings) if name not in apart], apart
        )

    def title(self, chart: Chart, case: Mapping[str, Any]) -> str:
        description = self.value_labels.describe(case)
        return f"{chart.title}: {description}" if description else chart.title

    def figure(
        self, chart: Chart, case: Mapping[str, Any], draw: Callable[[], Any], more: str = ""
    ) -> Figure:
        """The figure of one case: `more` is what its caption says of this one."""
        caption = " ".join(filter(None, [chart.caption, more]))
        model = case.get("model")
        name = f"{chart.name}{self.file_suffixes[model]}" if model is not None else chart.name
        model_label = None if model is None else self.value_labels.label_of("model", model)
        title, settings = self.title(chart, case), partial(self.describe_settings, case)
        return Figure(
            name, title, caption, without_validation(draw), chart.on_page, model_label, settings, self.version
        )

    @cached_property
    def version(self) -> str:
        """The versions that computed the rows, where they tell."""
        known = self.rows[VERSION_COLUMN].drop_nulls().unique() if VERSION_COLUMN in self.rows.columns else ()
        return ", ".join(sorted(known))

    def describe_settings(self, case: Mapping[str, Any]) -> str:
        """The settings of a case's rows, those of the verb beside it too, with the values that they have."""
        known = [name for name in case if name in self.rows.columns]
        alike = [pl.col(name).eq_missing(pl.lit(case[name])) | pl.col(name).is_null() for name in known]
        rows = self.rows.filter(pl.all_horizontal(alike)) if alike else self.rows
        words = [
            f"{self.verb.label(name)} {self._describe_values(rows, name)}"
            for name in self._stated_settings(rows)
        ]
        if "seed" in rows.columns and rows["seed"].n_unique() > 1:
            words.append(f"{rows['seed'].n_unique()} seeds")
        if self.simulation_data is not None and self.simulation_data.rows.height:
            more = [
                name
                for name in self.simulation_data._stated_settings(self.simulation_data.rows)
                if name not in self.settings
            ]
            words += [
                f"{self.simulation_data.verb.label(name)} {self.simulation_data._describe_values(None, name)}"
                for name in more
            ]
        return ", ".join(words)

    def _stated_settings(self, rows: pl.DataFrame) -> list[str]:
        plain = [name for name in self.settings if name in rows.columns and not rows[name].dtype.is_nested()]
        return [name for name in plain if rows[name].count()]

    def _describe_values(self, rows: pl.DataFrame | None, name: str) -> str:
        """The values of a setting in words: all of them where they are few, else the first and the last.

        A list in parentheses, so that commas around it tell settings apart.
        """
        column = (self.rows if rows is None else rows)[name].drop_nulls().unique(maintain_order=True)
        if column.len() > MOST_VALUES and column.dtype.is_numeric():
            return f"{format_setting(column.min())} to {format_setting(column.max())} ({column.len()} values)"
        labels = [self.value_labels.label_of(name, value) for value in column.head(MOST_VALUES)]
        rest = column.len() - MOST_VALUES
        words = ", ".join([*labels, *([f"{rest} more"] if rest > 0 else [])])
        return f"({words})" if column.len() > 1 else words

    @cached_property
    def file_suffixes(self) -> dict[str, str]:
        """What the names of figures of one model end with: fit for a file, no two alike."""
        return unique_suffixes(self.value_labels.short.get("model", {}))


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


def average_repetitions(
    rows: pl.DataFrame, x: str, y: str, by: Sequence[str], quantity: Quantity | None
) -> pl.DataFrame:
    """Means over the repetitions of a setting as x, y, error and the columns of `by`.

    Errors that the rows tell add in squares; without them the spread over repetitions tells it.
    """
    known = f"{y}_error" if quantity is not None and quantity.error else None
    combined_error = (
        pl.when(pl.col(known).null_count() == 0).then((pl.col(known) ** 2).sum().sqrt() / pl.len())
        if known is not None and known in rows.columns
        else pl.lit(None, dtype=pl.Float64)
    )
    spread = pl.col(y).std() / pl.len().sqrt()
    means = rows.group_by(x, *by, maintain_order=True).agg(
        pl.col(y).mean().alias("_y"), combined_error.alias("_own"), spread.alias("_spread")
    )
    error = pl.coalesce("_own", "_spread")
    return means.select(pl.col(x).alias("x"), pl.col("_y").alias("y"), error.alias("error"), *by)


def with_series(
    source: ChartData, rows: pl.DataFrame, by: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with a column `series` that tells the values of `by`, and a colour for each of its values.

    Variants and models are called by their labels alone, and variants have colours of their own.
    """
    alone = len(by) == 1 and by[0] in {*source.value_labels.variants, *source.value_labels.short}
    labels, fixed_colours = [], {}
    for values in rows.select(by).iter_rows() if by else ((),) * rows.height:
        label = (
            source.value_labels.label_of(by[0], values[0])
            if alone
            else source.value_labels.describe(dict(zip(by, values, strict=True)))
        )
        labels.append(label)
        place = source.value_labels.palette_index(by[0], values[0]) if alone else None
        if place is not None:
            fixed_colours[label] = PALETTE[place]
    return rows.with_columns(series=pl.Series(labels, dtype=pl.String)), palette(labels) | fixed_colours


def rows_with_same_settings(
    rows: pl.DataFrame, others: pl.DataFrame, ignored: Sequence[str], source: ChartData
) -> pl.DataFrame:
    """The rows whose settings, but for some, are among those of other rows."""
    common = [
        name for name in source.settings if source.has_values(rows, name) and source.has_values(others, name)
    ]
    shared = [name for name in common if name not in ignored]
    if not shared:
        return rows
    return rows.join(others.select(shared).unique(), on=shared, how="semi", nulls_equal=True)


def simulation_label(beside: ChartData, setting: str, sizes: Sequence[Any]) -> str:
    """How a legend calls what was measured at some sizes: "trained students, d = 20"."""
    title = beside.verb.title[0].lower() + beside.verb.title[1:]
    symbol = setting_fields(beside.verb.settings)[setting].rule.symbol or setting.replace("_", " ")
    return f"{title}, {symbol} = {', '.join(map(str, sizes))}" if sizes else title


def count_distinct(values: pl.Series) -> int:
    """How many different values there are, nulls aside."""
    return values.drop_nulls().n_unique()
