"""Charts of numbers against one other number: a study's setting, or the steps of a training run."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.report.style import PALETTE, inline

# Columns of the steps of a training run begin with these.
STEP_QUANTITIES = {
    "log10_": "log10 proxy",
    "stable_rank_": "stable rank, median",
    "outliers_": "outliers, total",
    "alpha_": "tail exponent α, median",
}


def series_chart(rows: pl.DataFrame, x: str, y: str, title: str, error: str | None = None) -> Any:
    """One line per value of the column `series`, y against x; a text on the x axis gives points only.

    `error` is the column of standard errors, which are drawn as bars.
    """
    import altair as alt

    numeric = rows[x].dtype.is_numeric()
    bars = {} if error is None else {"low": pl.col(y) - pl.col(error), "high": pl.col(y) + pl.col(error)}
    values = rows.select(x, y, "series", **bars)
    base = alt.Chart(inline(values.to_dicts())).encode(
        x=alt.X(
            f"{x}:{'Q' if numeric else 'N'}",
            title=x.replace("_", " "),
            scale=alt.Scale(zero=False) if numeric else alt.Undefined,
        ),
        y=alt.Y(f"{y}:Q", title=title, scale=alt.Scale(zero=False)),
        color=_colour(alt, rows["series"]),
    )
    layers = [base.mark_line()] if numeric else []
    if bars:
        layers.append(base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=title), y2="high:Q"))
    layers.append(base.mark_point(filled=True, size=26, opacity=1))
    return alt.layer(*layers).properties(width=340, height=220)


def step_charts(rows: pl.DataFrame) -> Any | None:
    """A panel per quantity against the training step, a line per group of matrices, dashes per model.

    Rows are those of `records.steps_schema`; None where no quantity was measured.
    """
    import altair as alt

    models = list(dict.fromkeys(rows["model"]))
    panels = []
    for prefix, title in STEP_QUANTITIES.items():
        names = [name for name in rows.columns if name.startswith(prefix) and rows[name].count()]
        if not names:
            continue
        long = rows.unpivot(names, index=["step", "model"], variable_name="series").drop_nulls("value")
        own = long.with_columns(pl.col("series").str.strip_prefix(prefix).str.replace_all("_", " "))
        chart = alt.Chart(inline(own.to_dicts()), title=title).mark_line(
            point=alt.OverlayMarkDef(size=14, filled=True)
        )
        dash = alt.StrokeDash(
            "model:N",
            scale=alt.Scale(domain=models),
            legend=alt.Legend(title=None, symbolStrokeColor="#888888"),
        )
        encoded = chart.encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=5, format="~s")),
            y=alt.Y(
                "value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=30, tickCount=5)
            ),
            color=_colour(alt, own["series"], always=True),
        )
        drawn = encoded.encode(strokeDash=dash) if len(models) > 1 else encoded
        panels.append(drawn.properties(width=230, height=150))
    return alt.concat(*panels, columns=2).resolve_scale(color="independent") if panels else None


def _colour(alt: Any, series: pl.Series, always: bool = False) -> Any:
    """One colour a series; a single series needs no legend, unless it is `always` to be named."""
    names = list(dict.fromkeys(series))
    scale = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    legend = alt.Legend(title=None) if always or len(names) > 1 else None
    return alt.Color("series:N", scale=scale, legend=legend)
