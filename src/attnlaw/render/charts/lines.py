"""Line charts with error bars, points of a simulation, thresholds, and dashed guides of known slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.encodings import (
    GREY,
    HEIGHT,
    WIDTH,
    colour_encoding,
    dash_encoding,
    inline_data,
    integer_axis,
    log_axis,
    with_theory_legend,
)
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, has_values
from attnlaw.render.describe_rows import MOST_CASES, rows_by_case, varying_settings

MEASURED = "Points are measured values; bars are one standard error"
POINTS = f"{MEASURED}. Good agreement: the points are on the lines, or come closer to them as sizes grow."
MOST_DOTS = 40  # a line with more points has no dots


def first_quantity(result: Result) -> list[Figure]:
    """Draw the first quantity that has values. The x axis is the setting that varies most."""
    view = ChartView.of(result)
    rows = view.rows
    numbers = (quantity for quantity in view.verb.quantities if quantity.kind in ("float", "int", "small"))
    quantity = next((number for number in numbers if has_values(rows, number.name)), None)
    names = varying_settings(rows, view.settings)
    if quantity is None or not names:
        return []
    x = max(names, key=lambda name: (rows[name].dtype.is_numeric(), rows[name].drop_nulls().n_unique()))
    title = f"{quantity.label[0].upper()}{quantity.label[1:]} against {x.replace('_', ' ')}"
    caption = f"{quantity.description}." if quantity.description else ""
    return view.figures(quantity.name, title, caption, line_charts(view, rows, x, quantity.name))


def line_charts(
    view: ChartView,
    rows: pl.DataFrame,
    x: str,
    y: str,
    by: Sequence[str] = (),
    *,
    sizes: str | None = None,
    thresholds: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    smooth: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    log: bool = False,
    log_x: bool = False,
    slope: int | None = None,
) -> Drawings:
    """Yield charts of `y` over `x`, with a line for each value of the columns `by`.

    Each combination of the other settings has its own chart. It has its own line if nothing else varies and
    there are few. Rows with equal settings are averaged. A chart with a single value of `x` is left out.

    Args:
        sizes: the setting of the simulation that is its size. The rows of the simulation are drawn as points.
        thresholds: a function that returns the thresholds for a chart's rows, with the columns x and name.
        smooth: a function that returns rows at more values of x, or the same rows.
        log: whether both axes are logarithmic; `log_x`: only the x axis.
        slope: the slope of dashed lines through the last point of each series, as in `draw_lines`.
    """
    rows = rows.drop_nulls([x, y])
    if rows[x].dtype.is_float():
        rows = rows.filter(pl.col(x).is_finite())
    for name, positive in ((y, log), (x, log or log_x)):
        rows = rows.filter(pl.col(name) > 0) if positive else rows
    by = varying_settings(rows, by)
    others = view.other_settings(rows, [x, *by])
    points = pl.DataFrame()
    if sizes is not None and view.simulation is not None:
        points = view.simulation.rows.drop_nulls([x, y, sizes])
    if not points.height and not by and others and rows.select(others).n_unique() <= MOST_CASES:
        by, others = others, []
    for case, case_rows in rows_by_case(rows, others):
        if case_rows[x].n_unique() < 2:
            continue
        dense = case_rows if smooth is None else smooth(case_rows)
        lines, colours = view.mean_lines(dense, x, y, by)
        measured = None
        if sizes is not None and points.height:
            same = view.same_settings(points, case_rows, [x, *by])
            measured = _average_by_size(view, same, x, y, by, sizes) if same.height else None
        marks = None if thresholds is None else thresholds(case_rows)
        # Bars are drawn with the dots.
        with_dots = dense is case_rows and max(lines.group_by("series").len()["len"]) <= MOST_DOTS
        with_bars = measured is None and with_dots and lines["error"].count()
        notes = [
            "" if measured is None else POINTS,
            "Dotted lines are thresholds." if marks is not None and marks.height else "",
            "Bars are one standard error." if with_bars else "",
        ]
        draw = partial(
            draw_lines,
            lines.sort("x", maintain_order=True),
            view.verb.axis(x),
            view.verb.axis(y),
            colours,
            points=measured,
            thresholds=marks,
            log=log,
            log_x=log_x,
            slope=slope,
            from_zero=sizes is not None,
            with_dots=with_dots,
        )
        yield Drawing(draw, case, " ".join(filter(None, notes)))


def _average_by_size(
    view: ChartView, rows: pl.DataFrame, x: str, y: str, by: Sequence[str], sizes: str
) -> pl.DataFrame:
    assert view.simulation is not None
    means = view.mean_lines(rows, x, y, by, sizes)[0].sort(sizes, maintain_order=True)
    ending = " (± s.e.)" if means["error"].count() else ""
    names = [f"{view.simulation.size_label(sizes, [size])}{ending}" for size in means[sizes]]
    return means.with_columns(size=pl.Series(names, dtype=pl.String))


def draw_lines(
    rows: pl.DataFrame,
    x: str,
    y: str,
    colours: Mapping[str, str],
    *,
    points: pl.DataFrame | None = None,
    thresholds: pl.DataFrame | None = None,
    log: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    slope: int | None = None,
    guided: Collection[str] | None = None,
    from_zero: bool = False,
    with_dots: bool = True,
    line_name: str = "theory",
    width: int = WIDTH,
    height: int = HEIGHT,
) -> alt.LayerChart:
    """Draw lines with bars of one standard error. If the column x has texts, only points are drawn.

    Args:
        rows: a table with the columns x, y, error (may be null) and series. `x` and `y` are titles.
        points: measured values, with the same columns and a column `size` for the legend.
        thresholds: a table with the columns x and name, drawn as dotted vertical lines.
        log: whether both axes are logarithmic. Bars that reach zero are cut on logarithmic axes.
        slope: the slope of a dashed line through the last point of each series in `guided` (by default all).
            These replace the lines between points, and need `log`.
        line_name: the name of the lines in the legend, if there are `points`.
    """
    numeric = rows["x"].dtype.is_numeric()
    drawn = _with_bars(rows.filter(pl.col("y") > 0) if log else rows, log)
    across = alt.X(f"x:{'Q' if numeric else 'N'}", title=x)
    if log or log_x:
        across = across.scale(type="log", nice=False, padding=12).axis(_measured_axis(drawn["x"]))
    elif numeric:
        across = across.scale(nice=False, zero=False)
        across = across.axis(integer_axis(rows["x"])) if rows["x"].dtype.is_integer() else across
    up = alt.Y("y:Q", title=y)
    if log:
        up = up.scale(type="log").axis(_decades(drawn))
    elif log_y:
        heights = [*drawn["y"], *([] if points is None else points["y"])]
        up = up.scale(type="log", nice=False, padding=8).axis(
            log_axis([value for value in heights if value and value > 0] or [1.0])
        )
    else:
        up = up.scale(zero=from_zero)
    hue = colour_encoding(colours, **({"symbolSize": 45} if points is None else {"symbolType": "square"}))
    base = alt.Chart(inline_data(drawn)).encode(x=across, color=hue)
    guided = () if slope is None else set(drawn["series"]) if guided is None else guided
    free = [name for name in colours if name not in guided]
    joined = base if not guided else base.transform_filter(alt.FieldOneOfPredicate("series", free))
    lines = joined.mark_line(clip=not log).encode(y=up)
    layers: list[Any] = []
    if numeric and free:
        layers.append(lines if points is None else with_theory_legend(lines, name=line_name))
    if thresholds is not None and thresholds.height:
        layers += _threshold_lines(thresholds.filter(pl.col("x") <= rows["x"].max()))
    if points is None and with_dots:
        layers += _dots(base, drawn, up, y)
    if points is not None:
        spread = _with_bars(points, log)
        legend = alt.Legend(symbolFillColor=GREY, symbolStrokeColor=GREY)
        names = alt.Scale(domain=list(dict.fromkeys(points["size"])))
        sized = alt.Shape("size:N", title=None, scale=names, legend=legend)
        layers += _dots(alt.Chart(inline_data(spread)).encode(x=across, color=hue), spread, up, y, sized)
    ends = drawn.filter(pl.col("series").is_in(list(guided)))
    if slope is not None and ends.height:
        layers = [_guides(ends, across, up, hue, slope), *layers]
    return alt.layer(*layers).properties(width=width, height=height)


def draw_beside(panels: Sequence[Callable[[], Any]]) -> Any:
    drawn = [draw() for draw in panels]
    return alt.hconcat(*drawn, spacing=28) if len(drawn) > 1 else drawn[0]


def _with_bars(rows: pl.DataFrame, log: bool) -> pl.DataFrame:
    low = pl.col("y") - pl.col("error")
    cut = pl.when(pl.col("error").is_not_null()).then(pl.max_horizontal(low, pl.col("y") * 0.05))
    return rows.with_columns(low=cut if log else low, high=pl.col("y") + pl.col("error"))


def _dots(base: Any, rows: pl.DataFrame, up: Any, title: str, sized: Any = None) -> list[Any]:
    dots = base.mark_point(filled=True, size=34 if sized else 28, opacity=1).encode(y=up)
    bars = base.transform_filter("datum.high !== null").mark_rule(strokeWidth=1.5)
    bars = bars.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    return [*([bars] if rows["high"].count() else []), dots if sized is None else dots.encode(shape=sized)]


def _threshold_lines(places: pl.DataFrame) -> list[Any]:
    base = alt.Chart(inline_data(places)).encode(x="x:Q")
    text = base.mark_text(angle=270, align="right", dx=-3, dy=-6, color="#444")
    return [base.mark_rule(strokeDash=[2, 3], color="#666"), text.encode(y=alt.value(0), text="name:N")]


def _guides(rows: pl.DataFrame, across: Any, up: Any, hue: Any, slope: int) -> Any:
    first, lines = rows["x"].min(), []
    name = f"slope {slope}".replace("-", "−")
    for (series,), points in rows.group_by("series", maintain_order=True):
        last = points.sort("x").row(-1, named=True)
        places = ((at, last["y"] * (at / last["x"]) ** slope) for at in (first, last["x"]))
        lines += [{"x": at, "y": height, "series": series, "slope": name} for at, height in places]
    legend = {"symbolType": "stroke", "symbolSize": 300, "symbolStrokeColor": GREY}
    dashed = alt.Chart(inline_data(lines)).mark_line(strokeWidth=1.2, clip=True)
    return dashed.encode(
        x=across, y=up, color=hue, strokeDash=dash_encoding("slope", {name: [4, 4]}, **legend)
    )


def _decades(rows: pl.DataFrame) -> alt.Axis:
    """Return an axis with ticks at powers of ten, from below the lowest error bar to above the highest."""
    known = [value for name in ("y", "low", "high") for value in rows[name].drop_nulls()] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    return alt.Axis(values=[10.0**k for k in range(math.floor(low), math.ceil(high) + 1)], format="~e")


def _measured_axis(x: pl.Series) -> alt.Axis:
    """Return an axis with ticks at whole points, or else at 1 and 3 times each power of ten."""
    points = sorted(set(x.filter(x > 0).to_list()))
    if not points or all(point == round(point) for point in points):
        return alt.Axis(values=points, format="~d", grid=False, labelOverlap=True)
    low, high = math.floor(math.log10(points[0])), math.ceil(math.log10(points[-1]))
    ticks = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 3)]
    inside = [tick for tick in ticks if 0.99 * points[0] <= tick <= 1.01 * points[-1]]
    small = points[0] < 1e-4  # "~g" writes 0.000001 with zeros and smaller numbers with powers
    return alt.Axis(values=inside, format="~e" if small else "~g", grid=False, labelOverlap=True)


def draw_marked_curve(
    points: Mapping[float, float],
    here: tuple[float, float | None],
    x: str,
    y: str,
    ends: tuple[float, float],
    title: str,
) -> alt.LayerChart:
    """Draw a curve, with a vertical line and a dot at the current setting if its value is known.

    The title has a place for the current value. The logarithmic x axis runs between `ends`.
    """
    rows = [{"x": place, "y": height} for place, height in sorted(points.items())]
    # Between few points of a slow theory, a monotone line shows the trend without corners.
    across = alt.X("x:Q", title=x).scale(type="log", nice=False, domain=list(ends)).axis(log_axis(ends))
    up = alt.Y("y:Q", title=y).scale(zero=True)
    line = alt.Chart(inline_data(rows)).mark_line(color=PALETTE[0], interpolate="monotone", clip=True)
    layers = [line.encode(x=across, y=up)]
    place, height = here
    if height is None or not math.isfinite(height):
        return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    mark = alt.Chart(inline_data([{"x": place, "y": height}]))
    layers.append(mark.mark_rule(color=PALETTE[1], strokeDash=[3, 3]).encode(x=across))
    dot = mark.mark_point(size=90, filled=True, color=PALETTE[1], opacity=1)
    layers.append(dot.encode(x=across, y=up))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title.format(height))
