"""A real training run beside the theory: spectra over steps and over times, and which modes leave first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.report.dynamics_charts import ridge
from attnlaw.report.labels import cases
from attnlaw.report.marks import HEIGHT, WIDTH, Figure, colour, palette
from attnlaw.report.source import Source, same_settings
from attnlaw.report.style import PALETTE, inline

if TYPE_CHECKING:
    from attnlaw.base.charts import Own

KIND = "qk"
LABEL = "value over the bulk's edge"


def spectra(chart: Own, source: Source) -> Iterator[Figure]:
    """Two ridges, one for each run."""
    for case, own, others in _runs(source, "values", ("bulk", "theory", "theory_modes")):
        yield source.figure(chart, case, partial(beside, own.filter(pl.col("kind") == KIND), *others))


def order(chart: Own, source: Source) -> Iterator[Figure]:
    """Two clouds, one for each run."""
    for case, own, (theory,) in _runs(source, "modes", ("theory_modes",)):
        told = own.drop_nulls("left_step")
        if told.height:
            yield source.figure(chart, case, partial(clouds, told, theory))


def _runs(
    source: Source, table: str, others: tuple[str, ...]
) -> Iterator[tuple[Any, pl.DataFrame, list[Any]]]:
    rows = source.frame(table)
    if not source.has(rows, "strength"):
        return
    for case, own in cases(rows, source.others(rows, ["step"])):
        yield case, own, [same_settings(source.frame(name), own, [], source) for name in others]


def beside(values: pl.DataFrame, bulk: pl.DataFrame, theory: pl.DataFrame, modes: pl.DataFrame) -> Any:
    """The run's ridge and the theory's."""
    import altair as alt

    steps = sorted(values["step"].unique())
    null = pl.concat(
        [
            bulk.select(x="strength", density="density").with_columns(time=pl.lit(float(step)))
            for step in steps
        ]
    )
    out = values.filter(pl.col("strength") > 1).select(
        time=pl.col("step").cast(pl.Float64), location="strength"
    )
    told = values.select(time=pl.col("step").cast(pl.Float64), eigenvalue="strength")
    left = ridge(null, out, told, LABEL, lambda step: f"step {step:.0f}")
    times = theory["time"].unique().to_list()
    tracks = modes.filter(pl.col("time").is_in(times)).select("time", location="strength")
    right = ridge(theory.select("time", x="strength", density="density"), tracks, None, LABEL)
    return alt.hconcat(
        left.properties(title="The decoder's QK heads"),
        right.properties(title="Theory, one head"),
        spacing=30,
    )


def clouds(modes: pl.DataFrame, theory: pl.DataFrame) -> Any:
    """Strength against the step, or the time, at which a mode left the bulk."""
    import altair as alt

    last = theory.filter(pl.col("time") == theory["time"].max())
    log = alt.Scale(type="log", nice=False, padding=6)
    y = alt.Y("strength:Q", title=LABEL, scale=log)
    run = alt.Chart(
        inline(modes.select("left_step", "strength", "kind").to_dicts()), title="The decoder's heads"
    )
    points = run.mark_point(filled=True, size=30, opacity=0.7).encode(
        x=alt.X("left_step:Q", title="step at which it left the bulk", scale=log),
        y=y,
        color=colour(palette(modes["kind"].unique().sort()), "kind", always=True),
    )
    line = alt.Chart(inline(last.select("left_time", "strength").to_dicts()), title="Theory, one head")
    spikes = line.mark_line(point=True, color=PALETTE[0]).encode(
        x=alt.X("left_time:Q", title="τ at which it left the bulk", scale=log), y=y
    )
    sizes = {"width": WIDTH, "height": HEIGHT}
    return alt.hconcat(points.properties(**sizes), spikes.properties(**sizes), spacing=30).resolve_scale(
        y="independent"
    )
