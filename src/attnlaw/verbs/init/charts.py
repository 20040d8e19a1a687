"""The chart of a model before training: panels by layer, a band over initialisations, the limit as dashes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.data import with_series
from attnlaw.render.charts.figure import PANEL, Figure, colour_encoding, panel_title
from attnlaw.render.charts.labels import MOST_CASES, rows_by_case
from attnlaw.render.charts.style import inline_data, integer_axis, log_ticks

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

LIMIT_WIDTH = "inf"  # of the setting `width`
FINITE, INFINITE = "finite width", "infinite width"
DARK = "#222222"
# The measures that may have a panel, and whether its axis is logarithmic: the first two that vary by layer
# (behind norms, lengths do not).
PANELS = {"rms": True, "cosine": False, "entropy": False}


def layers(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Two panels for each model: lines for what varied, bands at finite width, dashes in the limit."""
    rows = source.frame("layers")
    if not source.has_values(rows, "rms") or rows["layer"].n_unique() < 2:
        return
    layer_rows = rows.drop_nulls("rms")
    others = source.other_settings(layer_rows, ["width", "model", "depth", "layer"])
    apart = ["model"] if layer_rows["model"].n_unique() > 1 else []
    for case, case_rows in rows_by_case(layer_rows, apart):
        by = [name for name in ("depth", *others) if case_rows[name].n_unique() > 1]
        by += ["width"] if case_rows.filter(pl.col("width") != LIMIT_WIDTH)["width"].n_unique() > 1 else []
        if by and case_rows.select(by).n_unique() > MOST_CASES:
            continue
        first = case_rows.unique([*by, "width", "layer"], keep="first", maintain_order=True)
        named, colours = with_series(source, first, by)
        yield source.figure(chart, case, partial(_panels, named, colours, source))


def _panels(rows: pl.DataFrame, colours: dict[str, str], source: ChartData) -> Any:
    import altair as alt

    drawn = [name for name in PANELS if rows[name].count() and not _is_constant(rows[name].drop_nulls())]
    return alt.hconcat(*(_panel(rows, colours, name, source) for name in drawn[:2]), spacing=28)


def _is_constant(values: pl.Series) -> bool:
    lowest, highest = (float(end) for end in (values.min(), values.max()))  # type: ignore[arg-type]
    return highest - lowest <= 1e-6 * abs(highest)


def _panel(rows: pl.DataFrame, colours: dict[str, str], name: str, source: ChartData) -> Any:
    import altair as alt

    table = next(table_spec for table_spec in source.verb.tables if table_spec.name == "layers")
    title = next(column.description for column in table.columns if column.name == name)
    shown = rows.drop_nulls(name).select(
        "layer",
        "series",
        y=name,
        low=f"{name}_low",
        high=f"{name}_high",
        law=pl.when(pl.col("width") == LIMIT_WIDTH).then(pl.lit(INFINITE)).otherwise(pl.lit(FINITE)),
    )
    scale = alt.Scale(type="log", nice=False, padding=8) if PANELS[name] else alt.Scale(zero=False)
    axis = alt.Axis(format="~g", values=log_ticks(shown["y"])) if PANELS[name] else alt.Undefined
    up = alt.Y("y:Q", title=None, scale=scale, axis=axis)
    across = alt.X("layer:Q", title="layer", axis=integer_axis(shown["layer"]), scale=alt.Scale(nice=False))
    laws = list(dict.fromkeys(shown["law"]))
    dashes = alt.StrokeDash(
        "law:N",
        title=None,
        scale=alt.Scale(domain=laws, range=[[4, 4] if law == INFINITE else [1, 0] for law in laws]),
        legend=alt.Legend(symbolType="stroke", symbolSize=400, symbolStrokeWidth=2)
        if len(laws) > 1
        else None,
    )
    base = alt.Chart(inline_data(shown.to_dicts())).encode(x=across)
    finite = base.transform_filter(alt.datum.law != INFINITE).encode(color=colour_encoding(colours))
    band = finite.mark_area(opacity=0.25).encode(
        y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q", detail="law:N"
    )
    limit = base.transform_filter(alt.datum.law == INFINITE)
    limit = limit.encode(color=colour_encoding(colours) if len(colours) > 1 else alt.value(DARK))
    lines = [part.mark_line(strokeWidth=1.6).encode(y=up, strokeDash=dashes) for part in (finite, limit)]
    width, height = PANEL
    return alt.layer(band, *lines).properties(width=width, height=height, title=panel_title(title))
