"""Charts of an audit that are like no other: decay of spectra, contribution curves, models layer by layer.

Every function takes rows of an audit's tables; `labels` gives short names of models, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.figure import EXTENT, Figure, colour_encoding, palette, panel_title
from attnlaw.render.charts.style import inline_data, integer_axis
from attnlaw.verbs.audit.frames import KINDS

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

# Layers with a line, and points of a line, among contribution curves. The grid of p grows with the depth, and
# all lines at all its points would take the square of it.
MOST_LINES, MOST_POINTS = 64, 97
# Quantities in which models are compared layer by layer, after their spectral norms.
COMPARED = ("effective_rank", "log10_scale", "log10_contribution")


def decay(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """The decay of singular values, where a spectrum of a layer is not all zero."""
    living = source.frame("spectra").filter(pl.col("singular_values").list.max() > 0)
    if living.filter(pl.col("layer").is_not_null()).height:
        yield source.figure(chart, {}, partial(spectrum_decay, living, source.value_labels.short["model"]))


def spectrum_decay(spectra: pl.DataFrame, labels: Mapping[str, str] | None = None) -> Any:
    """Singular values over the largest, by kind of matrix: the median over a model's at each rank."""
    import altair as alt

    names = _labels(spectra, labels)
    panels = []
    for kind in _kinds(spectra):
        drawn: list[dict[str, Any]] = []
        for model, label in names.items():
            singular_values = spectra.filter((pl.col("kind") == kind) & (pl.col("model") == model))[
                "singular_values"
            ]
            living = [
                [value / row[0] for value in row] for row in singular_values.to_list() if row and row[0] > 0
            ]
            for rank in _thinned_ranks(max((len(row) for row in living), default=0)):
                at = pl.Series([row[rank] for row in living if rank < len(row)]).median()
                # A logarithmic axis has no zero; below 1e-8 lies round-off.
                if isinstance(at, float) and at > 1e-8:
                    drawn.append({"series": label, "rank": rank + 1, "value": at})
        ranks = {point["rank"] for point in drawn}
        axis = integer_axis(ranks) if max(ranks, default=0) <= 8 else alt.Axis(tickCount=4)
        panels.append(
            alt.Chart(inline_data(drawn))
            .mark_line(clip=True)
            .encode(
                x=alt.X("rank:Q", title="rank", axis=axis),
                y=alt.Y(
                    "value:Q",
                    title="singular value / largest",
                    scale=alt.Scale(type="log"),
                    axis=alt.Axis(format="~g", values=[10.0**-k for k in range(9)], minExtent=EXTENT),
                ),
                color=colour_encoding(palette(names.values())),
            )
            .properties(title=panel_title(KINDS[kind].label), width=190, height=160)
        )
    return alt.concat(*panels, columns=_column_count(len(panels))).resolve_scale(x="independent")


def contributions(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """The contribution curves of every model."""
    matrices = source.frame("matrices")
    for model in dict.fromkeys(matrices["model"]):
        model_rows = matrices.filter(pl.col("model") == model, pl.col("layer").is_not_null())
        if not model_rows["log10_contribution"].count():
            continue
        layers = model_rows["layer"].n_unique()
        cut = f"Of the {layers} layers {MOST_LINES} have a line; every matrix has a dot."
        case = {"model": model} if source.rows.height > 1 else {}
        yield source.figure(
            chart, case, partial(contribution_curves, model_rows), cut if layers > MOST_LINES else ""
        )


def contribution_curves(matrices: pl.DataFrame) -> Any:
    """log10 C(p) of one model by kind of matrix: a line per layer (median over heads), the chosen p marked.

    A dot is one matrix at its own chosen p, on its own curve. Of more than `MOST_LINES` layers so many have a
    line, the first, the last and others evenly between them.
    """
    import altair as alt

    has_curve = pl.col("log10_curve").is_not_null() & pl.col("log10_contribution").is_not_null()
    drawn = (pl.col("log10_curve").list.len() > 1) & pl.col("kind").is_in(_kinds(matrices))
    known = matrices.filter(has_curve & drawn)
    layers = known["layer"].unique().sort()
    lined = known.filter(pl.col("layer").is_in(layers[_even_indices(layers.len(), MOST_LINES)].to_list()))
    counts = lined["log10_curve"].list.len().unique(maintain_order=True)
    medians = pl.concat([_median_curves(lined, count) for count in counts]) if counts.len() else None
    dots = known.select("kind", "layer", "p", log10_C="log10_contribution")
    shade = alt.Color(
        "layer:Q",
        scale=alt.Scale(scheme="viridis"),
        legend=alt.Legend(
            title="layer",
            type="gradient",
            format="d",
            values=_legend_layers(known["layer"]),
            gradientLength=90,
        ),
    )
    x = alt.X("p:Q", title="Schatten index p", axis=alt.Axis(values=[0, 0.5, 1, 1.5, 2], format="~g"))
    y = alt.Y(
        "log10_C:Q",
        title="contribution, log₁₀ C(p)",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(minExtent=EXTENT),
    )
    panels = []
    for kind in _kinds(known):
        rows = [] if medians is None else medians.filter(kind=kind).drop("kind").to_dicts()
        dot_rows = dots.filter(pl.col("kind") == kind).drop("kind").to_dicts()
        line = alt.Chart(inline_data(rows)).mark_line(strokeWidth=1.2)
        dot = alt.Chart(inline_data(dot_rows)).mark_point(
            filled=True, size=22, stroke="black", strokeWidth=0.4, opacity=0.9
        )
        both = line.encode(x=x, y=y, color=shade, detail="layer:O") + dot.encode(x=x, y=y, color=shade)
        panels.append(both.properties(title=panel_title(KINDS[kind].label), width=190, height=160))
    return alt.concat(*panels, columns=_column_count(len(panels)))


def _median_curves(matrices: pl.DataFrame, count: int) -> pl.DataFrame:
    """kind, layer, p, log10_C: the median over the matrices whose curves have so many points."""
    places = _even_indices(count, MOST_POINTS)
    same_length = matrices.filter(pl.col("log10_curve").list.len() == count)
    points = same_length.select("kind", "layer", log10_C=pl.col("log10_curve").list.gather(places)).explode(
        "log10_C"
    )
    placed = points.with_columns(p=pl.Series([2 * i / (count - 1) for i in places] * same_length.height))
    return placed.group_by("kind", "layer", "p", maintain_order=True).agg(pl.col("log10_C").median())


def comparison(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Models layer by layer, where there are several."""
    if source.rows.height > 1:
        matrices = source.frame("matrices")
        titles = {name: source.verb.label(name) for name in _compared_quantities(matrices)}
        draw = partial(compare, matrices, source.value_labels.short["model"], titles)
        yield source.figure(chart, {}, draw)


def compare(
    matrices: pl.DataFrame, labels: Mapping[str, str] | None = None, titles: Mapping[str, str] | None = None
) -> Any:
    """Models layer by layer, a row of panels per kind of matrix, one column a quantity: medians of heads."""
    import altair as alt

    quantities = titles or {name: name for name in _compared_quantities(matrices)}
    names = _labels(matrices, labels)
    medians = (
        matrices.filter(pl.col("layer").is_not_null())
        .group_by("model", "kind", "layer", maintain_order=True)
        .agg(pl.col(list(quantities)).median())
        .with_columns(series=pl.col("model").replace_strict(names))
    )
    kinds, (first, *_) = _kinds(matrices), quantities
    layers = alt.Scale(domain=[medians["layer"].min(), medians["layer"].max()])
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=list(names.values())), legend=None)
    rows = []
    for kind in kinds:
        panels = []
        for quantity, title in quantities.items():
            table = medians.filter((pl.col("kind") == kind) & pl.col(quantity).is_not_null())
            base = alt.Chart(
                inline_data(table.select("series", "layer", quantity).to_dicts()),
                title=panel_title(title if kind == kinds[0] else ""),
            ).encode(
                x=alt.X(
                    "layer:Q",
                    title="layer" if kind == kinds[-1] else "",
                    scale=layers,
                    axis=integer_axis(medians["layer"], 5),
                ),
                y=alt.Y(
                    f"{quantity}:Q",
                    title=KINDS[kind].label if quantity == first else "",
                    scale=alt.Scale(domain=_padded_range(table[quantity])),
                    axis=alt.Axis(minExtent=EXTENT, tickCount=4),
                ),
                color=colour_encoding(palette(names.values())),
                strokeDash=dash,
            )
            line = base.mark_line(point=alt.OverlayMarkDef(size=14, filled=True))
            panels.append(line.properties(width=130, height=100))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


def _compared_quantities(matrices: pl.DataFrame) -> tuple[str, ...]:
    """The spectral norm, as applied where that is told, and the other quantities."""
    has_applied = "spectral_norm_applied" in matrices.columns and matrices["spectral_norm_applied"].count()
    return ("spectral_norm_applied" if has_applied else "spectral_norm", *COMPARED)


def _padded_range(values: pl.Series) -> list[float]:
    """The range of values with some room; a constant stands in the middle of a range of one."""
    numbers = values.to_list() or [0.0]
    low, high = min(numbers), max(numbers)
    room = 0.06 * (high - low) if high - low > 1e-9 * abs(high) else 0.5
    return [low - room, high + room]


def _legend_layers(layers: pl.Series) -> list[int]:
    """First, middle and last layer."""
    present = sorted(set(layers.to_list()))
    return sorted({present[0], present[len(present) // 2], present[-1]}) if present else []


def _labels(table: pl.DataFrame, labels: Mapping[str, str] | None) -> dict[str, str]:
    """The models of a table with the names to show for them."""
    present = list(dict.fromkeys(table["model"]))
    if labels is None:
        return {model: model for model in present}
    return {model: label for model, label in labels.items() if model in present}


def _kinds(table: pl.DataFrame) -> list[str]:
    """The kinds of matrix that stand in layers, in their order."""
    present = set(table.filter(pl.col("layer").is_not_null())["kind"])
    return [kind for kind in KINDS if kind in present]


def _column_count(panels: int) -> int:
    """How many panels stand side by side."""
    return 2 if panels == 4 else 3


def _even_indices(count: int, most: int) -> list[int]:
    """0 to count - 1, or `most` of them, the ends among them, as evenly as whole numbers can.

    >>> _even_indices(3, 4), _even_indices(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _thinned_ranks(count: int, most: int = 120) -> list[int]:
    """Ranks 0 to count - 1, every one up to 16 and then at most `most` of them."""
    step = max(1, count // most)
    return [rank for rank in range(count) if rank < 16 or rank % step == 0 or rank == count - 1]
