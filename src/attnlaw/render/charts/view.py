"""Charts as functions of a view on a result: finished rows, tables with their settings, names of lines."""

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
    ValueLabels,
    format_setting,
    independent_settings,
    rows_by_case,
    varying_settings,
)

MOST_VALUES = 6  # of a setting, in words
NO_CASE: Mapping[str, Any] = {}
Prepare = Callable[[Result], Result]
# Charts of a result share a view. A view does not hold its result, so that both are forgotten together.
VIEWS: WeakKeyDictionary[Result, dict[Prepare | None, ChartView]] = WeakKeyDictionary()


class Drawing(NamedTuple):
    """A chart of some rows: how it is drawn, the settings that these rows share, a note for the caption."""

    draw: Callable[[], Any]
    case: Mapping[str, Any] = NO_CASE
    note: str = ""


Drawings = Iterator[Drawing]


class ChartView:
    """What charts read of a result: rows that did not fail, and tables; what is no number is null."""

    def __init__(self, result: Result) -> None:
        # `case` is the number by which tables know the rows.
        self.verb, self.rows, self._tables = result.verb, result.finished_rows, result.tables
        self.simulation = None if result.simulation is None else ChartView.of(result.simulation)
        self._frames: dict[str, pl.DataFrame] = {}
        known = setting_fields(self.verb.settings).items()
        # The settings that rows state; a seed tells repetitions apart and nothing else.
        stated = [name for name, setting in known if not setting.rule.machine_only and name != "seed"]
        self.settings = [name for name in stated if name in self.rows.columns]

    @classmethod
    def of(cls, result: Result, prepare: Prepare | None = None) -> ChartView:
        """The view of a result, which `prepare` may change first, made once for all its charts."""
        views = VIEWS.setdefault(result, {})
        if prepare not in views:
            views[prepare] = cls(result if prepare is None else prepare(result))
        return views[prepare]

    @cached_property
    def value_labels(self) -> ValueLabels:
        return ValueLabels(self.verb, self.rows)

    def frame(self, name: str, *needed: str) -> pl.DataFrame:
        """The lines of a table that have all `needed` values, each with the settings of its row.

        A setting that the table has, too, is that of the table. A result without the table has no lines.
        """
        if name not in self._frames:
            lines = self._tables.get(name)
            if lines is None:
                spec = next(spec for spec in self.verb.tables if spec.name == name)
                lines = to_frame([], {**to_schema(column_kinds(spec.columns)), "case": pl.Int64()})
            more = self.rows.select("case", *(name for name in self.settings if name not in lines.columns))
            self._frames[name] = nan_to_null(lines).join(more, on="case", how="inner", maintain_order="left")
        return self._frames[name].drop_nulls(needed) if needed else self._frames[name]

    def cases(
        self, rows: pl.DataFrame, apart: Sequence[str]
    ) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
        """The rows of each case: one value of every setting that varies, except those in `apart`."""
        return rows_by_case(rows, self.other_settings(rows, apart))

    def other_settings(self, rows: pl.DataFrame, apart: Sequence[str]) -> list[str]:
        """The settings that vary in rows beside some, and do not follow from those and each other."""
        names = [name for name in varying_settings(rows, self.settings) if name not in apart]
        return independent_settings(rows, names, apart)

    def same_settings(
        self, rows: pl.DataFrame, others: pl.DataFrame, ignored: Sequence[str] = ()
    ) -> pl.DataFrame:
        """The rows whose settings, except some, are among those of other rows."""
        names = [name for name in self.settings if name not in ignored]
        shared = [name for name in names if has_values(rows, name) and has_values(others, name)]
        if not shared:
            return rows
        return rows.join(others.select(shared).unique(), on=shared, how="semi", nulls_equal=True)

    def mean_lines(
        self, rows: pl.DataFrame, x: str, y: str, by: Sequence[str], *more: str
    ) -> tuple[pl.DataFrame, dict[str, str]]:
        """Means over repetitions as x, y, error and series, which names the values of `by`; and colours.

        Errors that the rows state add in squares; without them the spread over repetitions is the error.
        `more` columns tell points apart, too.
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
        """The rows with a column `series` that names the values of `by`, and a colour for each of its values.

        Variants and models are called by their labels alone, and variants have colours of their own.
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
        """How a legend calls what a simulation measured at some sizes: "trained students, d = 20"."""
        title = self.verb.title[0].lower() + self.verb.title[1:]
        symbol = setting_fields(self.verb.settings)[setting].rule.symbol or setting.replace("_", " ")
        return f"{title}, {symbol} = {', '.join(map(str, sizes))}" if sizes else title

    def figures(
        self, name: str, title: str, caption: str, drawings: Iterable[Drawing], on_page: bool = True
    ) -> list[Figure]:
        """A figure of each drawing: its title states the case, its caption ends with the note.

        The figure of one of several models is named after it.
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
            if name not in left_out and rows[name].count() and not rows[name].dtype.is_nested()
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


def chart(
    title: str,
    caption: str = "",
    *,
    name: str | None = None,
    on_page: bool = True,
    prepare: Prepare | None = None,
) -> Callable[[Callable[[ChartView], Drawings]], Callable[[Result], list[Figure]]]:
    """Make a function that draws a view into one that returns the figures of a result, none if it draws none.

    Args:
        title: of the figures; the settings of a drawing follow it.
        caption: what is drawn and how to read it; the note of a drawing follows it.
        name: of the figures, if it is not that of the function.
        on_page: False if the page shows the same and lets a reader choose: the figure is for papers.
        prepare: changes the result before it is viewed.
    """

    def decorate(draw: Callable[[ChartView], Drawings]) -> Callable[[Result], list[Figure]]:
        @wraps(draw)
        def figures(result: Result) -> list[Figure]:
            view = ChartView.of(result, prepare)
            return view.figures(name or draw.__name__, title, caption, draw(view), on_page)

        return figures

    return decorate


def has_values(rows: pl.DataFrame, *names: str) -> bool:
    """Whether every one of these columns is there and has a value."""
    return all(name in rows.columns and rows[name].count() for name in names)
