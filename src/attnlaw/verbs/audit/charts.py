"""Charts of an audit: proxies, amplification, decay of spectra, contributions, models layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.result import Result
from attnlaw.core.tables import nan_to_null
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.figure import EXTENT, WIDTH, Figure, colour_encoding, palette, panel_title
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.style import as_title, inline_data, integer_axis, log_ticks
from attnlaw.render.charts.view import ChartView, has_values, with_series
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs.audit.names import name_models

# Layers with a line, and points of a line, among contribution curves. The grid of p grows with the depth, and
# all lines at all its points would take the square of it.
MOST_LINES, MOST_POINTS = 64, 97
# Quantities in which models are compared layer by layer, after their spectral norms.
COMPARED = ("effective_rank", "log10_scale", "log10_contribution")
PROXIES = tuple(f"log10_{name}" for name in BOUNDS)
SHARES = ("share_qk", "share_vo", "share_ffn", "share_cross")
EXCESSES = ("factor_excess", "factor_excess_weights", "factor_excess_null")
SAME_SHARE = 1e-3  # shares that differ by less are alike
HALF_LINE = 0.35  # of the line of random factors, in layers


def _view(result: Result) -> ChartView:
    """The view of an audit: models by unique names, sizes as applied where all models have them.

    Captions state the model alone: other settings say how it was read.
    """
    done = result.rows.filter(pl.col("status") != "failed")
    named = name_models(result)
    tables = dict(named.tables)
    if "matrices" in tables:
        applied = bool((done["norms"] == "applied").all())
        tables["matrices"] = fill_applied_sizes(nan_to_null(tables["matrices"]), applied)
    rows = named.rows.select("model", "status", VERSION_COLUMN, *PROXIES)
    return ChartView(replace(result, rows=rows, tables=tables))


def proxies(result: Result) -> Figure | None:
    """A line of dots for each proxy, a colour for each model."""
    view = _view(result)
    values = [name for name in PROXIES if has_values(view.rows, name)]
    if not values:
        return None
    long = view.rows.unpivot(values, index="model", variable_name="line").drop_nulls("value")
    points, colours = with_series(view, long, ["model"])
    labels = {name: view.verb.axis(name) for name in values}
    placed = points.select("value", "series", line=pl.col("line").replace_strict(labels))
    return view.figure(
        "proxies",
        "Proxies",
        "Proxies on a logarithmic axis: leading factors of bounds, not guarantees, and no ranking of "
        "models. Further left is smaller, and each unit is a factor of ten. Compare the first line, which "
        "adapts to each spectrum, with the norm-based ones at the bottom.",
        partial(_draw_dots, placed, colours),
    )


def _draw_dots(rows: pl.DataFrame, colours: Mapping[str, str]) -> Any:
    """Every value as a dot on one axis: `rows` has line, value and series."""
    import altair as alt

    order = list(dict.fromkeys(rows["line"]))
    return (
        alt.Chart(inline_data(rows.to_dicts()))
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x=alt.X("value:Q", title="log10 proxy", scale=alt.Scale(zero=False)),
            y=alt.Y("line:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True)),
            color=colour_encoding(colours),
        )
        .properties(width=320, height=alt.Step(20))
    )


def amplification(result: Result) -> list[Figure]:
    view = _view(result)
    return view.figures(
        "amplification",
        "Amplification by layer",
        "α of a layer bounds how much the layers above it stretch an error made there. It is 1 "
        "(log10 = 0) at the last layer; a step down marks a layer with large norms, a step up one whose "
        "norms contract.",
        line_charts(view, view.frame("layers"), "layer", "log10_alpha", ["model"]),
    )


def shares(result: Result) -> Figure | None:
    """Parts of every layer's share of the proxy, a panel for each model, unless all layers are alike."""
    view = _view(result)
    layers = view.frame("layers")
    parts = [name for name in SHARES if has_values(layers, name)]
    spread = layers.select(pl.col(parts).max() - pl.col(parts).min()).row(0) if parts else ()
    if not parts or (layers.height > 1 and max(spread) <= SAME_SHARE):
        return None
    labels = {name: view.verb.axis(name) for name in parts}
    long = layers.unpivot(parts, index=["layer", "model"], variable_name="part").drop_nulls("value")
    places = {name: place for place, name in enumerate(parts)}
    rows = long.select(
        "model",
        "value",
        x="layer",
        place=pl.col("part").replace_strict(places, return_dtype=pl.Int64),
        part=pl.col("part").replace_strict(labels),
    )
    return view.figure(
        "shares",
        "What each layer's share is made of",
        "What one layer adds to the proxy, divided among its matrices. Tall colours are the kind of "
        "matrix that adds most there.",
        partial(_draw_shares, view, rows, palette(labels.values())),
    )


def _draw_shares(view: ChartView, rows: pl.DataFrame, colours: Mapping[str, str]) -> Any:
    """Stacked bars by model: `rows` has model, x, part, its place, and value."""
    import altair as alt

    several = rows["model"].n_unique() > 1
    panels = [
        alt.Chart(
            inline_data(group.select("x", "part", "place", "value").to_dicts()),
            title=as_title(view.value_labels.label_of("model", model)) if several else alt.Undefined,
        )
        .mark_bar()
        .encode(
            x=alt.X("x:O", title=view.verb.axis("layer"), axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("value:Q", title="share", axis=alt.Axis(values=[0, 0.5, 1])),
            color=colour_encoding(colours, "part", legend_for_one=True),
            order=alt.Order("place:Q"),
        )
        .properties(width=WIDTH, height=120 if several else 200)
        for (model,), group in rows.group_by("model", maintain_order=True)
    ]
    return alt.vconcat(*panels) if several else panels[0]


def decay(result: Result) -> Figure | None:
    """The decay of singular values, where a spectrum of a layer is not all zero."""
    view = _view(result)
    spectra = view.complete(view.frame("spectra"), "singular_values")
    living = spectra.filter(pl.col("singular_values").list.max() > 0) if spectra.height else spectra
    if not has_values(living, "layer"):
        return None
    return view.figure(
        "decay",
        "Decay of singular values",
        "Singular values over the largest, the median over a model's matrices at each rank. A "
        "steep fall at the left is a matrix that a few directions carry; a flat line uses all its dimensions "
        "alike.",
        partial(spectrum_decay, living, view.value_labels.short["model"]),
    )


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


def contributions(result: Result) -> list[Figure]:
    """The contribution curves of every model."""
    view = _view(result)
    figures = []
    rows = view.complete(view.frame("matrices"), "layer")
    for (model,), matrices in rows.group_by("model", maintain_order=True) if rows.height else ():
        if not matrices["log10_contribution"].count():
            continue
        caption = (
            "Lines: what the matrices of a layer add to the proxy (median), by Schatten index p. Dots: "
            "each matrix at the p where it adds least. Dots at p = 0 count ranks; further right lie matrices "
            "whose singular values, times their scale γαL, are small: they decay, or the scale is small."
        )
        layers = matrices["layer"].n_unique()
        if layers > MOST_LINES:
            caption += f" Of the {layers} layers {MOST_LINES} have a line; every matrix has a dot."
        case = {"model": model} if view.rows.height > 1 else {}
        draw = partial(contribution_curves, matrices)
        figures.append(view.figure("contributions", "Contribution curves C(p)", caption, draw, case))
    return figures


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


def comparison(result: Result) -> Figure | None:
    """Models layer by layer, where there are several."""
    view = _view(result)
    matrices = view.frame("matrices")
    if view.rows.height < 2 or not matrices.height:
        return None
    titles = {name: view.verb.label(name) for name in _compared_quantities(matrices)}
    return view.figure(
        "comparison",
        "Models layer by layer",
        "Medians over the heads of a layer, one row per kind of matrix. A norm that is called "
        "applied has the gain of the norm before folded in; γαL is the scale of the contribution C(p*). "
        "Where lines part, the models differ in that kind of matrix at that depth; where they coincide, they "
        "do not.",
        partial(compare, matrices, view.value_labels.short["model"], titles),
    )


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


def balance(result: Result) -> Figure | None:
    """The balance of the factors of every head, if some head has an excess above zero."""
    view = _view(result)
    matrices = view.complete(view.frame("matrices"), "factor_excess")
    if not matrices.height or not (matrices["factor_excess"] > 0).any():
        return None
    return view.figure(
        "balance",
        "Balance of factors",
        "How much larger the two factors of a head are than the smallest ones with the same product, "
        "a dot for each head (of a group of queries one); the short lines are random factors. Weight decay "
        "drives it to zero, and the flattest factors have it zero. Rings, where queries have a bias, leave "
        "it out: dots far above their rings are a bias that was not decayed.",
        partial(draw_excesses, matrices, view.value_labels.short["model"]),
    )


def draw_excesses(matrices: pl.DataFrame, labels: Mapping[str, str]) -> Any:
    """Dots of the excess of each head by kind, logarithmic; rings without the bias of queries."""
    import altair as alt

    known = matrices.filter(pl.col("factor_excess") > 0).with_columns(
        series=pl.col("model").replace_strict(labels)
    )
    shade = colour_encoding(palette(labels[model] for model in dict.fromkeys(known["model"])))
    numbers = known["layer"].to_list()
    scale = alt.Scale(domain=[min(numbers) - 0.5, max(numbers) + 0.5], nice=False)
    x = alt.X("layer:Q", title="layer", scale=scale, axis=integer_axis(known["layer"]))
    panels = []
    for kind in (kind for kind in KINDS if kind in set(known["kind"])):
        heads = known.filter(pl.col("kind") == kind).rename({"factor_excess": "excess"})
        up = alt.Scale(type="log", domain=_excess_domain(heads), nice=False)
        axis = alt.Axis(format="~g", minExtent=EXTENT, values=log_ticks(_excess_domain(heads)))
        y = alt.Y("excess:Q", title="excess of the factors", scale=up, axis=axis)
        dots = alt.Chart(inline_data(heads.select("series", "layer", "excess").to_dicts()))
        layers = [dots.mark_point(filled=True, size=20, opacity=0.7).encode(x=x, y=y, color=shade)]
        biased = heads.filter(pl.col("factor_excess_weights") != pl.col("excess"))
        if biased.height:
            rings = biased.select("series", "layer", excess="factor_excess_weights").to_dicts()
            hollow = alt.Chart(inline_data(rings)).mark_point(filled=False, size=20, strokeWidth=0.8)
            layers.append(hollow.encode(x=x, y=y, color=shade))
        nulls = heads.filter(pl.col("factor_excess_null") > 0).select(
            "series",
            start=pl.col("layer") - HALF_LINE,
            end=pl.col("layer") + HALF_LINE,
            excess="factor_excess_null",
        )
        rules = alt.Chart(inline_data(nulls.unique(maintain_order=True).to_dicts())).mark_rule(
            strokeWidth=1.5
        )
        layers.append(
            rules.encode(x=alt.X("start:Q", title="layer", scale=scale), x2="end:Q", y=y, color=shade)
        )
        panel = alt.layer(*layers).properties(title=panel_title(KINDS[kind].label), width=250, height=180)
        panels.append(panel)
    return alt.concat(*panels, columns=2)


def _excess_domain(heads: pl.DataFrame) -> list[float]:
    """What a logarithmic axis spans, with some room at both ends."""
    drawn = [value for name in ("excess", *EXCESSES[1:]) for value in heads[name].drop_nulls() if value > 0]
    return [min(drawn) / 1.3, max(drawn) * 1.3]


def heads(result: Result) -> list[Figure]:
    """Maps of spectral norms: as applied if all models have them, else as stored."""
    view = _view(result)
    matrices = view.frame("matrices")
    caption = "Each cell is a head; brighter means a larger spectral norm, logarithmic for each kind. "
    names = {
        "spectral_norm_applied": "Norms are as applied: the gain of the norm before folded in, the mean "
        "projected out where that norm takes it off; as stored where it is not known.",
        "spectral_norm": "Norms are those of the stored matrices.",
    }
    for name, sentence in names.items():
        drawings = cell_maps(view, matrices, ["head"], "layer", name, "kind", scale="log")
        if figures := view.figures("heads", "Heads", caption + sentence, drawings, on_page=False):
            return figures
    return []


def laws(result: Result) -> list[Figure]:
    return law_maps(_view(result), on_page=False)


def law_maps(view: ChartView, on_page: bool) -> list[Figure]:
    """Maps of the laws that fit matrices, of an audit or of a fit."""
    caption = "Each cell is a matrix, coloured by the law that describes its spectrum."
    drawings = cell_maps(view, view.frame("fits"), ["head", "expert"], "layer", "law", "kind")
    return view.figures("laws", "Fitted laws", caption, drawings, on_page)
