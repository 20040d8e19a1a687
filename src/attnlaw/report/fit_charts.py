"""The chart of fitted laws: which law each head and matrix follows."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.report.audit_charts import KIND_NAMES
from attnlaw.report.style import PALETTE, as_title

LAW_COLOURS = {
    "random": "#BBBBBB",
    "learned": PALETTE[2],
    "heavy-tailed": PALETTE[1],
    "power-law tail": PALETTE[5],
    "neither": PALETTE[0],
}
CELL = 15


def law_map(fits: pl.DataFrame) -> Any:
    """Layer by head, coloured by the law, one row of panels per model; feed-forward matrices as a last panel.

    `fits` has the columns `model`, `layer`, `head`, `expert`, `kind` and `law` of the table of fits.
    """
    import altair as alt

    colour = alt.Color(
        "law:N",
        title=None,
        scale=alt.Scale(domain=list(LAW_COLOURS), range=list(LAW_COLOURS.values())),
        legend=alt.Legend(orient="bottom", direction="horizontal", symbolType="square"),
    )
    kinds = [
        kind for kind in dict.fromkeys(fits["kind"]) if fits.filter(kind=kind)["layer"].null_count() == 0
    ]
    named, bare = alt.Y("layer:O", title="layer"), alt.Axis(labels=False, ticks=False, domain=False)
    lines = []
    for model in dict.fromkeys(fits["model"]):
        rows = fits.filter(pl.col("model") == model, pl.col("layer").is_not_null())
        panels: list[Any] = []
        for kind in kinds:
            own = rows.filter(pl.col("kind") == kind).select("layer", "head", "expert", "law")
            across = next((name for name in ("head", "expert") if own[name].null_count() < own.height), None)
            x = (
                {"x": alt.X(f"{across}:O", title=across, axis=alt.Axis(labelAngle=0))}
                if across
                else {"x": alt.value(0), "x2": alt.value("width")}
            )
            panels.append(
                alt.Chart(alt.Data(values=own.to_dicts()), title=KIND_NAMES.get(kind, kind))
                .mark_rect(stroke="white", strokeWidth=1)
                .encode(y=alt.Y("layer:O", title=None, axis=bare) if panels else named, color=colour, **x)
                .properties(
                    width=CELL * (own[across].n_unique() if across else 1),
                    height=CELL * own["layer"].n_unique(),
                )
            )
        lines.append(
            alt.hconcat(
                *panels,
                spacing=12,
                title=alt.TitleParams(as_title(_short(str(model))), anchor="start", fontSize=12),
            )
        )
    return alt.vconcat(*lines, spacing=18)


def _short(model: str) -> str:
    """The last part of a path."""
    return model.rstrip("/").rsplit("/", 1)[-1] or model
