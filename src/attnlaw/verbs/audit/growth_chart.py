"""How proxies grow with depth and width over several models: the figure, and the part of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from attnlaw.analysis.audit.growth import exponent_text, growth_reason, growth_sentence, growth_table
from attnlaw.core.result import Result
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.encodings import EXTENT, inline_data, panel_title
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import Section, figure_section
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs.audit.terminal import growth_columns

DRAWN = ("spectrum_adaptive", "edelman", "trauger_tewari")
AXES = {"depth": "layers (L)", "hidden_size": "width (N)"}
OTHER_AXIS = {"depth": "hidden_size", "hidden_size": "depth"}
EXPONENT = {"depth": "depth", "hidden_size": "width"}
TITLE = "Growth with depth and width"
CAPTION = (
    "Each dot is a model, and lines connect the means of models of equal size. Left: proxy at each depth, "
    "for a fixed width. Right: proxy at each width, for a fixed depth. Titles show the least-squares "
    "exponents. A small exponent is good: arXiv 2605.07297 finds that the spectrum-adaptive proxy has the "
    "smallest. If a line bends upwards, the growth is exponential, and its exponent is only an average."
)


def _prepare(result: Result) -> Result:
    columns = [f"log10_{name}" for name in BOUNDS]
    about = ["model", "adapter", "layers", "status", "remark", VERSION_COLUMN]
    kept = [*about, "depth", "hidden_size", *columns]
    return replace(result, rows=result.rows.select(kept))


@chart(TITLE, CAPTION, prepare=_prepare)
def growth(view: ChartView) -> Drawings:
    """Draw how the proxies of three or more models grow with depth or width."""
    if growth_reason(view.rows) is None:
        yield Drawing(partial(draw_growth, view.rows, growth_table(view.rows)))


def draw_growth(rows: pl.DataFrame, exponents: pl.DataFrame) -> alt.VConcatChart:
    """Draw the proxies of the models in `rows` over depth and over width, with fits from `growth_table`."""
    fits = {row["proxy"]: row for row in exponents.iter_rows(named=True)}
    varied = [axis for axis in AXES if rows[axis].n_unique() > 1]
    lines = []
    for name in DRAWN:
        if name in fits:
            panels = [
                _panel(
                    rows.select(*AXES, log10_proxy=f"log10_{name}"),
                    axis,
                    f"{BOUNDS[name].short} ~ {EXPONENT[axis]}^{exponent_text(fits[name], EXPONENT[axis])}",
                )
                for axis in varied
            ]
            lines.append(alt.hconcat(*panels).resolve_scale(color="independent"))
    return alt.vconcat(*lines).resolve_scale(color="independent")


def _panel(table: pl.DataFrame, axis: str, title: str) -> alt.LayerChart:
    other = OTHER_AXIS[axis]
    sizes, levels = (sorted(table[name].unique().to_list()) for name in (axis, other))
    x = alt.X(
        f"{axis}:Q",
        title=AXES[axis],
        scale=alt.Scale(type="log", base=2, nice=False, padding=8),
        axis=alt.Axis(values=sizes, format="d"),
    )
    y = alt.Y(
        "log10_proxy:Q",
        title="proxy (log₁₀)",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(format="~g", tickCount=6, minExtent=EXTENT),
    )
    colours = [PALETTE[place % len(PALETTE)] for place in range(len(levels))]
    legend = alt.Legend(title=AXES[other]) if len(levels) > 1 else None
    color = alt.Color(f"{other}:O", scale=alt.Scale(domain=levels, range=colours), legend=legend)
    means = table.group_by(axis, other).agg(pl.col("log10_proxy").mean()).sort(other, axis)
    line = alt.Chart(inline_data(means), title=panel_title(title)).mark_line()
    dots = alt.Chart(inline_data(table)).mark_point(size=28, filled=True)
    layers = [part.encode(x=x, y=y, color=color) for part in (line, dots)]
    return alt.layer(*layers).properties(width=250, height=150)


def growth_section(rows: pl.DataFrame, figures: Sequence[Figure]) -> Section | None:
    """Return the section with the figure and the exponents of every proxy, if there are any."""
    if growth_reason(rows) is not None:
        return None
    table = growth_table(rows)
    columns = growth_columns(table)
    shown = pl.DataFrame({column.title.replace("\n", " "): column.cells for column in columns})
    section = figure_section("growth", TITLE, figures, growth_sentence(rows, table))
    return section and replace(section, body=section.body + frame_html(shown, shown.columns))
