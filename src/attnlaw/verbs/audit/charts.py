"""Draw the charts of an audit: proxies, amplification, spectra, contributions, and models layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.result import Result
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.encodings import (
    EXTENT,
    WIDTH,
    colour_encoding,
    inline_data,
    integer_axis,
    log_axis,
    panel_title,
)
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import as_title, palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart, has_values
from attnlaw.render.model_names import name_models
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs.audit.growth_chart import growth as growth

# Largest number of contribution curves, and of points on each. The grid of p grows with the depth, so all
# points of all curves would grow with the square of the depth.
MOST_LINES, MOST_POINTS = 64, 97
# Quantities in which models are compared layer by layer, in addition to their spectral norms.
COMPARED = ("effective_rank", "log10_scale", "log10_contribution")
PROXIES = tuple(f"log10_{name}" for name in BOUNDS)
SHARES = ("share_qk", "share_vo", "share_ffn", "share_cross")
EXCESSES = ("excess", "factor_excess_weights", "factor_excess_null")
SAME_SHARE = 1e-3  # shares that differ by at most this are alike
HALF_LINE = 0.35  # half the length of the line of random factors, in layers
# Norms of heads, each with a note for the caption.
HEAD_NORMS = {
    "spectral_norm_applied": "Norms include the gain of the LayerNorm or RMSNorm before the matrix, if it is "
    "known.",
    "spectral_norm": "Norms are computed from the stored matrices.",
}
LAWS = ("Fitted laws", "Each cell is a matrix. Its colour shows the law that describes its spectrum.")
STORED_ALPHA = (
    "Norms include gains of norm layers. The proxies use the stored matrices, so their factor α differs."
)
# Both ends of viridis are hard to see, on a dark page or on a light one.
SHADES = {"name": "viridis", "extent": [0.3, 0.88]}
MOST_NAMED = 10  # layers that a legend names one by one


def _prepare(result: Result) -> Result:
    """Give each model a unique name, which captions show, and drop the columns that no chart needs."""
    named = name_models(result)
    rows = named.rows.select("model", "status", "norms", VERSION_COLUMN, *PROXIES)
    return replace(named, rows=rows)


def _matrices(view: ChartView) -> pl.DataFrame:
    """Return the table of matrices. If all models have sizes as applied, missing ones are filled in."""
    return fill_applied_sizes(view.frame("matrices"), bool((view.rows["norms"] == "applied").all()))


audit_chart = partial(chart, prepare=_prepare)


@audit_chart(
    "Proxies",
    "Generalization proxies, with a dot for each model. Smaller values are further left; each unit of the "
    "axis is a factor of ten. Compare the spectrum-adaptive proxy at the top with the norm-based ones at "
    "the bottom. Proxies are not guarantees, and they do not rank models.",
)
def proxies(view: ChartView) -> Drawings:
    """Draw all proxies: a line for each proxy, and a dot on it for each model."""
    labels = {name: view.verb.axis(name) for name in PROXIES if has_values(view.rows, name)}
    if labels:
        long = view.rows.unpivot([*labels], index="model", variable_name="line").drop_nulls("value")
        points, colours = view.with_series(long, ["model"])
        placed = points.select("value", "series", pl.col("line").replace_strict(labels))
        yield Drawing(partial(_draw_dots, placed, colours))


def _draw_dots(rows: pl.DataFrame, colours: Mapping[str, str]) -> alt.Chart:
    order = list(dict.fromkeys(rows["line"]))
    dots = alt.Chart(inline_data(rows)).mark_point(filled=True, size=50, opacity=0.9)
    return dots.encode(
        x=alt.X("value:Q", title="proxy (log₁₀)", scale=alt.Scale(zero=False)),
        y=alt.Y("line:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True)),
        color=colour_encoding(colours),
    ).properties(width=320, height=alt.Step(20))


@audit_chart(
    "Amplification by layer",
    "Largest factor by which later layers can enlarge an error made in a layer, as a power of ten. The "
    "line ends at 0 in the last layer. A steep fall marks a layer with large norms; a rise marks a layer "
    "that shrinks errors.",
)
def amplification(view: ChartView) -> Drawings:
    """Draw the amplification, with the gains of norm layers if all models have them."""
    layers = view.frame("layers")
    with_gains = bool(layers.height) and not layers["log10_alpha_applied"].null_count()
    note = STORED_ALPHA if with_gains else "Norms are computed from the stored matrices."
    name = "log10_alpha_applied" if with_gains else "log10_alpha"
    for drawing in line_charts(view, layers, "layer", name, ["model"]):
        yield drawing._replace(note=note)


@audit_chart(
    "Parts of each layer's contribution",
    "Contribution of each layer to the proxy, divided among its kinds of matrix. The tallest part of a bar "
    "contributes most.",
)
def shares(view: ChartView) -> Drawings:
    """Draw the parts of each layer's share of the proxy, unless all layers have equal parts."""
    layers = view.frame("layers")
    parts = [name for name in SHARES if has_values(layers, name)]
    spread = layers.select(pl.col(parts).max() - pl.col(parts).min()).row(0) if parts else ()
    if not parts or (layers.height > 1 and max(spread) <= SAME_SHARE):
        return
    labels = {name: view.verb.axis(name) for name in parts}
    long = layers.unpivot(parts, index=["layer", "model"], variable_name="part").drop_nulls("value")
    rows = long.select(
        "model",
        "value",
        x="layer",
        place=pl.col("part").replace_strict(parts, range(len(parts)), return_dtype=pl.Int64),
        part=pl.col("part").replace_strict(labels),
    )
    yield Drawing(partial(_draw_shares, view, rows, palette(labels.values())))


def _draw_shares(view: ChartView, rows: pl.DataFrame, colours: Mapping[str, str]) -> Any:
    several = rows["model"].n_unique() > 1
    panels = []
    for (model,), group in rows.group_by("model", maintain_order=True):
        title = as_title(view.value_labels.label_of("model", model)) if several else alt.Undefined
        bars = alt.Chart(inline_data(group.select("x", "part", "place", "value")), title=title).mark_bar()
        panel = bars.encode(
            x=alt.X("x:O", title=view.verb.axis("layer"), axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("value:Q", title="share of the layer", axis=alt.Axis(values=[0, 0.5, 1])),
            color=colour_encoding(colours, "part", legend_for_one=True),
            order=alt.Order("place:Q"),
        )
        panels.append(panel.properties(width=WIDTH, height=120 if several else 200))
    return alt.vconcat(*panels) if several else panels[0]


@audit_chart(
    "Decay of singular values",
    "Singular values divided by the largest, in descending order (median over a model's matrices). If the "
    "line falls steeply at the left, a few directions carry the matrix. A flat line means that it uses all "
    "directions equally, as random matrices nearly do.",
)
def decay(view: ChartView) -> Drawings:
    """Draw the decay of singular values, unless all spectra are zero or unknown."""
    living = view.frame("spectra").filter(pl.col("singular_values").list.max() > 0)
    if living["layer"].count():
        yield Drawing(partial(spectrum_decay, living, view.value_labels.short["model"]))


def spectrum_decay(spectra: pl.DataFrame, labels: Mapping[str, str] | None = None) -> alt.ConcatChart:
    """Draw how singular values decay: medians over the matrices of a kind, relative to the largest.

    `labels` maps models to the names to show. By default, all models are drawn under their own names.
    """
    names = _labels(spectra, labels)
    hue = colour_encoding(palette(names.values()))
    decades = alt.Axis(format="~g", values=[10.0**-k for k in range(9)], minExtent=EXTENT)
    y = alt.Y("value:Q", title="singular value / largest", scale=alt.Scale(type="log"), axis=decades)
    panels = {}
    for kind in _kinds(spectra):
        drawn: list[dict[str, Any]] = []
        for model, label in names.items():
            values = spectra.filter(kind=kind, model=model)["singular_values"].to_list()
            living = [
                [value / row[0] for value in row] for row in values if row and None not in row and row[0] > 0
            ]
            for rank in _thinned_ranks(max((len(row) for row in living), default=0)):
                at = pl.Series([row[rank] for row in living if rank < len(row)]).median()
                # A logarithmic axis has no zero; values below 1e-8 are round-off.
                if isinstance(at, float) and at > 1e-8:
                    drawn.append({"series": label, "rank": rank + 1, "value": at})
        ranks = {point["rank"] for point in drawn}
        ticks = integer_axis(ranks) if max(ranks, default=0) <= 8 else alt.Axis(tickCount=4)
        lines = alt.Chart(inline_data(drawn)).mark_line(clip=True)
        panels[kind] = lines.encode(x=alt.X("rank:Q", title="rank", axis=ticks), y=y, color=hue)
    return _panels_by_kind(panels).resolve_scale(x="independent")


@audit_chart(
    "Contribution curves C(p)",
    "Lines show what a layer's matrices contribute to the proxy for each Schatten index p (median). Each "
    "dot marks a matrix at the index p for which its contribution is smallest. At p = 0 a contribution "
    "only counts ranks. Dots are further right if singular values, times the scale γαL, are small.",
)
def contributions(view: ChartView) -> Drawings:
    rows = view.frame("matrices", "layer")
    for (model,), matrices in rows.group_by("model", maintain_order=True):
        if matrices["log10_contribution"].count():
            layers = matrices["layer"].n_unique()
            note = f"{MOST_LINES} of {layers} layers have a line; every matrix has a dot."
            case = {"model": model} if view.rows.height > 1 else {}
            yield Drawing(partial(contribution_curves, matrices), case, note if layers > MOST_LINES else "")


def contribution_curves(matrices: pl.DataFrame) -> alt.ConcatChart:
    """Draw the contributions log10 C(p) to the proxy of one model, with a panel for each kind of matrix.

    A line is the median over the heads of a layer. A dot shows the best p of one matrix, and its contribution
    at this p. At most `MOST_LINES` layers, evenly spaced, have a line.
    """
    has_curve = pl.col("log10_curve").is_not_null() & pl.col("log10_contribution").is_not_null()
    drawn = (pl.col("log10_curve").list.len() > 1) & pl.col("kind").is_in(_kinds(matrices))
    known = matrices.filter(has_curve & drawn)
    layers = known["layer"].unique().sort()
    lined = known.filter(pl.col("layer").is_in(layers[_even_indices(layers.len(), MOST_LINES)].to_list()))
    counts = lined["log10_curve"].list.len().unique(maintain_order=True)
    medians = [_median_curves(lined, count) for count in counts]
    few = layers.len() <= MOST_NAMED
    marked = layers.to_list() if few else sorted({layers[0], layers[layers.len() // 2], layers[-1]})
    look = {"type": "symbol", "symbolType": "square"} if few else {"type": "gradient", "gradientLength": 90}
    legend = alt.Legend(title="layer", format="d", values=marked, **look)
    shade = alt.Color("layer:Q", scale=alt.Scale(scheme=alt.SchemeParams(**SHADES)), legend=legend)
    x = alt.X("p:Q", title="Schatten index (p)", axis=alt.Axis(values=[0, 0.5, 1, 1.5, 2], format="~g"))
    axis = alt.Axis(minExtent=EXTENT)
    y = alt.Y("log10_C:Q", title="contribution (log₁₀ C)", scale=alt.Scale(zero=False), axis=axis)
    panels = {}
    for kind in _kinds(known):
        lines = pl.concat(medians).filter(kind=kind).drop("kind")
        dots = known.filter(kind=kind).select("layer", "p", log10_C="log10_contribution")
        line = alt.Chart(inline_data(lines)).mark_line(strokeWidth=1.2).encode(detail="layer:O")
        dot = alt.Chart(inline_data(dots))
        dot = dot.mark_point(filled=True, size=22, stroke="black", strokeWidth=0.4, opacity=0.9)
        panels[kind] = alt.layer(*(part.encode(x=x, y=y, color=shade) for part in (line, dot)))
    return _panels_by_kind(panels)


def _median_curves(matrices: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return median curves (kind, layer, p, log10_C) over the matrices whose curves have `count` points."""
    places = _even_indices(count, MOST_POINTS)
    same_length = matrices.filter(pl.col("log10_curve").list.len() == count)
    curves = same_length.select("kind", "layer", log10_C=pl.col("log10_curve").list.gather(places))
    p = pl.Series([2 * i / (count - 1) for i in places] * same_length.height)
    placed = curves.explode("log10_C").with_columns(p=p)
    return placed.group_by("kind", "layer", "p", maintain_order=True).agg(pl.col("log10_C").median())


@audit_chart(
    "Models layer by layer",
    "Medians over the heads of each layer; each kind of matrix has a row of charts. Applied norms "
    "include the gain of the norm layer; γαL is the factor in front of the contribution C(p*). Models differ "
    "in the layers in which their lines separate.",
)
def comparison(view: ChartView) -> Drawings:
    """Draw several models layer by layer."""
    if view.rows.height > 1 and view.frame("matrices").height:
        matrices = _matrices(view)
        titles = {name: view.verb.label(name) for name in _compared_quantities(matrices)}
        yield Drawing(partial(compare, matrices, view.value_labels.short["model"], titles))


def compare(
    matrices: pl.DataFrame, labels: Mapping[str, str] | None = None, titles: Mapping[str, str] | None = None
) -> alt.VConcatChart:
    """Draw medians over heads for each layer: a row of panels for each kind, a column for each quantity.

    `labels` and `titles` map models and quantities to the names to show. By default, all models, and the
    quantities of `_compared_quantities`, are drawn under their own names.
    """
    quantities = titles or {name: name for name in _compared_quantities(matrices)}
    names = _labels(matrices, labels)
    medians = (
        matrices.drop_nulls("layer")
        .group_by("model", "kind", "layer", maintain_order=True)
        .agg(pl.col(list(quantities)).median())
        .with_columns(series=pl.col("model").replace_strict(names))
    )
    kinds, (first, *_) = _kinds(matrices), quantities
    layers = alt.Scale(domain=[medians["layer"].min(), medians["layer"].max()])
    across, up = integer_axis(medians["layer"], 5), alt.Axis(minExtent=EXTENT, tickCount=4)
    hue = colour_encoding(palette(names.values()))
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=list(names.values())), legend=None)

    def panel(kind: str, quantity: str, title: str) -> alt.Chart:
        table = medians.filter(kind=kind).select("series", "layer", quantity).drop_nulls(quantity)
        label = KINDS[kind].label if quantity == first else ""
        scale = alt.Scale(domain=_padded_range(table[quantity]))
        x = alt.X("layer:Q", title="layer" if kind == kinds[-1] else "", scale=layers, axis=across)
        y = alt.Y(f"{quantity}:Q", title=label, scale=scale, axis=up)
        lines = alt.Chart(inline_data(table), title=panel_title(title if kind == kinds[0] else ""))
        dotted = lines.mark_line(point=alt.OverlayMarkDef(size=14, filled=True))
        return dotted.encode(x=x, y=y, color=hue, strokeDash=dash).properties(width=130, height=100)

    return alt.vconcat(*(alt.hconcat(*(panel(kind, *pair) for pair in quantities.items())) for kind in kinds))


def _compared_quantities(matrices: pl.DataFrame) -> tuple[str, ...]:
    """Return the names of the quantities to compare, with the spectral norm (as applied, if known) first."""
    applied = has_values(matrices, "spectral_norm_applied")
    return ("spectral_norm_applied" if applied else "spectral_norm", *COMPARED)


def _padded_range(values: pl.Series) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.06 * (high - low) if high - low > 1e-9 * abs(high) else 0.5
    return [low - room, high + room]


def _labels(table: pl.DataFrame, labels: Mapping[str, str] | None) -> dict[str, str]:
    present = dict.fromkeys(table["model"])
    known = {model: model for model in present} if labels is None else labels
    return {model: label for model, label in known.items() if model in present}


def _kinds(table: pl.DataFrame) -> list[str]:
    present = set(table.drop_nulls("layer")["kind"])
    return [kind for kind in KINDS if kind in present]


def _panels_by_kind(
    panels: Mapping[str, Any], columns: int | None = None, width: int = 190, height: int = 160
) -> alt.ConcatChart:
    titled = [
        panel.properties(title=panel_title(KINDS[kind].label), width=width, height=height)
        for kind, panel in panels.items()
    ]
    return alt.concat(*titled, columns=columns or (2 if len(titled) == 4 else 3))


def _even_indices(count: int, most: int) -> list[int]:
    """Return the numbers below `count`, or `most` of them from the first to the last, evenly spaced.

    >>> _even_indices(3, 4), _even_indices(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _thinned_ranks(count: int, most: int = 120) -> list[int]:
    """Return the ranks to draw: the first 16, then about `most` of the others, evenly spaced."""
    step = max(1, count // most)
    return [rank for rank in range(count) if rank < 16 or rank % step == 0 or rank == count - 1]


@audit_chart(
    "Balance of factors",
    "How much larger the two stored factors of a head are than they need to be for the same product. Each "
    "dot is a head, or a group of queries; short lines show the value for random factors. Weight decay "
    "drives the excess to zero. Rings leave out the bias of queries: if a dot is far above its ring, the "
    "bias did not decay.",
)
def balance(view: ChartView) -> Drawings:
    """Draw how balanced the factors of every head are, if some head has a positive excess."""
    matrices = view.frame("matrices").filter(pl.col("factor_excess") > 0)
    if matrices.height:
        yield Drawing(partial(draw_excesses, matrices, view.value_labels.short["model"]))


def draw_excesses(matrices: pl.DataFrame, labels: Mapping[str, str]) -> alt.ConcatChart:
    """Draw the excess of each head's factors as a dot, and as a ring without the bias of queries."""
    known = matrices.filter(pl.col("factor_excess") > 0).rename({"factor_excess": "excess"})
    known = known.with_columns(series=pl.col("model").replace_strict(labels))
    shade = colour_encoding(palette(known["series"]))
    scale = alt.Scale(domain=[min(known["layer"]) - 0.5, max(known["layer"]) + 0.5], nice=False)
    x = alt.X("layer:Q", title="layer", scale=scale, axis=integer_axis(known["layer"]))
    panels = {}
    for kind in _kinds(known):
        heads = known.filter(kind=kind)
        sizes = [value for name in EXCESSES for value in heads[name] if value is not None and value > 0]
        domain = [min(sizes) / 1.3, max(sizes) * 1.3]
        y = alt.Y("excess:Q", title="excess size of the factors", axis=log_axis(domain, minExtent=EXTENT))
        y = y.scale(type="log", domain=domain, nice=False)
        dots = alt.Chart(inline_data(heads.select("series", "layer", "excess")))
        layers = [dots.mark_point(filled=True, size=20, opacity=0.7).encode(x=x, y=y, color=shade)]
        biased = heads.filter(pl.col("factor_excess_weights") != pl.col("excess"))
        if biased.height:
            rings = alt.Chart(inline_data(biased.select("series", "layer", excess="factor_excess_weights")))
            hollow = rings.mark_point(filled=False, size=20, strokeWidth=0.8)
            layers.append(hollow.encode(x=x, y=y, color=shade))
        nulls = heads.filter(pl.col("factor_excess_null") > 0).select(
            "series",
            start=pl.col("layer") - HALF_LINE,
            end=pl.col("layer") + HALF_LINE,
            excess="factor_excess_null",
        )
        rules = alt.Chart(inline_data(nulls.unique(maintain_order=True))).mark_rule(strokeWidth=1.5)
        start = alt.X("start:Q", title="layer", scale=scale)
        layers.append(rules.encode(x=start, x2="end:Q", y=y, color=shade))
        panels[kind] = alt.layer(*layers)
    return _panels_by_kind(panels, 2, 250, 180)


@audit_chart(
    "Heads",
    "Each cell is a head. Brighter means a larger norm, on a logarithmic scale for each kind of matrix.",
    on_page=False,
)
def heads(view: ChartView) -> Drawings:
    """Draw maps of the heads' spectral norms, with gains of norm layers if all models have them."""
    rows = _matrices(view)
    for name, note in HEAD_NORMS.items():
        if has_values(rows, name):
            for drawing in cell_maps(view, rows, ["head"], "layer", name, "kind", scale="log"):
                yield drawing._replace(note=note)
            return


@audit_chart(*LAWS, on_page=False)
def laws(view: ChartView) -> Drawings:
    return law_maps(view)


def law_maps(view: ChartView) -> Drawings:
    """Draw maps that show the law of each matrix, for an audit or a fit."""
    return cell_maps(view, view.frame("fits"), ["head", "expert"], "layer", "law", "kind")
