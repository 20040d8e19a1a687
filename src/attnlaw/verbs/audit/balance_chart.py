"""The balance of the factors of every head against the layer, beside that of random factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.figure import EXTENT, Figure, colour_encoding, palette, panel_title
from attnlaw.render.charts.style import inline_data, integer_axis, log_ticks
from attnlaw.verbs.audit.frames import KINDS

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

COLUMNS = ("factor_excess", "factor_excess_weights", "factor_excess_null")
HALF_LINE = 0.35  # of the line of random factors, in layers


def balance(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """The figure, if some head has an excess above zero."""
    matrices = source.frame("matrices")
    if {*COLUMNS} <= {*matrices.columns} and matrices.filter(pl.col("factor_excess") > 0).height:
        yield source.figure(chart, {}, partial(draw_excesses, matrices, source.value_labels.short["model"]))


def draw_excesses(matrices: pl.DataFrame, labels: Mapping[str, str]) -> Any:
    """Dots of the excess of each head by kind, logarithmic; rings without the bias of queries."""
    import altair as alt

    known = matrices.filter(pl.col("factor_excess") > 0).with_columns(
        series=pl.col("model").replace_strict(labels)
    )
    shade = colour_encoding(palette(labels[model] for model in dict.fromkeys(known["model"])))
    numbers = known["layer"].to_list()
    scale = alt.Scale(domain=[min(numbers) - 0.5, max(numbers) + 0.5], nice=False)
    x = alt.X("layer:Q", title="layer", scale=scale, axis=integer_axis(known["layer"]))
    panels = []
    for kind in (kind for kind in KINDS if kind in set(known["kind"])):
        heads = known.filter(pl.col("kind") == kind).rename({"factor_excess": "excess"})
        up = alt.Scale(type="log", domain=_domain(heads), nice=False)
        axis = alt.Axis(format="~g", minExtent=EXTENT, values=log_ticks(_domain(heads)))
        y = alt.Y("excess:Q", title="excess of the factors", scale=up, axis=axis)
        dots = alt.Chart(inline_data(heads.select("series", "layer", "excess").to_dicts()))
        layers = [dots.mark_point(filled=True, size=20, opacity=0.7).encode(x=x, y=y, color=shade)]
        biased = heads.filter(pl.col("factor_excess_weights") != pl.col("excess"))
        if biased.height:
            rings = biased.select("series", "layer", excess="factor_excess_weights").to_dicts()
            hollow = alt.Chart(inline_data(rings)).mark_point(filled=False, size=20, strokeWidth=0.8)
            layers.append(hollow.encode(x=x, y=y, color=shade))
        nulls = heads.filter(pl.col("factor_excess_null") > 0).select(
            "series",
            start=pl.col("layer") - HALF_LINE,
            end=pl.col("layer") + HALF_LINE,
            excess="factor_excess_null",
        )
        rules = alt.Chart(inline_data(nulls.unique(maintain_order=True).to_dicts())).mark_rule(
            strokeWidth=1.5
        )
        layers.append(
            rules.encode(x=alt.X("start:Q", title="layer", scale=scale), x2="end:Q", y=y, color=shade)
        )
        panel = alt.layer(*layers).properties(title=panel_title(KINDS[kind].label), width=250, height=180)
        panels.append(panel)
    return alt.concat(*panels, columns=2)


def _domain(heads: pl.DataFrame) -> list[float]:
    """What a logarithmic axis spans, with some room at both ends."""
    drawn = [value for name in ("excess", *COLUMNS[1:]) for value in heads[name].drop_nulls() if value > 0]
    return [min(drawn) / 1.3, max(drawn) * 1.3]
