"""Charts of fitted laws: which law each head follows, and one spectrum with its law and its null."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.report.audit_charts import KIND_NAMES
from attnlaw.report.style import PALETTE

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
                alt.X(f"{across}:O", title=across, axis=alt.Axis(labelAngle=0))
                if across
                else alt.value(CELL / 2)
            )
            panels.append(
                alt.Chart(alt.Data(values=own.to_dicts()), title=KIND_NAMES.get(kind, kind))
                .mark_rect(stroke="white", strokeWidth=1, **({} if across else {"width": CELL}))
                .encode(x=x, y=alt.Y("layer:O", title=None, axis=bare) if panels else named, color=colour)
                .properties(
                    width=CELL * (own[across].n_unique() if across else 1),
                    height=CELL * own["layer"].n_unique(),
                )
            )
        lines.append(
            alt.hconcat(
                *panels, spacing=12, title=alt.TitleParams(_short(str(model)), anchor="start", fontSize=12)
            )
        )
    return alt.vconcat(*lines, spacing=18)


def fitted_spectrum(
    singular_values: list[float], null: pl.DataFrame, law: pl.DataFrame | None, name: str | None = None
) -> Any:
    """Histogram of one spectrum with the density of its null, and of its law where it has one of its own.

    `null` and `law` have columns `x` and `density` in units of singular values.
    """
    import altair as alt

    names = ["null"] + ([name or "law"] if law is not None else [])
    bars = _histogram(singular_values)
    lines = [
        row | {"curve": label}
        for label, curve in zip(names, (null, law), strict=False)
        if curve is not None
        for row in curve.select("x", "density").to_dicts()
    ]
    top = 1.15 * max(bar["density"] for bar in bars)
    x = alt.Scale(domain=[0, 1.03 * max(singular_values)], nice=False)
    y = alt.Scale(domain=[0, top])
    histogram = (
        alt.Chart(alt.Data(values=bars))
        .mark_rect(color="#CFD8DC", stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("low:Q", scale=x, title="singular value"),
            x2="high:Q",
            y=alt.Y("density:Q", scale=y, title="density"),
            y2=alt.datum(0),
        )
    )
    curves = (
        alt.Chart(alt.Data(values=lines))
        .mark_line(clip=True)
        .encode(
            x=alt.X("x:Q", scale=x),
            y=alt.Y("density:Q", scale=y),
            color=alt.Color(
                "curve:N",
                title=None,
                scale=alt.Scale(domain=names, range=["#555555", PALETTE[1]][: len(names)]),
            ),
            strokeDash=alt.StrokeDash(
                "curve:N", title=None, scale=alt.Scale(domain=names, range=[[4, 3], [1, 0]][: len(names)])
            ),
        )
    )
    return (histogram + curves).properties(width=300, height=180)


def _histogram(values: list[float], most: int = 40) -> list[dict[str, float]]:
    count = max(8, min(most, round(len(values) ** 0.5 * 2)))
    width = max(values) / count
    heights = [0] * count
    for value in values:
        heights[min(int(value / width), count - 1)] += 1
    return [
        {"low": i * width, "high": (i + 1) * width, "density": height / (len(values) * width)}
        for i, height in enumerate(heights)
    ]


def _short(model: str) -> str:
    """The last part of a path."""
    return model.rstrip("/").rsplit("/", 1)[-1] or model
