"""The chart of a lens: what flows between tokens by the exact operator, and by attention rollout."""

from __future__ import annotations

from html import escape
from typing import Any

import polars as pl

from attnlaw.report.style import styled


def token_maps(rows: pl.DataFrame) -> Any:
    """The two maps side by side on one scale of colour (a square root), each row of a map summing to 1.

    Rows, one per pair of tokens: `output`, `output_id`, `input`, `input_id` (positions and token ids),
    `norm`, `error` (of the norm), `share`, `rollout`.
    """
    import altair as alt

    tokens = int(rows["input"].max()) + 1  # type: ignore[arg-type]
    label = pl.concat_str(pl.col("input"), pl.lit(" · "), pl.col("input_id"))
    names = rows.filter(pl.col("output") == 0).sort("input").select(label)["input"].to_list()
    data = rows.with_columns(
        source=pl.col("input").map_elements(lambda j: names[j], return_dtype=pl.String),
        target=pl.col("output").map_elements(lambda i: names[i], return_dtype=pl.String),
    )
    top = max(float(rows["share"].max()), float(rows["rollout"].max()))  # type: ignore[arg-type]
    # Whole pixels a cell, so that no seams show: about 300 in all, 26 a cell where tokens are few.
    side = tokens * max(1, min(300 // tokens, max(26, 150 // tokens)))
    plain = {"labelOverlap": True, "ticks": False, "domain": False, "grid": False}
    x = alt.X(
        "source:N", sort=names, title="input token (position · id)", axis=alt.Axis(labelAngle=-90, **plain)
    )
    base = alt.Chart(alt.Data(values=data.to_dicts())).mark_rect()
    panels: list[Any] = []
    for field, title in (("share", "exact operator: block norms"), ("rollout", "attention rollout")):
        colour = alt.Color(
            f"{field}:Q",
            title="share of the row",
            scale=alt.Scale(type="sqrt", scheme="viridis", domain=[0, top]),
            legend=alt.Legend(gradientLength=min(side, 160), format=".2~f"),
        )
        y = alt.Y(
            "target:N",
            sort=names,
            title="output token" if not panels else None,
            axis=alt.Axis(labelOpacity=0 if panels else 1, **plain),  # hidden, so that titles align
        )
        tooltip = ["target:N", "source:N", "norm:Q", "error:Q", "share:Q", "rollout:Q"]
        panels.append(
            base.encode(x=x, y=y, color=colour, tooltip=tooltip).properties(
                width=side, height=side, title=alt.TitleParams(title, anchor="start", frame="group")
            )
        )
    return alt.hconcat(*panels, spacing=24, bounds="flush")


def page_bytes(chart: Any, title: str) -> bytes:
    """A chart as one HTML file that needs no network; the cells tell their values under the pointer."""
    page = styled(chart).to_html(inline=True, embed_options={"actions": False})
    # The charts are dark on white: the page around them stays white on a dark screen, too.
    head = (
        f'<head>\n  <meta charset="utf-8">\n  <title>{escape(title)}</title>\n'
        "  <style>:root { color-scheme: light; background: white } body { margin: 2rem }</style>"
    )
    return str(page).replace("<head>", head, 1).encode()
