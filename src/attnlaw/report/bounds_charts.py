"""Figures that compare models by their bounds: growth, decay, contribution curves, norms, before and after.

Every function takes rows of an audit (`attnlaw.base.schema`); rows of a family of models also carry
`depth`, `width` and `seed`, and one row per model carries `log10_<proxy>` for each proxy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from attnlaw.report.audit_charts import KIND_NAMES
from attnlaw.report.style import PALETTE, inline, whole_axis

PROXY_NAMES = {
    "spectrum_adaptive": "spectrum-adaptive",
    "edelman": "norm-based (2,1)",
    "trauger_tewari": "norm-based (1,1)",
    "fixed_p_0": "p = 0 for all",
    "fixed_p_1": "p = 1 for all",
    "fixed_p_2": "p = 2 for all",
}
NORM_NAMES = {"spectral_norm": "spectral norm", "frobenius_norm": "Frobenius norm", "norm_21": "(2,1) norm"}
OTHER = {"depth": "width", "width": "depth"}
# Layers with a line, and points of a line, among contribution curves. The grid of p grows with the depth, and
# all lines at all its points would take the square of it.
MOST_LINES, MOST_POINTS = 64, 97
# Room for the labels of a y axis: the same in every panel, so that panels line up.
EXTENT = 34


def proxy_growth(
    models: pl.DataFrame,
    exponents: pl.DataFrame,
    proxies: Sequence[str] = ("spectrum_adaptive", "edelman", "trauger_tewari"),
) -> Any:
    """Each proxy against depth at fixed width and against width at fixed depth, points being seeds.

    `models`: depth, width, seed, log10_<proxy>. `exponents`: proxy, variable, exponent, standard_error
    (null where unknown); each panel states its own.
    """
    import altair as alt

    fitted = {(row["proxy"], row["variable"]): row for row in exponents.rows(named=True)}
    rows = []
    for proxy in proxies:
        panels = []
        for variable, fixed in OTHER.items():
            found = fitted.get((proxy, variable))
            title = f"{PROXY_NAMES[proxy]} {_power(variable, found)}" if found else PROXY_NAMES[proxy]
            table = models.select("depth", "width", "seed", pl.col(f"log10_{proxy}").alias("log10_proxy"))
            panels.append(_growth_panel(alt, table, variable, fixed, "log10_proxy", "log10 proxy", title))
        rows.append(alt.hconcat(*panels).resolve_scale(color="independent", shape="independent"))
    return alt.vconcat(*rows).resolve_scale(color="independent", shape="independent")


def norm_growth(matrices: pl.DataFrame, variable: str = "width") -> Any:
    """Norms against depth or width, by kind of matrix: medians over the matrices of each model."""
    import altair as alt

    fixed = OTHER[variable]
    medians = matrices.group_by("kind", "depth", "width", "seed", maintain_order=True).agg(
        pl.col(list(NORM_NAMES)).median()
    )
    rows = []
    for norm, name in NORM_NAMES.items():
        panels = []
        for place, kind in enumerate(_kinds(matrices)):
            table = medians.filter((pl.col("kind") == kind) & (pl.col(norm) > 0))
            title = "" if place else f"median {name}"
            label = KIND_NAMES[kind]
            panels.append(_growth_panel(alt, table, variable, fixed, norm, title, label, (130, 110), True))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


def spectrum_decay(spectra: pl.DataFrame, labels: Mapping[str, str] | None = None) -> Any:
    """Singular values over the largest, by kind of matrix: the median over a model's matrices at each rank.

    `labels` gives short names of models, in the order in which they shall appear.
    """
    import altair as alt

    names = _labels(spectra, labels)
    panels = []
    for kind in _kinds(spectra):
        drawn: list[dict[str, Any]] = []
        for model, label in names.items():
            own = spectra.filter((pl.col("kind") == kind) & (pl.col("model") == model))["singular_values"]
            living = [[value / row[0] for value in row] for row in own.to_list() if row[0] > 0]
            for rank in _thinned(max((len(row) for row in living), default=0)):
                at = pl.Series([row[rank] for row in living if rank < len(row)]).median()
                # A logarithmic axis has no zero; below 1e-8 lies round-off.
                if isinstance(at, float) and at > 1e-8:
                    drawn.append({"model": label, "rank": rank + 1, "value": at})
        ranks = {point["rank"] for point in drawn}
        axis = whole_axis(ranks) if max(ranks, default=0) <= 8 else alt.Axis(tickCount=4)
        panels.append(
            alt.Chart(inline(drawn))
            .mark_line(clip=True)
            .encode(
                x=alt.X("rank:Q", title="rank", axis=axis),
                y=alt.Y(
                    "value:Q",
                    title="singular value / largest",
                    scale=alt.Scale(type="log"),
                    axis=alt.Axis(format="~g", values=[10.0**-k for k in range(9)], minExtent=EXTENT),
                ),
                color=_model_color(alt, list(names.values())),
            )
            .properties(title=_title(alt, KIND_NAMES[kind]), width=190, height=160)
        )
    return alt.concat(*panels, columns=2 if len(panels) == 4 else 3).resolve_scale(x="independent")


def contribution_curves(matrices: pl.DataFrame) -> Any:
    """log10 C(p) of one model by kind of matrix: a line per layer (median over heads), the chosen p marked.

    A dot is one matrix at its own chosen p, on its own curve. Of more than `MOST_LINES` layers so many have a
    line, the first, the last and others evenly between them.
    """
    import altair as alt

    told = pl.col("log10_curve").is_not_null() & pl.col("log10_contribution").is_not_null()
    drawn = (pl.col("log10_curve").list.len() > 1) & pl.col("kind").is_in(_kinds(matrices))
    known = matrices.filter(told & drawn)
    layers = known["layer"].unique().sort()
    lined = known.filter(pl.col("layer").is_in(layers[_spread(layers.len(), MOST_LINES)].to_list()))
    counts = lined["log10_curve"].list.len().unique(maintain_order=True)
    medians = pl.concat([_median_curves(lined, count) for count in counts]) if counts.len() else None
    dots = known.select("kind", "layer", "p", log10_C="log10_contribution")
    color = alt.Color(
        "layer:Q",
        scale=alt.Scale(scheme="viridis"),
        legend=alt.Legend(
            title="layer", type="gradient", format="d", values=_ends(known["layer"]), gradientLength=90
        ),
    )
    x = alt.X("p:Q", title="Schatten index p", axis=alt.Axis(values=[0, 0.5, 1, 1.5, 2], format="~g"))
    y = alt.Y("log10_C:Q", title="log10 C(p)", scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=EXTENT))
    panels = []
    for kind in _kinds(known):
        rows = [] if medians is None else medians.filter(kind=kind).drop("kind").to_dicts()
        own = dots.filter(pl.col("kind") == kind).drop("kind").to_dicts()
        line = alt.Chart(inline(rows)).mark_line(strokeWidth=1.2)
        dot = alt.Chart(inline(own)).mark_point(
            filled=True, size=22, stroke="black", strokeWidth=0.4, opacity=0.9
        )
        panels.append(
            (
                line.encode(x=x, y=y, color=color, detail="layer:O") + dot.encode(x=x, y=y, color=color)
            ).properties(title=_title(alt, KIND_NAMES[kind]), width=190, height=160)
        )
    return alt.concat(*panels, columns=min(len(panels), 3) if len(panels) != 4 else 2)


def _median_curves(matrices: pl.DataFrame, count: int) -> pl.DataFrame:
    """kind, layer, p, log10_C: the median over the matrices whose curves have so many points."""
    places = _spread(count, MOST_POINTS)
    own = matrices.filter(pl.col("log10_curve").list.len() == count)
    points = own.select("kind", "layer", log10_C=pl.col("log10_curve").list.gather(places)).explode("log10_C")
    placed = points.with_columns(p=pl.Series([2 * i / (count - 1) for i in places] * own.height))
    return placed.group_by("kind", "layer", "p", maintain_order=True).agg(pl.col("log10_C").median())


def compare(matrices: pl.DataFrame, labels: Mapping[str, str] | None = None) -> Any:
    """Models layer by layer, a row of panels per kind of matrix, one column a quantity: medians of heads."""
    import altair as alt

    quantities = {
        "spectral_norm": "spectral norm",
        "effective_rank": "effective rank",
        "log10_scale": "log10 γαL",
        "log10_contribution": "log10 C(p*)",
    }
    names = _labels(matrices, labels)
    medians = (
        matrices.filter(pl.col("layer").is_not_null())
        .group_by("model", "kind", "layer", maintain_order=True)
        .agg(pl.col(list(quantities)).median())
        .with_columns(pl.col("model").replace_strict(names))
    )
    kinds, (first, *_) = _kinds(matrices), quantities
    layers = alt.Scale(domain=[medians["layer"].min(), medians["layer"].max()])
    rows = []
    for kind in kinds:
        panels = []
        for quantity, title in quantities.items():
            table = medians.filter((pl.col("kind") == kind) & pl.col(quantity).is_not_null())
            base = alt.Chart(
                inline(table.select("model", "layer", quantity).to_dicts()),
                title=_title(alt, title if kind == kinds[0] else ""),
            ).encode(
                x=alt.X(
                    "layer:Q",
                    title="layer" if kind == kinds[-1] else "",
                    scale=layers,
                    axis=whole_axis(medians["layer"], 5),
                ),
                y=alt.Y(
                    f"{quantity}:Q",
                    title=KIND_NAMES[kind] if quantity == first else "",
                    scale=alt.Scale(domain=_padded(table[quantity])),
                    axis=alt.Axis(minExtent=EXTENT, tickCount=4),
                ),
                color=_model_color(alt, list(names.values())),
                strokeDash=alt.StrokeDash(
                    "model:N", scale=alt.Scale(domain=list(names.values())), legend=None
                ),
            )
            line = base.mark_line(point=alt.OverlayMarkDef(size=14, filled=True))
            panels.append(line.properties(width=130, height=100))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


def _growth_panel(
    alt: Any,
    table: pl.DataFrame,
    variable: str,
    fixed: str,
    column: str,
    y_title: str,
    title: str,
    size: tuple[int, int] = (250, 160),
    log: bool = False,
) -> Any:
    """Means over seeds as lines, seeds as points, one colour per value of the other size."""
    sizes = sorted(table[variable].unique().to_list())
    levels = sorted(table[fixed].unique().to_list())
    x = alt.X(
        f"{variable}:Q",
        title=variable,
        scale=alt.Scale(type="log", base=2, nice=False, padding=8),
        axis=alt.Axis(values=sizes, format="d"),
    )
    scale = alt.Scale(type="log", nice=False, padding=6) if log else alt.Scale(zero=False)
    axis = alt.Axis(format="~g", tickCount=4 if log else 6, minExtent=EXTENT)
    color = alt.Color(
        f"{fixed}:O",
        title=fixed,
        scale=alt.Scale(domain=levels, range=list(PALETTE[: len(levels)])),
    )
    base = alt.Chart(inline(table.to_dicts()), title=_title(alt, title)).encode(x=x, color=color)
    y = alt.Y(f"{column}:Q", title=y_title, scale=scale, axis=axis)
    line = base.mark_line().encode(y=alt.Y(f"mean({column}):Q", title=y_title, scale=scale, axis=axis))
    return (line + base.mark_point(size=28, filled=True).encode(y=y)).properties(
        width=size[0], height=size[1]
    )


def _power(variable: str, fit: Mapping[str, Any]) -> str:
    """~ depth^(1.03 ± 0.02)."""
    error = fit["standard_error"]
    return f"~ {variable}^{fit['exponent']:.2f}" + ("" if error is None else f" (± {error:.2g})")


def _title(alt: Any, text: str) -> Any:
    """A title over the plot itself, not over its axis labels, so that titles line up."""
    return alt.TitleParams(text, frame="group", anchor="start")


def _padded(values: pl.Series) -> list[float]:
    """The range of values with some room; a constant stands in the middle of a range of one."""
    numbers = values.to_list() or [0.0]
    low, high = min(numbers), max(numbers)
    room = 0.06 * (high - low) if high - low > 1e-9 * abs(high) else 0.5
    return [low - room, high + room]


def _ends(layers: pl.Series) -> list[int]:
    """First, middle and last layer."""
    present = sorted(set(layers.to_list()))
    return sorted({present[0], present[len(present) // 2], present[-1]}) if present else []


def _model_color(alt: Any, labels: list[str]) -> Any:
    """One colour a model; a single model needs no legend."""
    legend = alt.Legend(title=None) if len(labels) > 1 else None
    scale = alt.Scale(domain=labels, range=list(PALETTE[: len(labels)]))
    return alt.Color("model:N", scale=scale, legend=legend)


def _labels(table: pl.DataFrame, labels: Mapping[str, str] | None) -> dict[str, str]:
    """The models of a table with the names to show for them."""
    present = list(dict.fromkeys(table["model"]))
    if labels is None:
        return {model: model for model in present}
    return {model: label for model, label in labels.items() if model in present}


def _kinds(table: pl.DataFrame) -> list[str]:
    """The kinds of matrix that are there, in the order of KIND_NAMES; embeddings have no layer."""
    present = set(table["kind"])
    return [kind for kind in KIND_NAMES if kind in present and "embedding" not in kind]


def _spread(count: int, most: int) -> list[int]:
    """0 to count - 1, or `most` of them, the ends among them, as evenly as whole numbers can.

    >>> _spread(3, 4), _spread(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _thinned(count: int, most: int = 120) -> list[int]:
    """Ranks 0 to count - 1, every one up to 16 and then at most `most` of them."""
    step = max(1, count // most)
    return [rank for rank in range(count) if rank < 16 or rank % step == 0 or rank == count - 1]
