"""Charts of the laws of an attention layer: densities over widths, distances, Gram matrices over depth."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from attnlaw.report.style import PALETTE, whole_axis

_INFINITE = "∞"


def _label(width: float | str | None) -> str:
    return _INFINITE if width in (None, float("inf"), "inf") else f"{width:,.0f}".replace(",", " ")


def density_chart(rows: pl.DataFrame) -> Any:
    """Densities of one output coordinate over widths, and their ratio to the limit's.

    Rows: `heads`, `width` (infinity for the limit), `y`, `density`, `ratio` (null
    throughout: without its panel).
    """
    import altair as alt

    widths = sorted(set(rows["width"]))
    labels = [_label(width) for width in widths]
    colours = [
        "#000000" if label == _INFINITE else PALETTE[i % (len(PALETTE) - 1)] for i, label in enumerate(labels)
    ]
    values = rows.with_columns(n=pl.col("width").map_elements(_label, return_dtype=pl.String)).drop("width")
    colour = alt.Color("n:N", title="width n", scale=alt.Scale(domain=labels, range=colours))
    dash = alt.StrokeDash(
        "n:N",
        title="width n",
        scale=alt.Scale(domain=labels, range=[[5, 3] if label == _INFINITE else [1, 0] for label in labels]),
    )
    alone = rows["ratio"].null_count() == rows.height
    panels = []
    for heads in sorted(set(rows["heads"])):
        data = alt.Data(values=values.filter(pl.col("heads") == heads).to_dicts())
        base = alt.Chart(data).mark_line().encode(x=alt.X("y:Q", title="output coordinate y"), color=colour)
        number = "1 head" if heads == 1 else f"{heads} heads"
        left = base.encode(y=alt.Y("density:Q", title="density"), strokeDash=dash).properties(title=number)
        right = base.encode(
            y=alt.Y(
                "ratio:Q",
                title="density / density of the limit",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(tickCount=5),
            ),
            strokeDash=dash,
        ).properties(title=f"{number}: ratio to the limit")
        shown = (left,) if alone else (left, right)
        panels.append(alt.hconcat(*(panel.properties(width=270, height=190) for panel in shown), spacing=28))
    return alt.concat(*panels, columns=2 if alone else 1)


def distance_chart(rows: pl.DataFrame, title: str, against: str, slope: int | None = None) -> Any:
    """A distance against n or H on logarithmic axes, with bars of one standard error.

    Rows: `x`, `series`, `value`, `error`. `against` names the x axis, `title` the y axis. A guide of the
    given slope runs through the last point of the first series. Bars that reach zero are cut.
    """
    import altair as alt

    data = rows.filter(pl.col("value") > 0).with_columns(
        low=pl.max_horizontal(pl.col("value") - pl.col("error"), pl.col("value") * 0.05),
        high=pl.col("value") + pl.col("error"),
    )
    names = list(dict.fromkeys(data["series"]))
    x = alt.X(
        "x:Q", title=against, scale=alt.Scale(type="log", nice=False, padding=12), axis=_measured(data["x"])
    )
    colour = _series_colour(names)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(type="log"), axis=_decades(data))
    base = alt.Chart(alt.Data(values=data.to_dicts())).encode(x=x, color=colour)
    layers = [
        base.mark_line().encode(y=y),
        base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        base.mark_point(filled=True, size=34, opacity=1).encode(y=y),
    ]
    if slope is not None:
        last = data.filter(pl.col("series") == names[0]).sort("x").row(-1, named=True)
        line = [
            {"x": at, "value": last["value"] * (at / last["x"]) ** slope, "text": text}
            for at, text in ((data["x"].min(), f"slope {slope}".replace("-", "−")), (last["x"], ""))
        ]
        drawn = alt.Chart(alt.Data(values=line)).encode(x=x, y=y)
        layers.insert(0, drawn.mark_line(strokeDash=[4, 4], color="#888888", strokeWidth=1.2))
        layers.append(
            drawn.mark_text(align="left", dx=6, dy=-8, fontSize=10, color="#666666").encode(text="text:N")
        )
    return alt.layer(*layers).properties(width=300, height=210)


def _series_colour(names: list[str]) -> Any:
    """One colour a series; a single series needs no legend."""
    import altair as alt

    legend = alt.Legend(title=None, symbolSize=45) if len(names) > 1 else None
    scale = alt.Scale(domain=names, range=list(PALETTE[: len(names)]))
    return alt.Color("series:N", scale=scale, legend=legend)


def _decades(data: pl.DataFrame) -> Any:
    """Ticks at powers of ten from below the lowest bar to above the highest."""
    import altair as alt

    low, high = math.log10(min(data["low"].to_list())), math.log10(max(data["high"].to_list()))
    powers = [10.0**k for k in range(math.floor(low), math.ceil(high) + 1)]
    return alt.Axis(values=powers, format="~e")


def _measured(x: pl.Series) -> Any:
    """Ticks at the points measured."""
    import altair as alt

    return alt.Axis(values=sorted(set(x.to_list())), format="~d", grid=False, labelOverlap=True)


def path_chart(rows: pl.DataFrame) -> Any:
    """Squared length of a token and mean cosine between tokens against depth.

    Rows: `series`, `depth`, `squared_length`, `squared_length_error`, `cosine`, `cosine_error`; bars show
    one standard error.
    """
    import altair as alt

    names = list(dict.fromkeys(rows["series"]))
    colour = _series_colour(names)
    panels = []
    for column, title, scale in (
        ("squared_length", "squared length of a token", alt.Scale(type="log")),
        ("cosine", "mean cosine between tokens", alt.Scale(domain=[0, 1], clamp=True)),
    ):
        data = rows.with_columns(
            low=pl.col(column) - pl.col(f"{column}_error"), high=pl.col(column) + pl.col(f"{column}_error")
        )
        base = alt.Chart(alt.Data(values=data.to_dicts())).encode(
            x=alt.X("depth:Q", title="depth", axis=whole_axis(rows["depth"])), color=colour
        )
        y = alt.Y(f"{column}:Q", title=title, scale=scale)
        panels.append(
            alt.layer(
                base.mark_line().encode(y=y),
                base.mark_rule(strokeWidth=1.4).encode(
                    y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"
                ),
                base.mark_point(filled=True, size=30, opacity=1).encode(y=y),
            ).properties(width=270, height=200)
        )
    return alt.hconcat(*panels, spacing=28)
