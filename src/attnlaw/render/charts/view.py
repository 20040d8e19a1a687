"""Functions that draw charts get a view of a result: its rows, its tables with settings, and its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import polars as pl

from attnlaw.core.quantity import column_kinds
from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import nan_to_null, to_frame, to_schema
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.figure import Figure, unique_suffixes
from attnlaw.render.charts.style import PALETTE, palette
from attnlaw.render.describe_rows import (
    RowsByCase,
    ValueLabels,
    format_setting,
    independent_settings,
    rows_by_case,
    rows_like,
    varying_settings,
)

MOST_VALUES = 6  # values of a setting that a caption lists
NO_CASE: Mapping[str, Any] = {}
Prepare = Callable[[Result], Result] | None
# All charts of a result share a view. A view does not refer to its result, so both are freed together.
VIEWS: WeakKeyDictionary[Result, dict[Prepare, ChartView]] = WeakKeyDictionary()


class Drawing(NamedTuple):
    """A chart of some rows that is drawn on request."""

    draw: Callable[[], Any]  # returns the altair chart
    case: Mapping[str, Any] = NO_CASE  # settings that all its rows share; they become part of the title
    note: str = ""  # added to the caption


Drawings = Iterator[Drawing]


class ChartView:
    """What charts read of a result: its tables, and the rows that did not fail. NaN is null.

    The column `case` of a table refers to `rows`. `settings` names the settings in the rows, without the
    seed, and `simulation` is the view of the simulation's result, or None.
    """

    def __init__(self, result: Result) -> None:
        self.verb, self.rows, self._tables = result.verb, result.finished_rows, result.tables
        self.simulation = None if result.simulation is None else ChartView.of(result.simulation)
        self._frames: dict[str, pl.DataFrame] = {}
        known = setting_fields(self.verb.settings).items()
        # A seed only distinguishes repetitions.
        stated = [name for name, setting in known if not setting.rule.machine_only and name != "seed"]
        self.settings = [name for name in stated if name in self.rows.columns]

    @classmethod
    def of(cls, result: Result, prepare: Prepare = None) -> ChartView:
        """Return the view of a result. Its charts share it. `prepare` may change the result first."""
        views = VIEWS.setdefault(result, {})
        if prepare not in views:
            views[prepare] = cls(result if prepare is None else prepare(result))
        return views[prepare]

    @cached_property
    def value_labels(self) -> ValueLabels:
        return ValueLabels(self.verb, self.rows)

    def frame(self, name: str, *needed: str) -> pl.DataFrame:
        """Return the lines of a table, joined with the settings of their rows.

        Lines in which a `needed` value is null are left out. A column of the table has priority over a
        setting of the same name. If the result does not have the table, there are no lines.
        """
        if name not in self._frames:
            lines = self._tables.get(name)
            if lines is None:
                spec = next(spec for spec in self.verb.tables if spec.name == name)
                lines = to_frame([], {**to_schema(column_kinds(spec.columns)), "case": pl.Int64()})
            more = self.rows.select("case", *(name for name in self.settings if name not in lines.columns))
            self._frames[name] = nan_to_null(lines).join(more, on="case", how="inner", maintain_order="left")
        return self._frames[name].drop_nulls(needed) if needed else self._frames[name]

    def cases(self, rows: pl.DataFrame, apart: Sequence[str]) -> RowsByCase:
        """Yield the rows of each combination of the varying settings, except those in `apart`."""
        return rows_by_case(rows, self.other_settings(rows, apart))

    def other_settings(self, rows: pl.DataFrame, apart: Sequence[str]) -> list[str]:
        """Return the varying settings that are not determined by others, except those in `apart`."""
        names = [name for name in varying_settings(rows, self.settings) if name not in apart]
        return independent_settings(rows, names, apart)

    def same_settings(
        self, rows: pl.DataFrame, others: pl.DataFrame, ignored: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Return the rows whose settings also occur in `others`, not counting the settings in `ignored`."""
        names = [name for name in self.settings if name not in ignored]
        shared = [name for name in names if has_values(rows, name) and has_values(others, name)]
        if not shared:
            return rows
        return rows.join(others.select(shared).unique(), on=shared, how="semi", nulls_equal=True)

    def mean_lines(
        self, rows: pl.DataFrame, x: str, y: str, by: Sequence[str], *more: str
    ) -> tuple[pl.DataFrame, dict[str, str]]:
        """Average rows with equal settings. Return x, y, error and series, and the colour of each series.

        The error of an average comes from the errors of its rows, or from their spread if they have no
        errors. The columns `by` distinguish the series, and the columns `more` further points.
        """
        stated, combined_error = f"{y}_error", pl.lit(None, dtype=pl.Float64)
        if stated in rows.columns:
            added = (pl.col(stated) ** 2).sum().sqrt() / pl.len()
            combined_error = pl.when(pl.col(stated).null_count() == 0).then(added)
        spread = pl.col(y).std() / pl.len().sqrt()
        means = rows.group_by(x, *by, *more, maintain_order=True).agg(
            pl.col(y).mean().alias("_y"), pl.coalesce(combined_error, spread).alias("_error")
        )
        renamed = [pl.col(x).alias("x"), pl.col("_y").alias("y"), pl.col("_error").alias("error")]
        return self.with_series(means.select(*renamed, *by, *more), by)

    def with_series(self, rows: pl.DataFrame, by: Sequence[str]) -> tuple[pl.DataFrame, dict[str, str]]:
        """Return the rows with a column `series` that describes `by`, and the colour of each series.

        If `by` is a single column of variants or models, the series are named by the labels of these.
        Variants keep their colours.
        """
        labels = self.value_labels
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

    def size_label(self, setting: str, sizes: Sequence[Any]) -> str:
        """Return the legend entry of a simulation with these sizes: "trained students, d = 20"."""
        title = self.verb.title[0].lower() + self.verb.title[1:]
        symbol = setting_fields(self.verb.settings)[setting].rule.symbol or setting.replace("_", " ")
        return f"{title}, {symbol} = {', '.join(map(str, sizes))}" if sizes else title

    def figures(
        self, name: str, title: str, caption: str, drawings: Iterable[Drawing], on_page: bool = True
    ) -> list[Figure]:
        """Return a figure for each drawing.

        The title of a figure states the settings of the drawing, and its caption ends with the drawing's
        note. If there are several models, the name of each figure ends with its model.
        """
        figures = []
        for draw, case, note in drawings:
            description, model = self.value_labels.describe(case), case.get("model")
            figure = Figure(
                name if model is None else f"{name}{self._file_suffixes[model]}",
                f"{title}: {description}" if description else title,
                f"{caption} {note}".strip(),
                draw,
                on_page,
                None if model is None else self.value_labels.label_of("model", model),
                partial(self._describe_settings, case),
                ", ".join(sorted(self.rows[VERSION_COLUMN].drop_nulls().unique())),
            )
            figures.append(figure)
        return figures

    def _describe_settings(self, case: Mapping[str, Any]) -> str:
        known = {name: value for name, value in case.items() if name in self.rows.columns}
        rows = rows_like(self.rows, known) if known else self.rows
        words = self._setting_texts(rows)
        if "seed" in rows.columns and rows["seed"].n_unique() > 1:
            words.append(f"{rows['seed'].n_unique()} seeds")
        if self.simulation is not None:
            words += self.simulation._setting_texts(self.simulation.rows, self.settings)
        return ", ".join(words)

    def _setting_texts(self, rows: pl.DataFrame, left_out: Sequence[str] = ()) -> list[str]:
        # Each repetition of a study trains this many students. Repetitions differ only in their seed.
        stated = [name for name in self.settings if name in rows.columns]
        alike = rows.group_by(stated).len()["len"] if stated and "seed" in rows.columns else pl.Series([1])
        several = max(alike.to_list(), default=1)
        repeated = {"seeds": f" in each of {several} repetitions"} if several > 1 else {}
        return [
            f"{self.verb.label(name)} {self._describe_values(rows[name])}{repeated.get(name, '')}"
            for name in self.settings
            if name not in left_out and rows[name].count() and not rows[name].dtype.is_nested()
        ]

    def _describe_values(self, values: pl.Series) -> str:
        """Return the values of a setting as text: all of a few, or the first and the last of many."""
        distinct = values.drop_nulls().unique(maintain_order=True)
        if distinct.len() > MOST_VALUES and distinct.dtype.is_numeric():
            ends = f"{format_setting(distinct.min())} to {format_setting(distinct.max())}"
            return f"{ends} ({distinct.len()} values)"
        labels = [self.value_labels.label_of(values.name, value) for value in distinct.head(MOST_VALUES)]
        if distinct.len() > MOST_VALUES:
            labels.append(f"{distinct.len() - MOST_VALUES} more")
        return f"({', '.join(labels)})" if distinct.len() > 1 else ", ".join(labels)

    @cached_property
    def _file_suffixes(self) -> dict[str, str]:
        return unique_suffixes(self.value_labels.short.get("model", {}))


def chart(
    title: str, caption: str = "", *, name: str | None = None, on_page: bool = True, prepare: Prepare = None
) -> Callable[[Callable[[ChartView], Drawings]], Callable[[Result], list[Figure]]]:
    """Decorate a function that yields drawings for a view. Given a result, it then returns figures.

    Args:
        title: the title of the figures, to which attnlaw adds the settings of a drawing.
        caption: what the chart shows and how to read it, to which attnlaw adds the note of a drawing.
        name: the name of the figures, by default the name of the function.
        on_page: False if the page has an interactive version. Such a figure is only for papers.
        prepare: a function that changes the result before the chart reads it.
    """

    def decorate(draw: Callable[[ChartView], Drawings]) -> Callable[[Result], list[Figure]]:
        @wraps(draw)
        def figures(result: Result) -> list[Figure]:
            view = ChartView.of(result, prepare)
            return view.figures(name or draw.__name__, title, caption, draw(view), on_page)

        return figures

    return decorate


def has_values(rows: pl.DataFrame, *names: str) -> bool:
    """Return whether all these columns exist and each has a value."""
    return all(name in rows.columns and rows[name].count() for name in names)
