"""Charts of `decoder`: spectra of the run and of the theory, and which modes leave the bulk first."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.render.charts.densities import ridge_panel
from attnlaw.render.charts.encodings import GREY, HEIGHT, WIDTH, colour_encoding, inline_data
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE, palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart

KIND = "qk"
LABEL = "singular value / edge of the random bulk"
LEAST, BINS = 0.1, 48  # the smallest strength drawn, and the number of bars


@chart(
    "Spectra of a real training run and of the theory",
    "Left: singular values of all heads of the decoder (QK) at five steps, divided by the edge of random "
    "heads. The line shows random heads; values above 1 are larger than those of random heads. Right: "
    "eigenvalues of one student matrix simulated from the theory; triangles mark the large eigenvalues of "
    "its target. This is an analogy, not a fit.",
)
def run(view: ChartView) -> Drawings:
    """Draw the spectra of a training run at several steps, and those of the theory at several times."""
    for case, values in view.cases(view.frame("singular_values", "strength"), ["step"]):
        tables = [view.same_settings(view.frame(name), values) for name in ("bulk", "theory", "theory_modes")]
        yield Drawing(partial(draw_ridges, values.filter(pl.col("kind") == KIND), *tables), case)


@chart(
    "Which modes leave first",
    "Each point is a singular value that is outside the random bulk at the end. The x axis shows the step at "
    "which it left the bulk, and the y axis its size. Next to them are the large eigenvalues of the theory's "
    "target. If strong directions leave first, the cloud of points falls from left to right. Directions "
    "that left early also had more time to grow.",
)
def order(view: ChartView) -> Drawings:
    """Draw when each mode left the bulk over its strength, for the training run and for the theory."""
    for case, modes in view.cases(view.frame("modes", "strength"), ["step"]):
        dated_modes = modes.drop_nulls("left_step")
        if dated_modes.height:
            theory = view.same_settings(view.frame("theory_modes"), modes)
            yield Drawing(partial(draw_clouds, dated_modes, theory), case)


def draw_ridges(
    values: pl.DataFrame, bulk: pl.DataFrame, theory: pl.DataFrame, modes: pl.DataFrame
) -> alt.HConcatChart:
    domain = (LEAST, 1.2 * max(*values["strength"].to_list(), *modes["strength"].to_list()))
    steps, times = sorted(values["step"].unique()), sorted(theory["time"].unique())
    run = [
        _panel(f"step {step}", bulk, domain, step == steps[0], values=values.filter(pl.col("step") == step))
        for step in reversed(steps)
    ]
    learned = [
        _panel(
            f"τ = {time:.3g}",
            theory.filter(pl.col("time") == time),
            domain,
            time == times[0],
            spikes=modes.filter(pl.col("time") == time),
        )
        for time in reversed(times)
    ]
    columns = [
        alt.vconcat(*panels, spacing=2).properties(title=title)
        for title, panels in (("The decoder's QK heads", run), ("Theory, one head", learned))
    ]
    return alt.hconcat(*columns, spacing=30)


def _panel(
    title: str,
    density: pl.DataFrame,
    domain: tuple[float, float],
    last: bool,
    values: pl.DataFrame | None = None,
    spikes: pl.DataFrame | None = None,
) -> alt.LayerChart:
    """Draw one spectrum on a logarithmic axis. The density is taken per unit of the logarithm."""
    ticks = alt.Axis(labels=last, ticks=last, grid=False, format="~g", tickCount=5)
    scale = alt.Scale(type="log", domain=domain, nice=False, clamp=True)
    x = alt.X("x:Q", title=LABEL if last else None, axis=ticks, scale=scale)
    drawn = density.filter(pl.col("strength") > domain[0])
    line = drawn.select(x="strength", y=pl.col("density") * pl.col("strength"))
    bars, marks = [], []
    if values is not None:
        edges = np.geomspace(*domain, BINS + 1)
        count, _ = np.histogram(values["strength"].to_numpy(), bins=edges)
        heights = count / (values.height * np.log(edges[1] / edges[0]))
        bars = [
            {"x": float(edges[i]), "x2": float(edges[i + 1]), "y": float(heights[i]), "low": 0.0}
            for i in np.flatnonzero(count)
        ]
    if spikes is not None:
        marks = [{"x": place, "y": 0.08 * max(line["y"])} for place in spikes["strength"]]
    rule = alt.Chart(inline_data([{"x": 1.0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x)
    y = alt.Y("y:Q", title=None, axis=None)
    return ridge_panel(title, line, x, y, rule, bars=bars, marks=marks)


def draw_clouds(modes: pl.DataFrame, theory: pl.DataFrame) -> alt.HConcatChart:
    last = theory.filter(pl.col("time") == theory["time"].max())

    def axis(kind: Any, column: str, title: str) -> Any:
        scale = alt.Scale(type="log", nice=False, padding=8)
        return kind(f"{column}:Q", title=title, axis=alt.Axis(format="~g", tickCount=5), scale=scale)

    run = alt.Chart(inline_data(modes.select("left_step", "strength", "kind")), title="The decoder")
    points = run.mark_point(filled=True, size=30, opacity=0.7).encode(
        x=axis(alt.X, "left_step", "step at which it left the bulk"),
        y=axis(alt.Y, "strength", LABEL),
        color=colour_encoding(palette(modes["kind"].unique().sort()), "kind", legend_for_one=True),
    )
    line = alt.Chart(inline_data(last.select("left_time", "strength")), title="Theory, one head")
    spikes = line.mark_line(point=alt.OverlayMarkDef(color=PALETTE[0]), color=PALETTE[0]).encode(
        x=axis(alt.X, "left_time", "τ at which it left the bulk"), y=axis(alt.Y, "strength", LABEL)
    )
    panels = [panel.properties(width=WIDTH, height=HEIGHT) for panel in (points, spikes)]
    return alt.hconcat(*panels, spacing=30).resolve_scale(y="independent")
