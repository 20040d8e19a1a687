"""Charts of an audit: heads on a map, proxies, amplification and shares by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from attnlaw.auditing.remarks import proxy_entries
from attnlaw.report.style import PALETTE, as_title, inline, whole_axis

KIND_NAMES = {
    "qk": "QK",
    "vo": "VO",
    "cross_qk": "cross QK",
    "cross_vo": "cross VO",
    "ffn_in": "FFN in",
    "ffn_gate": "FFN gate",
    "ffn_out": "FFN out",
    "lora": "LoRA update",
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
            alt.Chart(inline(rows.to_dicts()), title=f"{KIND_NAMES.get(kind, kind)}: spectral norm")
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


def proxy_chart(summaries: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Any:
    """Every proxy of every model as a dot on one logarithmic axis."""
    import altair as alt

    rows = [
        {"model": labels[summary["model"]], "proxy": name, "log10": value}
        for summary in summaries
        for name, value, _ in proxy_entries(summary["proxies"])
    ]
    order = list(dict.fromkeys(row["proxy"] for row in rows))
    return (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x=alt.X("log10:Q", title="log10 proxy", scale=alt.Scale(zero=False)),
            y=alt.Y("proxy:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True)),
            color=_by_model(summaries, labels),
        )
        .properties(width=320, height=alt.Step(20))
    )


def amplification(layers: pl.DataFrame, labels: Mapping[str, str]) -> Any:
    """log10 of each layer's amplification alpha, one line per model."""
    import altair as alt

    rows = layers.select(pl.col("model").replace_strict(labels), "layer", "log10_alpha").to_dicts()
    base = alt.Chart(inline(rows)).encode(
        x=alt.X("layer:Q", title="layer", axis=whole_axis(layers["layer"])),
        y=alt.Y("log10_alpha:Q", title="log10 α"),
        color=_by_model([{"model": name} for name in dict.fromkeys(layers["model"])], labels),
    )
    return (base.mark_line() + base.mark_point(filled=True, size=18)).properties(width=320, height=200)


def shares(layers: pl.DataFrame, labels: Mapping[str, str]) -> Any:
    """What each kind of matrix has of what a layer adds to the proxy: stacked bars, one panel per model."""
    import altair as alt

    names = {"share_qk": "QK", "share_vo": "VO", "share_ffn": "FFN", "share_cross": "cross attention"}
    long = layers.unpivot(
        [name for name in names if layers[name].count()], index=["model", "layer"], variable_name="part"
    )
    parts = [names[name] for name in dict.fromkeys(long["part"])]
    panels = []
    for model in dict.fromkeys(layers["model"]):
        rows = long.filter(pl.col("model") == model).select(
            "layer", pl.col("part").replace_strict(names), "value"
        )
        panels.append(
            alt.Chart(inline(rows.to_dicts()), title=as_title(labels[model]))
            .mark_bar()
            .encode(
                x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
                y=alt.Y("value:Q", title="share of the layer", axis=alt.Axis(values=[0, 0.5, 1])),
                color=alt.Color(
                    "part:N",
                    title=None,
                    scale=alt.Scale(domain=parts, range=list(PALETTE[: len(parts)])),
                ),
            )
            .properties(width=320, height=120)
        )
    return alt.vconcat(*panels)


def _by_model(summaries: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Any:
    """One colour a model; a single model needs no legend."""
    import altair as alt

    names = [labels[summary["model"]] for summary in summaries]
    legend = alt.Legend(title=None) if len(names) > 1 else None
    scale = alt.Scale(domain=names, range=list(PALETTE[: len(names)]))
    return alt.Color("model:N", scale=scale, legend=legend)
