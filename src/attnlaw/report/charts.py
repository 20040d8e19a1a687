"""Declared charts: a record of `attnlaw.base.charts` and rows become figures, or none where rows are empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, count, product
from typing import Any

import numpy as np
import polars as pl

from attnlaw.base.charts import Bars, Cells, Chart, Curves, Density, Dots, Own
from attnlaw.base.declare import Quantity, Verb, named
from attnlaw.base.settings import declared
from attnlaw.report import marks
from attnlaw.report.labels import MOST_CASES, Names, cases, free, text, varied
from attnlaw.report.marks import Figure, Shades, palette
from attnlaw.report.style import PALETTE

DASHED = "The dashed line is the limit of infinite width."
POINTS = (
    "Points: measured, with one standard error; where they lie on the lines, the theory holds at that size."
)
LONGEST = 80  # letters of a model's name in the name of a file
# More points of a line than this are not marked by dots.
MOST_DOTS = 40


@dataclass(frozen=True, eq=False)
class Source:
    """What charts are drawn from: finished rows of a verb, the tables beside them, the verb beside it.

    `key` is the column by which rows and tables are told to belong together.
    """

    verb: Verb[Any, Any]
    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    key: str
    beside: Source | None = None

    @cached_property
    def names(self) -> Names:
        return Names(self.verb, self.rows)

    @cached_property
    def settings(self) -> list[str]:
        """The settings that rows state; a seed tells repetitions apart and nothing else."""
        known = declared(self.verb.settings).items()
        return [name for name, one in known if not one.rule.local and name != "seed"]

    def quantity(self, name: str, table: str | None = None) -> Quantity | None:
        own = next((one.columns for one in self.verb.tables if one.name == table), self.verb.quantities)
        return next((one for one in own if one.name == name), None)

    def frame(self, table: str | None) -> pl.DataFrame:
        """The rows; or those of a table, each with the settings of its row (its own columns come first)."""
        if table is None:
            return self.rows
        own = self.tables.get(table)
        if own is None:
            return pl.DataFrame()
        told = [name for name in self.settings if name in self.rows.columns and name not in own.columns]
        return own.join(self.rows.select(self.key, *told), on=self.key, how="inner", maintain_order="left")

    def has(self, rows: pl.DataFrame, *names: str) -> bool:
        return bool(rows.height) and all(name in rows.columns and rows[name].count() for name in names)

    def title(self, chart: Chart, case: Mapping[str, Any]) -> str:
        told = self.names.told(case)
        return f"{chart.title}: {told}" if told else chart.title

    def figure(
        self, chart: Chart, case: Mapping[str, Any], draw: Callable[[], Any], more: str = ""
    ) -> Figure:
        """The figure of one case: `more` is what its caption says of this one."""
        caption = " ".join(filter(None, [chart.caption, more]))
        model = case.get("model")
        name = f"{chart.name}{self.endings[model]}" if model is not None else chart.name
        told = None if model is None else self.names.of("model", model)
        return Figure(name, self.title(chart, case), caption, draw, chart.on_page, told)

    @cached_property
    def endings(self) -> dict[str, str]:
        """What the names of figures of one model end with: fit for a file, no two alike."""
        return endings(self.names.short.get("model", {}))


def figures_of(sources: Iterable[Source]) -> list[Figure]:
    """The figures of several sources, no two of one name."""
    return _numbered([figure for source in sources for figure in figures(source)])


def figures(source: Source) -> list[Figure]:
    """The figures that the verb declares, as far as the rows allow; without any, its first quantity."""
    drawn: list[Figure] = []
    for chart in source.verb.charts:
        if chart.unless not in {figure.name for figure in drawn}:
            drawn += DRAW[type(chart)](chart, source)
    if not drawn:
        drawn = list(_first_quantity(source))
    return _numbered(drawn)


def endings(labels: Mapping[str, str]) -> dict[str, str]:
    """Endings for the names of files, no two alike, of names that may hold anything.

    >>> endings({"a/b": "b", "a/B": "B", "c: d": "c: d"})
    {'a/b': '_b', 'a/B': '_B-2', 'c: d': '_c-d'}
    """
    found: dict[str, str] = {}
    for model, label in labels.items():
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", label)[-LONGEST:].strip("-.") or "model"
        taken = {ending.lower() for ending in found.values()}
        numbered = (f"_{plain}-{number}" for number in count(2))
        found[model] = next(name for name in chain([f"_{plain}"], numbered) if name.lower() not in taken)
    return found


def _numbered(figures: list[Figure]) -> list[Figure]:
    """The figures, with numbers behind a name that several have."""
    many = Counter(figure.name for figure in figures)
    places: Counter[str] = Counter()
    named = []
    for figure in figures:
        places[figure.name] += 1
        ending = f"_{places[figure.name]}" if many[figure.name] > 1 else ""
        named.append(replace(figure, name=f"{figure.name}{ending}"))
    return named


def _first_quantity(source: Source) -> Iterator[Figure]:
    """Curves of the first quantity that was found over the setting that varied most."""
    rows = source.rows
    numbers = ("float", "int", "small")
    found = (one for one in source.verb.quantities if one.kind in numbers and source.has(rows, one.name))
    quantity = next(found, None)
    names = varied(rows, source.settings)
    if quantity is None or not names:
        return
    x = max(names, key=lambda name: (rows[name].dtype.is_numeric(), _count(rows[name])))
    title = f"{quantity.label[0].upper()}{quantity.label[1:]} against {x.replace('_', ' ')}"
    caption = f"{quantity.meaning}." if quantity.meaning else ""
    yield from _curves(Curves(quantity.name, title, x=x, y=quantity.name, caption=caption), source)


def _count(values: pl.Series) -> int:
    """How many different values there are, nulls aside."""
    return values.drop_nulls().n_unique()


def _curves(chart: Curves, source: Source) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    if not source.has(rows, chart.x, chart.y, *([chart.needs] if chart.needs else [])):
        return
    told = rows.drop_nulls([chart.x, chart.y, *([chart.needs] if chart.needs else [])])
    if told[chart.x].dtype.is_float():
        told = told.filter(pl.col(chart.x).is_finite())
    if chart.log:
        told = told.filter(pl.col(chart.x) > 0, pl.col(chart.y) > 0)
    if _count(told[chart.x]) < 2:
        return
    by = [chart.by] if chart.by is not None and told[chart.by].n_unique() > 1 else []
    names = [name for name in varied(told, source.settings) if name not in (chart.x, chart.by)]
    others = free(told, names, [chart.x, *by])
    points = _points(chart, source)
    if points is None and not by and told.select(others).n_unique() <= MOST_CASES:
        by, others = others, []
    for case, own in cases(told, others):
        if _count(own[chart.x]) < 2:
            continue
        measured = None if points is None else _same(points, own, [chart.x, *by], source)
        yield _curve(chart, source, case, own, by, measured)


def _curve(
    chart: Curves,
    source: Source,
    case: Mapping[str, Any],
    rows: pl.DataFrame,
    by: list[str],
    measured: pl.DataFrame | None,
) -> Figure:
    quantity = source.quantity(chart.y, chart.table)
    lines, colours = called(source, averaged(rows, chart.x, chart.y, by, quantity), by)
    lines = lines.sort("x", maintain_order=True)
    spread = None if measured is None or not measured.height else _measured(chart, source, measured, by)
    longest = lines.group_by("series").len()["len"].to_list()
    thresholds = _thresholds(chart, source, rows)
    notes = [
        "" if spread is None else POINTS,
        "Dotted lines are thresholds." if thresholds.height else "",
        "Bars are one standard error." if spread is None and lines["error"].count() else "",
    ]
    draw = partial(
        marks.curves,
        lines,
        source.verb.label(chart.x),
        source.verb.label(chart.y),
        colours,
        points=spread,
        thresholds=thresholds,
        log=chart.log,
        slope=chart.slope,
        from_zero=chart.points is not None,
        dotted=max(longest) <= MOST_DOTS,
    )
    return source.figure(chart, case, draw, " ".join(filter(None, notes)))


def averaged(
    rows: pl.DataFrame, x: str, y: str, by: Sequence[str], quantity: Quantity | None
) -> pl.DataFrame:
    """Means over the repetitions of a setting as x, y, error and the columns of `by`.

    Errors that the rows tell add in squares; without them the spread over repetitions tells it.
    """
    known = f"{y}_error" if quantity is not None and quantity.error else None
    own = (
        pl.when(pl.col(known).null_count() == 0).then((pl.col(known) ** 2).sum().sqrt() / pl.len())
        if known is not None and known in rows.columns
        else pl.lit(None, dtype=pl.Float64)
    )
    spread = pl.col(y).std() / pl.len().sqrt()
    found = rows.group_by(x, *by, maintain_order=True).agg(
        pl.col(y).mean().alias("_y"), own.alias("_own"), spread.alias("_spread")
    )
    error = pl.coalesce("_own", "_spread")
    return found.select(pl.col(x).alias("x"), pl.col("_y").alias("y"), error.alias("error"), *by)


def called(source: Source, rows: pl.DataFrame, by: Sequence[str]) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with a column `series` that tells the values of `by`, and a colour for each of its values.

    Variants and models are called by their labels alone, and variants have colours of their own.
    """
    alone = len(by) == 1 and by[0] in {*source.names.variants, *source.names.short}
    labels, own = [], {}
    for values in rows.select(by).iter_rows() if by else ((),) * rows.height:
        label = (
            source.names.of(by[0], values[0])
            if alone
            else source.names.told(dict(zip(by, values, strict=True)))
        )
        labels.append(label)
        place = source.names.colour(by[0], values[0]) if alone else None
        if place is not None:
            own[label] = PALETTE[place]
    return rows.with_columns(series=pl.Series(labels, dtype=pl.String)), palette(labels) | own


def _thresholds(chart: Curves, source: Source, rows: pl.DataFrame) -> pl.DataFrame:
    """x and name of every threshold that the rows tell; those that differ by line say whose they are."""
    found: dict[tuple[float, str], None] = {}
    for column in chart.thresholds:
        if not source.has(rows, column):
            continue
        by = [] if chart.by is None else [chart.by]
        places = rows.select(column, *by).unique(maintain_order=True)
        one = places[column].n_unique() == 1
        for row in places.drop_nulls(column).iter_rows(named=True):
            whose = "" if one or not by else f" ({source.names.of(by[0], row[by[0]])})"
            found[row[column], f"{source.verb.label(column)}{whose}"] = None
    schema = {"x": pl.Float64, "name": pl.String}
    return pl.DataFrame(list(found), schema=schema, orient="row")


def _points(chart: Curves, source: Source) -> pl.DataFrame | None:
    """The rows of the verb beside it that have what the chart shows."""
    if chart.points is None or source.beside is None:
        return None
    rows = source.beside.rows
    needed = [chart.x, chart.y, chart.points]
    return rows.drop_nulls(needed) if source.has(rows, *needed) else None


def _same(rows: pl.DataFrame, others: pl.DataFrame, but: Sequence[str], source: Source) -> pl.DataFrame:
    """The rows whose settings, but for some, are among those of other rows."""
    shared = [
        name
        for name in source.settings
        if name not in but and name in rows.columns and name in others.columns
    ]
    if not shared:
        return rows
    return rows.join(others.select(shared).unique(), on=shared, how="semi", nulls_equal=True)


def _measured(chart: Curves, source: Source, rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Means of the verb beside it by size, with their errors, and the name of each size."""
    assert source.beside is not None and chart.points is not None
    quantity = source.beside.quantity(chart.y)
    told, _ = called(source, averaged(rows, chart.x, chart.y, [*by, chart.points], quantity), by)
    sized = told.sort(chart.points, maintain_order=True)
    ending = " (± s.e.)" if sized["error"].count() else ""
    sizes = [f"{measured_name(source.beside, chart.points, [size])}{ending}" for size in sized[chart.points]]
    return sized.with_columns(size=pl.Series(sizes, dtype=pl.String))


def measured_name(beside: Source, setting: str, sizes: Sequence[Any]) -> str:
    """How a legend calls what was measured at some sizes: "trained students, d = 20"."""
    title = beside.verb.title[0].lower() + beside.verb.title[1:]
    symbol = declared(beside.verb.settings)[setting].rule.symbol or setting.replace("_", " ")
    return f"{title}, {symbol} = {', '.join(map(str, sizes))}" if sizes else title


def _cells(chart: Cells, source: Source) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    xs, ys = _several(chart.x), _several(chart.y)
    if not source.has(rows, *chart.colour, ys[0]) or not any(source.has(rows, name) for name in xs):
        return
    told = rows.drop_nulls([*chart.colour, ys[0], *(xs if len(xs) == 1 else ())])
    numbers = told[xs[0]].dtype.is_float()
    names = [name for name in varied(told, source.settings) if name not in (*xs, *ys)]
    for case, own in cases(told, free(told, names, [*xs, *ys])):
        if not numbers:
            yield source.figure(chart, case, partial(_panels, chart, source, own))
        elif _even(own[xs[0]]) and _even(own[ys[0]]):
            yield source.figure(chart, case, partial(_field, chart, source, own))


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _even(values: pl.Series) -> bool:
    """Whether the values are three or more of equal distance, which cells of a diagram take for granted."""
    steps = np.diff(values.unique().sort().to_numpy())
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def _field(chart: Cells, source: Source, rows: pl.DataFrame) -> Any:
    x, y, (colour, *_) = str(chart.x), str(chart.y), chart.colour
    told = [
        {"x": row[x], "y": row[column], "name": source.verb.label(column)}
        for column in chart.lines
        if source.has(rows, column)
        for row in rows.unique(x, keep="first", maintain_order=True).sort(x).iter_rows(named=True)
        if row[column] is not None
    ]
    lines = pl.DataFrame(told, schema={"x": pl.Float64, "y": pl.Float64, "name": pl.String})
    placed = rows.select(x=pl.col(x), y=pl.col(y), colour=pl.col(colour))
    label = source.verb.label
    return marks.field(placed, lines, label(x), label(y), label(colour), Shades(chart.scale, chart.domain))


def _panels(chart: Cells, source: Source, rows: pl.DataFrame) -> Any:
    """Panels of cells side by side: those of several columns share a scale, those of several kinds do not."""
    import altair as alt

    several, variants = len(chart.colour) > 1, source.names.variants.get(chart.colour[0])
    domain = (0.0, max(rows[name].max() for name in chart.colour)) if several else chart.domain  # type: ignore[type-var]
    shades = Shades(chart.scale, domain, None if variants is None else variant_colours(variants))  # type: ignore[arg-type]
    if chart.scale == "log":
        rows = rows.filter(pl.col(chart.colour[0]) > 0)
    groups = rows.group_by(chart.panel, maintain_order=True) if chart.panel else [(("",), rows)]
    panels: list[Any] = []
    for ((value,), own), column in product(groups, chart.colour):
        told = own.select(
            x=_joined(own, chart.x),
            y=_joined(own, chart.y),
            colour=pl.col(column),
            told=_description(chart, source, own),
        )
        xs = [name for name in _several(chart.x) if own[name].count()]
        most = max(told["x"].n_unique(), told["y"].n_unique())
        panel = marks.cells(
            told,
            source.verb.label(xs[0]) if xs else None,
            source.verb.label(_several(chart.y)[0]),
            shades,
            title=source.verb.label(column) if several else source.names.of(chart.panel or "", value),
            side=max(1, min(300 // most, 26)) if chart.tells else marks.CELL,
            turned=len(xs) > 1,
            bare=bool(panels),
        )
        panels.append(panel)
    if several:
        return alt.hconcat(*panels, spacing=24, bounds="flush")
    drawn = alt.hconcat(*panels, spacing=12)
    return drawn if variants else drawn.resolve_scale(color="independent")


def variant_colours(variants: Mapping[str, Any]) -> dict[str, str]:
    """The colour of every variant by its name."""
    chosen = palette(variants)
    places = {name: getattr(one, "colour", None) for name, one in variants.items()}
    return {name: chosen[name] if at is None else PALETTE[at] for name, at in places.items()}


def _joined(rows: pl.DataFrame, names: str | tuple[str, ...]) -> pl.Expr:
    """Whichever of the columns are there, as one label."""
    told = [name for name in _several(names) if rows[name].count()]
    if len(told) == 1:
        return pl.col(told[0])
    return pl.concat_str(told, separator=" · ") if told else pl.lit(None, dtype=pl.String)


def _description(chart: Cells, source: Source, rows: pl.DataFrame) -> pl.Series:
    """What a cell tells: the named columns with their values."""
    labels = {name: source.verb.label(name) for name in chart.tells}
    lines = [
        "; ".join(f"{labels[name]} {brief(row[name])}" for name in labels if row[name] is not None)
        for row in rows.select(chart.tells).iter_rows(named=True)
    ]
    return pl.Series("told", lines or [None] * rows.height, dtype=pl.String)


def brief(value: Any) -> str:
    """A value with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else text(value)


def _bars(chart: Bars, source: Source) -> Iterator[Figure]:
    import altair as alt

    rows = source.frame(chart.table)
    parts = [name for name in chart.parts if source.has(rows, name)]
    if not parts or not source.has(rows, chart.x):
        return
    labels = {name: source.verb.label(name) for name in parts}
    colours = palette(labels.values())
    long = rows.unpivot(parts, index=[chart.x, *([chart.panel] if chart.panel else [])], variable_name="part")
    told = long.drop_nulls("value").with_columns(
        x=pl.col(chart.x),
        place=pl.col("part").replace_strict({name: i for i, name in enumerate(parts)}, return_dtype=pl.Int64),
        part=pl.col("part").replace_strict(labels),
    )
    several = chart.panel is not None and told[chart.panel].n_unique() > 1
    groups = told.group_by(chart.panel, maintain_order=True) if several else [(("",), told)]

    def draw() -> Any:
        panels = [
            marks.bars(
                own.select("x", "part", "place", "value"),
                source.verb.label(chart.x),
                "share",
                colours,
                source.names.of(chart.panel or "", value) if several else "",
            )
            for (value,), own in groups
        ]
        return panels[0] if len(panels) == 1 else alt.vconcat(*panels)

    yield source.figure(chart, {}, draw)


def _dots(chart: Dots, source: Source) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    values = [name for name in chart.values if source.has(rows, name)]
    if not values or not source.has(rows, chart.by):
        return
    long = rows.unpivot(values, index=chart.by, variable_name="line").drop_nulls("value")
    told, colours = called(source, long, [chart.by])
    labels = {name: source.verb.label(name) for name in values}
    placed = told.select("value", "series", line=pl.col("line").replace_strict(labels))
    yield source.figure(chart, {}, partial(marks.dots, placed, chart.axis, colours))


def _density(chart: Density, source: Source) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    if not source.has(rows, chart.x, chart.y):
        return
    told = rows.drop_nulls([chart.x, chart.y])
    apart = [name for name in (chart.by, chart.panel) if name is not None]
    names = [name for name in varied(told, source.settings) if name not in apart]
    for case, own in cases(told, free(told, names, apart) if apart else names):
        yield from _laws(chart, source, case, own) if chart.by else _spectrum(chart, source, case, own)


def _laws(chart: Density, source: Source, case: Mapping[str, Any], rows: pl.DataFrame) -> Iterator[Figure]:
    """Lines for every value of a setting, a panel for every value of another: the first repetition of each."""
    import altair as alt

    assert chart.by is not None
    by, panel = chart.by, chart.panel
    ratio = chart.ratio if chart.ratio is not None and source.has(rows, chart.ratio) else None
    first = rows.filter(
        pl.col(source.key) == pl.col(source.key).first().over(by, *([panel] if panel else []))
    )
    values = sorted(first[by].unique().to_list())
    names = {value: text(value) for value in values}
    colours = {
        name: "#000000" if name == marks.INFINITE else PALETTE[i % (len(PALETTE) - 1)]
        for i, name in enumerate(names.values())
    }
    placed = first.select(
        *([panel] if panel else []),
        x=pl.col(chart.x),
        density=pl.col(chart.y),
        ratio=pl.col(ratio) if ratio else None,
        series=pl.col(by).replace_strict(names, return_dtype=pl.String),
    )
    groups = sorted(placed.group_by(panel), key=lambda pair: pair[0]) if panel else [(("",), placed)]

    def draw() -> Any:
        panels = [
            marks.densities(
                own.select("x", "density", "ratio", "series"),
                source.verb.label(chart.x),
                colours,
                source.verb.label(by),
                source.verb.label(ratio) if ratio else None,
                f"{panel.replace('_', ' ')} {text(value)}" if panel else "",
            )
            for (value,), own in groups
        ]
        return alt.concat(*panels, columns=1 if ratio else 2)

    limit = marks.INFINITE in colours and len(colours) > 1
    yield source.figure(chart, case, draw, DASHED if limit else "")


def _spectrum(
    chart: Density, source: Source, case: Mapping[str, Any], rows: pl.DataFrame
) -> Iterator[Figure]:
    """One line over the histogram of what the verb beside it measured at the same settings."""
    key = rows[source.key][0]
    own = source.rows.filter(pl.col(source.key) == key)
    row = own.row(0, named=True)
    density = rows.filter(pl.col(source.key) == key).select(
        x=pl.col(chart.x), density=pl.col(chart.y), detail=pl.col(chart.detail) if chart.detail else None
    )
    values, name, notes = None, "", []
    if chart.bars is not None and source.beside is not None:
        table, column = chart.bars
        students = _same(source.beside.rows, own, [], source)
        drawn = source.beside.tables.get(table, pl.DataFrame())
        if students.height and source.has(drawn, column):
            kept = drawn.filter(pl.col(source.key).is_in(students[source.key].implode()))
            values = kept[column].drop_nulls().to_list()
            sizes = sorted(students[chart.sizes].unique()) if chart.sizes else []
            name = measured_name(source.beside, chart.sizes or "", sizes)
            notes.append("Bars: measured ones, those at zero left out.")
    outliers = row.get(chart.outliers) if chart.outliers else None
    places = [] if outliers is None else outliers if isinstance(outliers, list) else [outliers]
    if places:
        notes.append("The triangle is where an outlier is predicted.")
    draw = partial(
        marks.spectrum,
        density,
        source.verb.label(chart.x),
        values,
        atom=(row.get(chart.atom) if chart.atom else None) or 0.0,
        outliers=places,
        name=name,
    )
    yield source.figure(chart, case, draw, " ".join(notes))


def _own(chart: Own, source: Source) -> Iterator[Figure]:
    yield from named(chart.draw)(chart, source)


DRAW: dict[type, Callable[[Any, Source], Iterator[Figure]]] = {
    Curves: _curves,
    Cells: _cells,
    Bars: _bars,
    Dots: _dots,
    Density: _density,
    Own: _own,
}
