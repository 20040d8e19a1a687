"""The figure of docs/theory/atlas.md: every column of the atlas over its models, trained next to untrained.

    python docs/scripts/atlas_figure.py [FILE.svg]

writes docs/screenshots/atlas.svg unless told otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.atlas.atlas import load_atlas
from attnlaw.analysis.atlas.columns import APPLIED, COLUMNS, AtlasColumn
from attnlaw.core.files import write_all
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.style import PALETTE, draw_svg, house_spec

ROOT = Path(__file__).resolve().parents[2]
ACROSS = 5  # panels side by side
FRESH = {"rxnfp-pretrained": "fresh-rxnfp", "rxnfp-finetuned": "fresh-rxnfp", "rxnfp-10k": "fresh-rxnfp"}
TICKS = [factor * 10.0**power for power in range(-2, 3) for factor in (1, 3)]  # of logarithmic axes
TRAINED, DRAWN = "trained", "untrained, of its shape"


def points(values: pl.DataFrame) -> list[dict[str, Any]]:
    """One row per trained model and one for the fresh model of its shape, on the same line."""
    rows = {row["model"]: row for row in values.iter_rows(named=True)}
    dots = []
    for name, row in rows.items():
        if row["trained"]:
            fresh = rows[FRESH.get(name, f"fresh-{name}")]
            dots += [{"line": name, "state": TRAINED, **row}, {"line": name, "state": DRAWN, **fresh}]
    return dots


def chart(values: pl.DataFrame) -> Any:
    """A panel per column: models on lines, a dot for the trained and a ring for the fresh one."""
    import altair as alt

    rows = points(values)
    shown = [column for column in COLUMNS.values() if column.norms in (None, APPLIED)]
    order = list(dict.fromkeys(row["line"] for row in rows))
    panels = [_panel(column, rows, order, first=not place % ACROSS) for place, column in enumerate(shown)]
    lines = [alt.hconcat(*panels[at : at + ACROSS], spacing=14) for at in range(0, len(panels), ACROSS)]
    return alt.vconcat(*lines, background="white")


def _panel(column: AtlasColumn, rows: list[dict[str, Any]], order: list[str], first: bool) -> Any:
    import altair as alt

    drawn = [{"line": row["line"], "state": row["state"], "value": row[column.name]} for row in rows]
    log = "norm" in column.label
    scale = alt.Scale(type="log" if log else "linear", zero=False, padding=10, nice=False)
    ticks = {"values": TICKS} if log else {"tickCount": 3}
    axis = alt.Axis(format="%" if column.form.endswith("%") else "~f", labelOverlap=True, **ticks)
    y = alt.Y(
        "line:N",
        title="",
        sort=order,
        axis=alt.Axis(labels=first, ticks=False, domain=False, grid=True, labelLimit=120),
    )
    colour = alt.Color(
        "state:N",
        scale=alt.Scale(domain=[TRAINED, DRAWN], range=[PALETTE[0], PALETTE[1]]),
        legend=alt.Legend(title="", orient="bottom"),
    )
    shape = alt.Shape("state:N", scale=alt.Scale(domain=[TRAINED, DRAWN], range=["circle", "diamond"]))
    x = alt.X("value:Q", title="", scale=scale, axis=axis)
    dots = alt.Chart(inline_data(drawn)).mark_point(filled=True, size=48, opacity=0.9)
    return dots.encode(x=x, y=y, color=colour, shape=shape).properties(
        title=alt.TitleParams(column.label, fontSize=11), width=136, height=150
    )


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots" / "atlas.svg"
    write_all({file: draw_svg(house_spec(chart(load_atlas().values))).encode()})
    print("wrote", file)


if __name__ == "__main__":
    main()
