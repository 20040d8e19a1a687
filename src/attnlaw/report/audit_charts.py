"""Charts of an audit: heads on a map, and how singular values decay."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.report.style import PALETTE

KIND_NAMES = {
    "qk": "QK",
    "vo": "VO",
    "cross_qk": "cross QK",
    "cross_vo": "cross VO",
    "ffn_in": "FFN in",
    "ffn_gate": "FFN gate",
    "ffn_out": "FFN out",
    "embedding": "embedding",
    "unembedding": "unembedding",
}


def head_map(matrices: pl.DataFrame) -> Any:
    """Layer by head, coloured by the spectral norm of QK and of VO (each on its own logarithmic scale)."""
    import altair as alt

    heads = matrices.filter(pl.col("head").is_not_null()).select("layer", "head", "kind", "spectral_norm")
    panels = []
    for kind in dict.fromkeys(heads["kind"]):
        rows = heads.filter((pl.col("kind") == kind) & (pl.col("spectral_norm") > 0))
        panels.append(
            alt.Chart(alt.Data(values=rows.to_dicts()), title=f"{KIND_NAMES[kind]}: spectral norm")
            .mark_rect()
            .encode(
                x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0)),
                y=alt.Y("layer:O", title="layer"),
                color=alt.Color(
                    "spectral_norm:Q",
                    title=None,
                    scale=alt.Scale(type="log", scheme="viridis"),
                    legend=alt.Legend(gradientLength=110, tickCount=3),
                ),
            )
            .properties(
                width=max(120, 18 * (heads["head"].n_unique())),
                height=max(90, 16 * heads["layer"].n_unique()),
            )
        )
    return alt.hconcat(*panels).resolve_scale(color="independent")


def decay(spectra: pl.DataFrame) -> Any:
    """Singular values over the largest against their relative rank: the median over matrices of a kind.

    The band holds the middle half of the matrices of that kind.
    """
    import altair as alt

    points = 60
    rows = []
    for (kind,), group in spectra.group_by("kind", maintain_order=True):
        grid = [i / (points - 1) for i in range(points)]
        curves = [_resampled(values, grid) for values in group["singular_values"].to_list() if values[0] > 0]
        if not curves:
            continue
        for i, position in enumerate(grid):
            column = pl.Series([curve[i] for curve in curves])
            rows.append(
                {
                    "kind": KIND_NAMES[str(kind)],
                    "position": position,
                    "median": column.median(),
                    "low": column.quantile(0.25),
                    "high": column.quantile(0.75),
                }
            )
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("position:Q", title="rank / number of singular values"),
        color=alt.Color(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=kinds, range=list(PALETTE[: len(kinds)])),
            legend=alt.Legend(symbolOpacity=1),
        ),
    )
    y = alt.Scale(type="log")
    band = base.mark_area(opacity=0.18, clip=True).encode(y=alt.Y("low:Q", scale=y), y2="high:Q")
    line = base.mark_line(clip=True).encode(
        y=alt.Y("median:Q", scale=y, title="singular value / largest", axis=alt.Axis(format=".0e"))
    )
    return (band + line).properties(width=380, height=240)


def _resampled(values: list[float], grid: list[float]) -> list[float]:
    """values / values[0] at relative ranks, floored at 1e-8 (a logarithmic axis has no zero)."""
    last = len(values) - 1
    return [max(values[round(position * last)] / values[0], 1e-8) for position in grid]
