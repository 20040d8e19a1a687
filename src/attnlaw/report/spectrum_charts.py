"""Spectra of random multi-head attention: a draw under the density of its law, a panel for each layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.report.density_marks import BARS, histogram
from attnlaw.report.labels import varied
from attnlaw.report.marks import PANEL, Figure, over
from attnlaw.report.style import PALETTE, inline

if TYPE_CHECKING:
    from attnlaw.base.charts import Own
    from attnlaw.report.source import Source

SPIKE = "The triangle is where keys of unequal length are expected to put one value (an extension)."
ACROSS = "singular value / root of the mean square"
ATOM = "Zeros are written, not drawn."


def spectra(chart: Own, source: Source) -> Iterator[Figure]:
    """One figure of all layers that were drawn, each once."""
    laws, values = source.frame("law_densities"), source.frame("drawn_values")
    if not (source.has(laws, "x", "density") and source.has(values, "value")):
        return
    told = varied(source.rows, [name for name in source.settings if name != "name"])
    drawn = source.rows.filter(pl.col(source.key).is_in(values[source.key].to_list()))
    once = drawn.unique(["name", *told], keep="first", maintain_order=True)
    panels = [
        _panel(source, row, laws, values, told if row["name"] is None else []) for row in once.to_dicts()
    ]
    notes = [SPIKE] if any(panel["spike"] is not None for panel in panels) else []
    notes += [ATOM] if any(panel["atom"] > 0 for panel in panels) else []
    yield source.figure(chart, {}, partial(_draw, panels), " ".join(notes))


def _panel(
    source: Source, row: dict[str, Any], laws: pl.DataFrame, values: pl.DataFrame, told: list[str]
) -> dict[str, Any]:
    """What one panel shows: singular values s, `s^2 = x/mean`, which tame the density at a hard edge."""
    key, mean, atom = row[source.key], row["mean"], row["atom_at_zero"]
    every = (values.filter(pl.col(source.key) == key)["value"] / mean).sqrt().to_numpy()
    kept = every[every > 0] if atom > 0 else every
    s = (pl.col("x") / mean).sqrt()
    law = laws.filter(pl.col(source.key) == key).select(
        x=s, density=2 * s * mean * pl.col("density"), detail=pl.col("interval")
    )
    # The density is zero at its edges, but for a hard one.
    ends = [
        {"x": (end / mean) ** 0.5, "density": 0.0, "detail": place // 2}
        for place, end in enumerate(row["edges"])
        if end > 0
    ]
    bars = histogram(kept, law["x"].to_numpy(), every.size, "drawn")
    most = 1.25 * max(bar["height"] for bar in bars)
    title = row["name"] or source.names.told({name: row[name] for name in told})
    return {
        "title": title + (f" (zeros {atom:.3f})" if atom > 0 else ""),
        "bars": bars,
        "line": sorted([*law.to_dicts(), *ends], key=lambda point: point["x"]),
        "most": most,
        "spike": (row["spike"] / mean) ** 0.5 if row["spike"] and row["centring"] == "mean" else None,
        "atom": atom,
    }


def _draw(panels: list[dict[str, Any]]) -> Any:
    import altair as alt

    drawn = []
    for panel in panels:
        bars = alt.Chart(inline(panel["bars"])).mark_bar(color=BARS, stroke="white", strokeWidth=0.3)
        line = alt.Chart(inline(panel["line"])).mark_line(color=PALETTE[0], clip=True)
        y = alt.Y("height:Q", title="density", scale=alt.Scale(domain=[0.0, panel["most"]]))
        layers = [
            bars.encode(x=alt.X("left:Q"), x2="right:Q", y=y, y2="floor:Q"),
            line.encode(x=alt.X("x:Q", title=ACROSS), y="density:Q", detail="detail:N"),
        ]
        if panel["spike"] is not None:
            mark = alt.Chart(inline([{"x": panel["spike"], "y": 0.0}])).mark_point(
                shape="triangle-up", size=60, filled=True, color=PALETTE[1]
            )
            layers.append(mark.encode(x="x:Q", y="y:Q"))
        chart = alt.layer(*layers).properties(width=PANEL[0], height=PANEL[1], title=over(panel["title"]))
        drawn.append(chart)
    return alt.concat(*drawn, columns=2)
