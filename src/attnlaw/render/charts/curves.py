"""Lines with bars of their errors, points over them, thresholds, a guide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from attnlaw.render.charts.figure import GREY, HEIGHT, WIDTH, colour_encoding, with_theory_legend
from attnlaw.render.charts.style import inline_data, integer_axis, log_ticks


def curves(
    rows: pl.DataFrame,
    x: str,
    y: str,
    colours: Mapping[str, str],
    *,
    points: pl.DataFrame | None = None,
    thresholds: pl.DataFrame | None = None,
    log: bool = False,
    log_x: bool = False,
    slope: int | None = None,
    from_zero: bool = False,
    with_dots: bool = True,
    log_y: bool = False,
    line_name: str = "theory",
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Any:
    """Lines of `y` over `x`, with bars of one error; a text on the x axis gives points only.

    `rows`: x, y, error (may be null), series. `points`: the same and `size`, the name of what was measured.
    `line_name` names the lines then. `thresholds`: x, name; drawn as dotted vertical lines. The title of each
    axis is `x` and `y`.
    `log_x` and `log_y` make that axis logarithmic, `log` both: then bars that reach zero are cut, and a guide
    of `slope` runs through the last point of the first series.
    """
    import altair as alt

    numeric = rows["x"].dtype.is_numeric()
    drawn = _with_bars(rows.filter(pl.col("y") > 0) if log else rows, log)
    across = alt.X(
        f"x:{'Q' if numeric else 'N'}",
        title=x,
        scale=alt.Scale(type="log", nice=False, padding=12)
        if log or log_x
        else alt.Scale(nice=False, zero=False)
        if numeric
        else alt.Undefined,
        axis=_log_axis(drawn["x"])
        if log or log_x
        else integer_axis(rows["x"])
        if rows["x"].dtype.is_integer()
        else alt.Undefined,
    )
    up = alt.Y(
        "y:Q",
        title=y,
        scale=alt.Scale(type="log") if log or log_y else alt.Scale(zero=from_zero),
        axis=_decades(drawn)
        if log
        else alt.Axis(format="~g", values=log_ticks(_positive_heights(drawn, points)))
        if log_y
        else alt.Undefined,
    )
    hue = (
        colour_encoding(colours, symbolType="square")
        if points is not None
        else colour_encoding(colours, symbolSize=45)
    )
    base = alt.Chart(inline_data(drawn.to_dicts())).encode(x=across, color=hue)
    lines = base.mark_line(clip=not log).encode(y=up)
    layers: list[Any] = (
        [lines if points is None else with_theory_legend(lines, name=line_name)] if numeric else []
    )
    if thresholds is not None and thresholds.height:
        layers += _threshold_lines(thresholds.filter(pl.col("x") <= rows["x"].max()))
    if points is None and with_dots:
        layers += _dots(base, drawn, up, y)
    if points is not None:
        spread = _with_bars(points, log)
        sized = alt.Shape(
            "size:N",
            title=None,
            scale=alt.Scale(domain=list(dict.fromkeys(points["size"]))),
            legend=alt.Legend(symbolFillColor=GREY, symbolStrokeColor=GREY),
        )
        layers += _dots(
            alt.Chart(inline_data(spread.to_dicts())).encode(x=across, color=hue), spread, up, y, sized
        )
    if slope is not None and drawn.height:
        guide, text = _guide(drawn, across, up, slope)
        layers = [guide, *layers, text]
    return alt.layer(*layers).properties(width=size[0], height=size[1])


def _positive_heights(rows: pl.DataFrame, points: pl.DataFrame | None) -> list[float]:
    """All that is drawn above zero."""
    every = [rows["y"], *([] if points is None else [points["y"]])]
    return [value for column in every for value in column.drop_nulls() if value > 0] or [1.0]


def _with_bars(rows: pl.DataFrame, log: bool) -> pl.DataFrame:
    """The rows with the ends of their bars, null where they have no error."""
    low = pl.col("y") - pl.col("error")
    cut = pl.when(pl.col("error").is_not_null()).then(pl.max_horizontal(low, pl.col("y") * 0.05))
    return rows.with_columns(low=cut if log else low, high=pl.col("y") + pl.col("error"))


def _dots(base: Any, rows: pl.DataFrame, up: Any, title: str, sized: Any = None) -> list[Any]:
    import altair as alt

    dots = base.mark_point(filled=True, size=34 if sized else 28, opacity=1).encode(y=up)
    bars = base.transform_filter("datum.high !== null").mark_rule(strokeWidth=1.5)
    bars = bars.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    return [*([bars] if rows["high"].count() else []), dots if sized is None else dots.encode(shape=sized)]


def _threshold_lines(places: pl.DataFrame) -> list[Any]:
    """Dotted vertical lines with their names."""
    import altair as alt

    base = alt.Chart(inline_data(places.to_dicts())).encode(x="x:Q")
    text = base.mark_text(angle=270, align="right", dx=-3, dy=-6, color="#444")
    return [
        base.mark_rule(strokeDash=[2, 3], color="#666"),
        text.encode(y=alt.value(0), text="name:N"),
    ]


def _guide(rows: pl.DataFrame, across: Any, up: Any, slope: int) -> tuple[Any, Any]:
    """A dashed line of the slope through the last point of the first series, its name beside its middle."""
    import altair as alt

    last = rows.filter(pl.col("series") == rows["series"][0]).sort("x").row(-1, named=True)
    ends = rows["x"].min(), last["x"]
    name = f"slope {slope}".replace("-", "−")
    places = {ends[0]: "", math.sqrt(ends[0] * ends[1]): name, ends[1]: ""}  # the middle on logarithmic axes
    line = [
        {"x": at, "y": last["y"] * (at / last["x"]) ** slope, "text": text} for at, text in places.items()
    ]
    drawn = alt.Chart(inline_data(line)).encode(x=across, y=up)
    text = drawn.mark_text(align="left", dx=6, dy=-8, color="#666")
    return drawn.mark_line(strokeDash=[4, 4], color="#888888", strokeWidth=1.2), text.encode(text="text:N")


def _decades(rows: pl.DataFrame) -> Any:
    """Ticks at powers of ten from below the lowest bar to above the highest."""
    import altair as alt

    known = [value for name in ("y", "low", "high") for value in rows[name].drop_nulls()] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    powers = [10.0**k for k in range(math.floor(low), math.ceil(high) + 1)]
    return alt.Axis(values=powers, format="~e")


def _log_axis(x: pl.Series) -> Any:
    """Ticks at the points measured; where they are not whole, at 1 and 3 of every decade."""
    import altair as alt

    points = sorted(set(x.filter(x > 0).to_list()))
    if not points or all(point == round(point) for point in points):
        return alt.Axis(values=points, format="~d", grid=False, labelOverlap=True)
    low, high = math.floor(math.log10(points[0])), math.ceil(math.log10(points[-1]))
    ticks = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 3)]
    inside = [tick for tick in ticks if 0.99 * points[0] <= tick <= 1.01 * points[-1]]
    small = points[0] < 1e-4  # "~g" would count zeros down to 0.000001 and powers below it
    return alt.Axis(values=inside, format="~e" if small else "~g", grid=False, labelOverlap=True)
