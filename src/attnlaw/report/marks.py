"""What a chart is drawn with: curves, cells, bars, dots and densities, from rows of fixed columns.

Every function takes rows and words and returns an altair chart; none knows a verb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from attnlaw.report.style import PALETTE, as_title, inline, whole_axis

WIDTH, HEIGHT = 340, 220
PANEL = (270, 190)
GREY, BARS = "#555555", "#B8C9D9"
INFINITE = "∞"
CELL = 15
# Room for the labels of a y axis: the same in every panel, so that panels line up.
EXTENT = 34
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1])


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart with its name, title and caption, the same for a page and for a paper.

    `draw` makes an altair chart; `on_page` is False where the page shows the same and lets a reader choose.
    `model` is the one it shows, where there are several.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]
    on_page: bool = True
    model: str | None = None


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def colour(colours: Mapping[str, str], column: str = "series", always: bool = False, **legend: Any) -> Any:
    """One colour a series; a single series needs no legend, unless it is `always` to be named."""
    import altair as alt

    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(title=None, **legend) if always or len(colours) > 1 else None
    return alt.Color(f"{column}:N", scale=scale, legend=shown)


def over(text: str) -> Any:
    """A title over the plot itself, not over its axis labels, so that titles line up."""
    import altair as alt

    return alt.TitleParams(as_title(text), frame="group", anchor="start")


def curves(
    rows: pl.DataFrame,
    x: str,
    y: str,
    colours: Mapping[str, str],
    *,
    points: pl.DataFrame | None = None,
    thresholds: pl.DataFrame | None = None,
    log: bool = False,
    slope: int | None = None,
    from_zero: bool = False,
    dotted: bool = True,
    log_y: bool = False,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Any:
    """Lines of `y` over `x`, with bars of one error; a text on the x axis gives points only.

    `rows`: x, y, error (may be null), series. `points`: the same and `size`, the name of what was measured.
    `thresholds`: x, name; drawn as dotted vertical lines. The title of each axis is `x` and `y`.
    `log_y` makes that axis logarithmic, `log` both: then bars that reach zero are cut, and a guide of `slope`
    runs through the last point of the first series.
    """
    import altair as alt

    numeric = rows["x"].dtype.is_numeric()
    drawn = _with_bars(rows.filter(pl.col("y") > 0) if log else rows, log)
    across = alt.X(
        f"x:{'Q' if numeric else 'N'}",
        title=x,
        scale=alt.Scale(type="log", nice=False, padding=12)
        if log
        else alt.Scale(nice=False, zero=False)
        if numeric
        else alt.Undefined,
        axis=_measured(drawn["x"])
        if log
        else whole_axis(rows["x"])
        if rows["x"].dtype.is_integer()
        else alt.Undefined,
    )
    up = alt.Y(
        "y:Q",
        title=y,
        scale=alt.Scale(type="log") if log or log_y else alt.Scale(zero=from_zero),
        axis=_decades(drawn) if log else alt.Undefined,
    )
    hue = colour(colours, symbolType="square") if points is not None else colour(colours, symbolSize=45)
    base = alt.Chart(inline(drawn.to_dicts())).encode(x=across, color=hue)
    lines = base.mark_line(clip=not log).encode(y=up)
    layers: list[Any] = [lines if points is None else _theory(lines)] if numeric else []
    if thresholds is not None and thresholds.height:
        layers += _rules(thresholds.filter(pl.col("x") <= rows["x"].max()))
    if points is None and dotted:
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
            alt.Chart(inline(spread.to_dicts())).encode(x=across, color=hue), spread, up, y, sized
        )
    if slope is not None and drawn.height:
        guide, text = _guide(drawn, across, up, slope)
        layers = [guide, *layers, text]
    return alt.layer(*layers).properties(width=size[0], height=size[1])


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


def _theory(lines: Any, hue: str = GREY) -> Any:
    """The lines with an entry of their own in the legend."""
    import altair as alt

    dash = alt.StrokeDash(
        "theory:N",
        title=None,
        scale=alt.Scale(domain=["theory"], range=[[1, 0]]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor=hue),
    )
    return lines.encode(strokeDash=dash).transform_calculate(theory="'theory'")


def _rules(places: pl.DataFrame) -> list[Any]:
    """Dotted vertical lines with their names."""
    import altair as alt

    base = alt.Chart(inline(places.to_dicts())).encode(x="x:Q")
    text = base.mark_text(angle=270, align="right", dx=-3, dy=-6, fontSize=9, color="#444")
    return [
        base.mark_rule(strokeDash=[2, 3], color="#666"),
        text.encode(y=alt.value(0), text="name:N"),
    ]


def _guide(rows: pl.DataFrame, across: Any, up: Any, slope: int) -> tuple[Any, Any]:
    """A dashed line of the slope through the last point of the first series, and its name."""
    import altair as alt

    last = rows.filter(pl.col("series") == rows["series"][0]).sort("x").row(-1, named=True)
    ends = ((rows["x"].min(), f"slope {slope}".replace("-", "−")), (last["x"], ""))
    line = [{"x": at, "y": last["y"] * (at / last["x"]) ** slope, "text": text} for at, text in ends]
    drawn = alt.Chart(inline(line)).encode(x=across, y=up)
    text = drawn.mark_text(align="left", dx=6, dy=-8, fontSize=10, color="#666")
    return drawn.mark_line(strokeDash=[4, 4], color="#888888", strokeWidth=1.2), text.encode(text="text:N")


def _decades(rows: pl.DataFrame) -> Any:
    """Ticks at powers of ten from below the lowest bar to above the highest."""
    import altair as alt

    known = [value for name in ("y", "low", "high") for value in rows[name].drop_nulls()] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    powers = [10.0**k for k in range(math.floor(low), math.ceil(high) + 1)]
    return alt.Axis(values=powers, format="~e")


def _measured(x: pl.Series) -> Any:
    """Ticks at the points measured."""
    import altair as alt

    return alt.Axis(values=sorted(set(x.to_list())), format="~d", grid=False, labelOverlap=True)


@dataclass(frozen=True)
class Shades:
    """How the colours of cells are chosen: by a scale of numbers, or one for each category."""

    scale: str = "linear"
    domain: tuple[float, float] | None = None
    categories: Mapping[str, str] | None = None

    def encoding(self, column: str, title: str | None, length: int = 110) -> Any:
        import altair as alt

        if self.categories is not None:
            scale = alt.Scale(domain=list(self.categories), range=list(self.categories.values()))
            legend = alt.Legend(orient="bottom", direction="horizontal", symbolType="square")
            return alt.Color(f"{column}:N", title=title, scale=scale, legend=legend)
        ends = alt.Undefined if self.domain is None else list(self.domain)
        return alt.Color(
            f"{column}:Q",
            title=title,
            scale=alt.Scale(type=self.scale, scheme="viridis", domain=ends),
            legend=alt.Legend(gradientLength=length, tickCount=3, format=".3~g"),
        )


def cells(
    rows: pl.DataFrame,
    x: str | None,
    y: str | None,
    shades: Shades,
    *,
    title: str = "",
    legend: str | None = None,
    side: int = CELL,
    turned: bool = False,
    bare: bool = False,
) -> Any:
    """Cells of two categories: `rows` has x (null: one column), y, colour, and `told`, what a cell says.

    Titles of the axes are `x` and `y`. `turned`: labels below stand upright. `bare`: without labels of y.
    """
    import altair as alt

    plain = {"ticks": False, "domain": False, "grid": False, "labelOverlap": True}
    down = alt.Axis(labels=not bare, **plain) if not bare else alt.Axis(labelOpacity=0, **plain)
    up = alt.Y("y:O", title=None if bare else y, sort=None, axis=down)
    columns = rows["x"].n_unique() if rows["x"].count() else 1
    across = (
        {"x": alt.X("x:O", title=x, sort=None, axis=alt.Axis(labelAngle=-90 if turned else 0, **plain))}
        if rows["x"].count()
        else {"x": alt.value(0), "x2": alt.value("width")}
    )
    described = rows["told"].count() > 0
    edge = {"stroke": "white", "strokeWidth": 1} if side >= CELL and not described else {}
    chart = alt.Chart(inline(rows.to_dicts()), title=over(title) if title else alt.Undefined)
    height = side * rows["y"].n_unique()
    drawn = chart.mark_rect(aria=described, **edge).encode(
        y=up, color=shades.encoding("colour", legend, min(height, 160)), **across
    )
    return (drawn.encode(description="told:N") if described else drawn).properties(
        width=side * columns, height=height
    )


def field(rows: pl.DataFrame, lines: pl.DataFrame, x: str, y: str, legend: str, shades: Shades) -> Any:
    """A field of cells over two evenly spaced numbers, and lines across it.

    `rows`: x, y, colour. `lines`: x, y, name.
    """
    import altair as alt

    ends, steps = {}, {}
    for name in ("x", "y"):
        grid = rows[name].unique().sort()
        step = float(grid[1] - grid[0])
        steps[name] = step
        ends[name] = [float(grid[0]) - step / 2, float(grid[-1]) + step / 2]
    low, high = shades.domain or (-math.inf, math.inf)
    placed = rows.select(
        # Cells overlap a little: exact neighbours leave hairlines between them.
        left=pl.col("x") - steps["x"] / 2,
        right=pl.col("x") + steps["x"] * 0.6,
        low=pl.col("y") - steps["y"] / 2,
        high=pl.col("y") + steps["y"] * 0.6,
        shown=pl.col("colour").clip(low, high),
    )
    x_scale, y_scale = (alt.Scale(domain=ends[name], nice=False) for name in ("x", "y"))
    heat = (
        alt.Chart(inline(placed.to_dicts()))
        .mark_rect(clip=True)
        .encode(
            x=alt.X("left:Q", title=x, scale=x_scale),
            x2="right:Q",
            y=alt.Y("low:Q", title=y, scale=y_scale),
            y2="high:Q",
            color=shades.encoding("shown", legend),
        )
    )
    names = list(dict.fromkeys(lines["name"]))
    rules = (
        alt.Chart(inline(lines.to_dicts()))
        .mark_line(clip=True, color="white", strokeWidth=1.8)
        .encode(
            x=alt.X("x:Q", scale=x_scale),
            y=alt.Y("y:Q", scale=y_scale),
            strokeDash=alt.StrokeDash(
                "name:N",
                title=None,
                scale=alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in range(len(names))]),
                legend=alt.Legend(symbolStrokeColor="black", symbolSize=250),
            ),
        )
    )
    return alt.layer(heat, *([rules] if names else [])).properties(width=WIDTH, height=HEIGHT)


def bars(rows: pl.DataFrame, x: str, y: str, colours: Mapping[str, str], title: str = "") -> Any:
    """Stacked shares: `rows` has x, part and value."""
    import altair as alt

    chart = alt.Chart(inline(rows.to_dicts()), title=as_title(title) if title else alt.Undefined)
    return (
        chart.mark_bar()
        .encode(
            x=alt.X("x:O", title=x, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("value:Q", title=y, axis=alt.Axis(values=[0, 0.5, 1])),
            color=colour(colours, "part", always=True),
            order=alt.Order("place:Q"),
        )
        .properties(width=WIDTH, height=120 if title else 200)
    )


def dots(rows: pl.DataFrame, axis: str, colours: Mapping[str, str]) -> Any:
    """Every value as a dot on one axis: `rows` has line, value and series."""
    import altair as alt

    order = list(dict.fromkeys(rows["line"]))
    return (
        alt.Chart(inline(rows.to_dicts()))
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x=alt.X("value:Q", title=axis, scale=alt.Scale(zero=False)),
            y=alt.Y("line:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True)),
            color=colour(colours),
        )
        .properties(width=320, height=alt.Step(20))
    )


def densities(
    rows: pl.DataFrame, x: str, colours: Mapping[str, str], legend: str, ratio: str | None, title: str
) -> Any:
    """Densities of several laws, the infinite one dashed: `rows` has x, density, ratio and series.

    `ratio` is the title of their ratio to one of them, which is drawn beside them.
    """
    import altair as alt

    names = list(colours)
    hue = alt.Color(
        "series:N", title=legend, scale=alt.Scale(domain=names, range=[colours[name] for name in names])
    )
    dash = alt.StrokeDash(
        "series:N",
        title=legend,
        scale=alt.Scale(domain=names, range=[[5, 3] if name == INFINITE else [1, 0] for name in names]),
    )
    base = alt.Chart(inline(rows.to_dicts())).mark_line().encode(x=alt.X("x:Q", title=x), color=hue)
    panels = [base.encode(y=alt.Y("density:Q", title="density"), strokeDash=dash).properties(title=title)]
    if ratio is not None:
        scale, axis = alt.Scale(type="log"), alt.Axis(tickCount=5)
        right = base.encode(y=alt.Y("ratio:Q", title=ratio, scale=scale, axis=axis), strokeDash=dash)
        panels.append(right.properties(title=f"{title}: ratio" if title else "ratio"))
    return alt.hconcat(*(panel.properties(width=PANEL[0], height=PANEL[1]) for panel in panels), spacing=28)


def spectrum(
    density: pl.DataFrame,
    x: str,
    values: Sequence[float] | None = None,
    *,
    atom: float = 0.0,
    outliers: Sequence[float] = (),
    name: str = "measured",
) -> Any:
    """A predicted density over a histogram of measured values (those not at zero); both may be empty.

    `density`: x, density, detail (of the pieces of a line). The atom at zero is written, not drawn.
    """
    import altair as alt

    title = f"weight at zero: predicted {atom:.3f}" if atom > 0 else ""
    layers = []
    if values:
        every = np.asarray(values)
        title += f", {name.partition(',')[0]} {float((every == 0.0).mean()):.3f}" if atom > 0 else ""
        # An atom takes its own weight out of the histogram; without one every value is drawn.
        kept = every[every != 0.0] if atom > 0 else every
        # Domains are given: a legend without an entry, of no row at all, has no size.
        filled = alt.Fill("name:N", title=None, scale=alt.Scale(domain=[name], range=[BARS]))
        drawn = alt.Chart(inline(_histogram(kept, density["x"].to_numpy(), every.size, name)))
        layers.append(
            drawn.mark_bar(stroke="white", strokeWidth=0.3).encode(
                x=alt.X("left:Q"), x2="right:Q", y=alt.Y("floor:Q"), y2="height:Q", fill=filled
            )
        )
    line = alt.Chart(inline(density.to_dicts())).mark_line(color=PALETTE[0], clip=True)
    line = line.encode(x=alt.X("x:Q", title=x), y=alt.Y("density:Q", title="density"), detail="detail:N")
    layers.append(_theory(line, PALETTE[0]))
    if outliers:
        marks = alt.Chart(
            inline([{"x": place, "y": 0.0, "outlier": "outlier, theory"} for place in outliers])
        )
        shape = alt.Shape(
            "outlier:N",
            title=None,
            scale=alt.Scale(range=["triangle-up"]),
            legend=alt.Legend(symbolFillColor=PALETTE[1], symbolStrokeColor=PALETTE[1]),
        )
        layers.append(
            marks.mark_point(size=60, filled=True, color=PALETTE[1]).encode(x="x:Q", y="y:Q", shape=shape)
        )
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def _histogram(kept: Any, beside: Any, total: int, name: str) -> list[dict[str, Any]]:
    """A histogram of the values kept out of `total`, as a density over the range of both arrays."""
    if not kept.size:
        return []
    count = max(12, min(60, round(3 * kept.size ** (1 / 3))))
    places = np.concatenate([kept, beside])
    numbers, ends = np.histogram(kept, bins=count, range=(float(places.min()), float(places.max())))
    return [
        {
            "floor": 0.0,
            "left": left,
            "right": right,
            "height": number / (total * (right - left)),
            "name": name,
        }
        for number, left, right in zip(numbers.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
