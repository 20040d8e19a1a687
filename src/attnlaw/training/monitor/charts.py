"""Draw a monitored run: one panel for each quantity against the step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.core.tables import nan_to_null
from attnlaw.render.charts.encodings import colour_encoding, inline_data
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import palette
from attnlaw.training.monitor.columns import PANELS

CAPTION = (
    "Each panel shows a quantity at each training step. If the stable rank falls and more directions become "
    "larger than random weights make them, a few directions take over. If the proxies keep growing, the "
    "norms of the weights keep growing too."
)
STILL_TOLERANCE = 1e-3  # smaller relative changes count as constant


@dataclass(frozen=True)
class ColumnChange:
    """The first and last value of a column, over the steps of one model."""

    first: float
    last: float

    @property
    def size(self) -> float:
        """The change relative to the larger of the two values."""
        return abs(self.last - self.first) / (max(abs(self.first), abs(self.last)) or 1.0)


def steps(result: Result) -> Figure | None:
    """Draw the steps of all models. Return None if there are no measurements.

    The quantity that changes most comes first. Quantities that stay constant over several steps are left out.
    """
    rows = nan_to_null(result.tables["steps"])
    known, order = panel_order(rows)
    if not known:
        return None
    still = [title for title, lines in known.items() if all(_is_still(rows, name) for name in lines)]
    panels = {title: known[title] for title in order if title not in still} or known
    constant = f"Not drawn, because they stay the same: {'; '.join(still)}." if still else ""
    caption = f"{largest_change_sentence(rows, known[order[0]], order[0])} {constant} {CAPTION}"
    drawing = partial(step_charts, rows, panels)
    return Figure("steps", "Spectra during training", " ".join(caption.split()), drawing)


def panel_order(rows: pl.DataFrame) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the panels that have values, and their titles. The one with the largest change comes first."""
    panel_lines = {
        title: {name: label for name, label in lines.items() if name in rows.columns and rows[name].count()}
        for title, lines in PANELS.items()
    }
    known = {title: lines for title, lines in panel_lines.items() if lines}
    sizes = {title: max(_largest_change(rows, name).size for name in known[title]) for title in known}
    return known, sorted(known, key=lambda title: -sizes[title])


def _largest_change(rows: pl.DataFrame, name: str) -> ColumnChange:
    changes = [ColumnChange(0.0, 0.0)]
    for _, model_rows in rows.sort("step").group_by("model", maintain_order=True):
        values = model_rows[name].drop_nulls()
        if values.len():
            changes.append(ColumnChange(float(values[0]), float(values[-1])))
    return max(changes, key=lambda change: change.size)


def _is_still(rows: pl.DataFrame, name: str) -> bool:
    column = pl.col(name)
    spreads = rows.group_by("model").agg(low=column.min(), high=column.max(), steps=column.count())
    return all(
        low is None or (steps > 1 and high - low <= STILL_TOLERANCE * max(abs(low), abs(high)))
        for _, low, high, steps in spreads.iter_rows()
    )


def largest_change_sentence(rows: pl.DataFrame, lines: dict[str, str], title: str) -> str:
    """Return a sentence about the quantity that changed most, or an empty text if none changed."""
    name = max(lines, key=lambda column: _largest_change(rows, column).size)
    move = _largest_change(rows, name)
    if move.size <= STILL_TOLERANCE:
        return ""
    return f"Largest change: {title} ({lines[name]}), from {move.first:.3g} to {move.last:.3g}."


def step_charts(rows: pl.DataFrame, panels: dict[str, dict[str, str]]) -> Any:
    models = list(dict.fromkeys(rows["model"]))
    legend = alt.Legend(title=None, symbolStrokeColor="#888888")
    dash = alt.StrokeDash("model:N", scale=alt.Scale(domain=models), legend=legend)
    drawn = []
    for title, lines in panels.items():
        long = rows.unpivot(list(lines), index=["step", "model"], variable_name="series").drop_nulls("value")
        points = long.with_columns(pl.col("series").replace_strict(lines))
        dots = alt.OverlayMarkDef(size=14, filled=True)
        left = alt.Axis(minExtent=30, tickCount=5)
        encoded = (alt.Chart(inline_data(points), title=title).mark_line(point=dots)).encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=5, format="~s")),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=left),
            color=colour_encoding(palette(lines.values()), legend_for_one=True),
        )
        dashed = encoded.encode(strokeDash=dash) if len(models) > 1 else encoded
        drawn.append(dashed.properties(width=230, height=150))
    return alt.concat(*drawn, columns=2).resolve_scale(color="independent")
