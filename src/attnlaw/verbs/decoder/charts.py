"""A real training run beside the theory: spectra over steps and over times, and which modes leave first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.figure import GREY, HEIGHT, WIDTH, Figure, colour_encoding, palette
from attnlaw.render.charts.style import PALETTE, inline_data
from attnlaw.render.charts.view import ChartView, rows_with_same_settings

KIND = "qk"
LABEL = "value over the bulk's edge"
LEAST, BINS = 0.1, 48  # of the strengths drawn, and bars


def run(result: Result) -> list[Figure]:
    """Two ridges, one for each run."""
    view = ChartView(result)
    rows = view.complete(view.frame("singular_values"), "strength")
    return [
        view.figure(
            "run",
            "Spectra of a real run beside the theory's",
            "Left: singular values of all heads of the decoder (QK) at five steps, each over the "
            "edge of the bulk of its null; the line is that null, what is beyond 1 has left it. Right: "
            "eigenvalues of one student of the theory, spikes of its target as triangles. An analogy, not a "
            "fit.",
            partial(
                draw_ridges,
                values.filter(pl.col("kind") == KIND),
                *_tables_beside(view, values, ("bulk", "theory", "theory_modes")),
            ),
            case,
        )
        for case, values in view.cases(rows, ["step"])
    ]


def order(result: Result) -> list[Figure]:
    """Two clouds, one for each run."""
    view = ChartView(result)
    rows = view.complete(view.frame("modes"), "strength")
    return [
        view.figure(
            "order",
            "Which modes leave first",
            "Each singular value of a head that stands out at the end: how far, against the step at "
            "which it left the bulk; beside it spikes of the theory's target. Stronger first means falling "
            "from left to right; what left earlier also had longer to grow.",
            partial(draw_clouds, dated_modes, *_tables_beside(view, modes, ("theory_modes",))),
            case,
        )
        for case, modes in view.cases(rows, ["step"])
        if (dated_modes := modes.drop_nulls("left_step")).height
    ]


def _tables_beside(view: ChartView, rows: pl.DataFrame, names: Sequence[str]) -> list[pl.DataFrame]:
    """The lines of other tables that belong to the run of some rows."""
    return [rows_with_same_settings(view.frame(name), rows, [], view) for name in names]


def draw_ridges(values: pl.DataFrame, bulk: pl.DataFrame, theory: pl.DataFrame, modes: pl.DataFrame) -> Any:
    """The run's ridge, values as bars under the null's line, and the theory's, spikes as triangles."""
    import altair as alt

    domain = (LEAST, 1.2 * max(*values["strength"].to_list(), *modes["strength"].to_list()))
    steps, times = sorted(values["step"].unique()), sorted(theory["time"].unique())
    run = [
        _panel(f"step {step}", bulk, domain, values.filter(pl.col("step") == step), None, step == steps[0])
        for step in reversed(steps)
    ]
    learned = [
        _panel(
            f"τ = {time:.3g}",
            theory.filter(pl.col("time") == time),
            domain,
            None,
            modes.filter(pl.col("time") == time),
            time == times[0],
        )
        for time in reversed(times)
    ]
    titles = ("The decoder's QK heads", "Theory, one head")
    columns = [
        alt.vconcat(*panels, spacing=2).properties(title=title)
        for panels, title in zip((run, learned), titles, strict=True)
    ]
    return alt.hconcat(*columns, spacing=30)


def _panel(
    title: str,
    density: pl.DataFrame,
    domain: tuple[float, float],
    values: pl.DataFrame | None,
    marks: pl.DataFrame | None,
    last: bool,
) -> Any:
    """One spectrum over the logarithm of the strength: densities are those of the logarithm."""
    import altair as alt
    import numpy as np

    ticks = alt.Axis(labels=last, ticks=last, grid=False, format="~g", tickCount=5)
    x = alt.X(
        "x:Q",
        title=LABEL if last else None,
        axis=ticks,
        scale=alt.Scale(type="log", domain=domain, nice=False, clamp=True),
    )
    y = alt.Y("y:Q", title=None, axis=None)
    layers = []
    if values is not None:
        edges = np.geomspace(*domain, BINS + 1)
        count, _ = np.histogram(values["strength"].to_numpy(), bins=edges)
        heights = count / (values.height * np.log(edges[1] / edges[0]))
        bars = [
            {"x": float(edges[i]), "x2": float(edges[i + 1]), "y": float(heights[i]), "low": 0.0}
            for i in np.flatnonzero(count)
        ]
        layers.append(
            alt.Chart(inline_data(bars)).mark_rect(color="#B8C9D9").encode(x=x, x2="x2:Q", y=y, y2="low:Q")
        )
    drawn = density.filter(pl.col("strength") > domain[0])
    line = drawn.select(x="strength", y=pl.col("density") * pl.col("strength")).to_dicts()
    layers.append(alt.Chart(inline_data(line)).mark_line(color=PALETTE[0]).encode(x=x, y=y))
    if marks is not None and marks.height:
        top = 0.08 * max(point["y"] for point in line)
        places = [{"x": place, "y": top} for place in marks["strength"]]
        spikes = alt.Chart(inline_data(places)).mark_point(
            shape="triangle-down", filled=True, size=60, color="#000000"
        )
        layers.append(spikes.encode(x=x, y=y))
    rule = alt.Chart(inline_data([{"x": 1.0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x)
    named = alt.TitleParams(title, anchor="end", dy=14, frame="group")
    return alt.layer(*layers, rule).properties(width=WIDTH, height=HEIGHT // 3, title=named)


def draw_clouds(modes: pl.DataFrame, theory: pl.DataFrame) -> Any:
    """Strength against the step, or the time, at which a mode left the bulk."""
    import altair as alt

    last = theory.filter(pl.col("time") == theory["time"].max())

    def axis(kind: Any, column: str, title: str) -> Any:
        ticks = alt.Axis(format="~g", tickCount=5)
        return kind(
            f"{column}:Q", title=title, axis=ticks, scale=alt.Scale(type="log", nice=False, padding=8)
        )

    run = alt.Chart(
        inline_data(modes.select("left_step", "strength", "kind").to_dicts()), title="The decoder"
    )
    points = run.mark_point(filled=True, size=30, opacity=0.7).encode(
        x=axis(alt.X, "left_step", "step at which it left the bulk"),
        y=axis(alt.Y, "strength", LABEL),
        color=colour_encoding(palette(modes["kind"].unique().sort()), "kind", legend_for_one=True),
    )
    line = alt.Chart(inline_data(last.select("left_time", "strength").to_dicts()), title="Theory, one head")
    spikes = line.mark_line(point=alt.OverlayMarkDef(color=PALETTE[0]), color=PALETTE[0]).encode(
        x=axis(alt.X, "left_time", "τ at which it left the bulk"),
        y=axis(alt.Y, "strength", LABEL),
    )
    sizes = {"width": WIDTH, "height": HEIGHT}
    return alt.hconcat(points.properties(**sizes), spikes.properties(**sizes), spacing=30).resolve_scale(
        y="independent"
    )
