"""Charts of `limit`: densities, distances to the limit, and the tokens along the depth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.encodings import GREY, PANEL, inline_data
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.lines import draw_beside, draw_lines, line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE, palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart, has_values
from attnlaw.render.describe_rows import MOST_CASES, format_setting, rows_by_case, varying_settings

# Title, slope against the width, and that slope in words. At width n the density differs from the limit by
# a term of order 1/n. W1 is of first order in this difference, and KL of second order: 1/n^2.
DISTANCES = {
    "kl_to_limit": ("KL divergence to the limit", -2, "at twice the width, it is four times smaller"),
    "w1_to_limit": (
        "Wasserstein-1 distance to the limit",
        -1,
        "at twice the width, it is two times smaller",
    ),
}
PATHS = {"squared_length": "squared length of a token / width", "cosine": "mean cosine between tokens"}
KERNEL = (
    "The kernel estimate of arXiv 2506.00846 (mean and standard deviation over seeds) levels off at its "
    "bias, so only the other points show the true distance."
)
OWN, KERNEL_NAME = "from the densities", "kernel estimate (paper)"
INFINITE, GAUSSIAN = "∞", "Gaussian"
DASHES = {INFINITE: [5, 3], GAUSSIAN: [1.5, 2]}


@chart(
    "Densities",
    "Probability density of one output coordinate over random weights. A line close to the limit means that "
    "the layer is wide enough for infinite-width theory. The ratio to the limit shows the tails: near 1 is "
    "good.",
)
def densities(view: ChartView) -> Drawings:
    """Draw the densities, with a line for each width and a panel for each number of heads.

    If there are several seeds, the chart shows only the first repetition.
    """
    for case, case_rows in view.cases(view.frame("densities", "y", "density"), ["width", "heads"]):
        if case_rows["width"].is_finite().any():
            # A panel with only the limit would compare nothing.
            case_rows = case_rows.filter(pl.col("width").is_finite().any().over("heads"))
        first = case_rows.filter(pl.col("case") == pl.col("case").first().over("width", "heads"))
        names = {width: format_setting(width) for width in sorted(first["width"].unique())}
        several = len(names) > 1 or has_values(first, "gaussian_density")
        notes = ["Dashed: the infinite-width limit."] if several and INFINITE in names.values() else []
        if has_values(first, "gaussian_density"):
            notes.append("Dotted: the Gaussian with the mean and variance of the widest layer.")
        draw = partial(_draw_densities, view, first, names, has_values(case_rows, "ratio"))
        yield Drawing(draw, case, " ".join(notes))


def _draw_densities(
    view: ChartView, rows: pl.DataFrame, names: Mapping[float, str], with_ratio: bool
) -> alt.ConcatChart:
    axis, with_gaussian = view.verb.axis, has_values(rows, "gaussian_density")
    colours = {
        name: "#000000" if name == INFINITE else PALETTE[i % (len(PALETTE) - 1)]
        for i, name in enumerate(names.values())
    }
    panels = []
    for (heads,), group in sorted(rows.group_by("heads"), key=lambda pair: pair[0]):
        filled = _fill_ratios(group) if with_ratio else group.with_columns(ratio=None)
        series = pl.col("width").replace_strict(names, return_dtype=pl.String)
        lines = filled.select("density", "ratio", x="y", series=series)
        if with_gaussian:
            widest = filled.filter(pl.col("width") == pl.col("width").max())
            ratio = pl.col("ratio") * pl.col("gaussian_density") / pl.col("density") if with_ratio else None
            guide = widest.select(density="gaussian_density", ratio=ratio, x="y", series=pl.lit(GAUSSIAN))
            lines = pl.concat([lines, guide])
        panel = draw_densities(
            lines,
            axis("y"),
            colours | ({GAUSSIAN: GREY} if with_gaussian else {}),
            axis("width"),
            axis("ratio") if with_ratio and has_values(filled, "ratio") else None,
            "1 head" if heads == 1 else f"{format_setting(heads)} heads",
        )
        panels.append(panel)
    return alt.concat(*panels, columns=1 if with_ratio else 2)


def _fill_ratios(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill in ratios to the limit's density that studies lack, because each task has one width."""
    limit = rows.filter(pl.col("width").is_infinite() & (pl.col("density") > 0)).sort("y")
    if not limit.height or not rows["ratio"].null_count():
        return rows
    line = np.interp(rows["y"], limit["y"], np.log(limit["density"].to_numpy()), left=np.nan, right=np.nan)
    ratios = pl.Series(rows["density"].to_numpy() / np.exp(line)).fill_nan(None)
    return rows.with_columns(pl.col("ratio").fill_null(ratios))


def draw_densities(
    rows: pl.DataFrame, x: str, colours: Mapping[str, str], legend: str, ratio: str | None, title: str
) -> alt.HConcatChart:
    """Draw several densities (x, density, ratio, series), and their ratios if `ratio` is a title."""
    hues = alt.Scale(domain=list(colours), range=list(colours.values()))
    dashes = alt.Scale(domain=list(colours), range=[DASHES.get(name, [1, 0]) for name in colours])
    base = (
        alt.Chart(inline_data(rows), **PANEL)
        .mark_line()
        .encode(
            x=alt.X("x:Q", title=x),
            color=alt.Color("series:N", title=legend, scale=hues),
            strokeDash=alt.StrokeDash("series:N", title=legend, scale=dashes),
        )
    )
    panels = [base.encode(y=alt.Y("density:Q", title="density")).properties(title=title)]
    if ratio is not None:
        up = alt.Y("ratio:Q", title=ratio, scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=5))
        panels.append(
            base.encode(y=up).properties(
                title=f"{title}: density / limit" if title else "density / density in the limit"
            )
        )
    return alt.hconcat(*panels, spacing=28)


def distances(result: Result) -> list[Figure]:
    """Draw distances to the limit over the width, or over the heads if each number has one width."""
    view = ChartView.of(result)
    finite = view.rows.filter(pl.col("width").is_finite())
    widths = finite.group_by("heads").agg(pl.col("width").n_unique())["width"].to_list()
    x = "width" if max(widths, default=0) > 1 else "heads"
    if finite[x].n_unique() < 2:
        return []
    others = view.other_settings(finite, ["width", "heads"])
    lines = [*(["heads"] if x == "width" and len(widths) > 1 else []), *others]
    split = bool(lines) and finite.select(lines).n_unique() > MOST_CASES
    across = view.verb.axis(x) if x == "width" else _heads_axis(view, finite)
    figures = []
    for case, case_rows in rows_by_case(finite, others if split else []):
        by = [name for name in lines if not split or name == "heads"]
        for column, (title, power, falls) in DISTANCES.items():
            drawn = _lines(view, case_rows, x, column, by)
            if not (drawn["y"] > 0).any():
                continue
            notes = [_points_note(case_rows, [x, *by]), "Lower is better: 0 is the limit itself."]
            slope = power if x == "width" else None
            guided = [name for name in drawn["series"].unique() if _falls(name)]
            if slope is not None:
                notes.append(f"Dashed: the slope −{-slope} that theory predicts: {falls}.")
            notes += [KERNEL] if KERNEL_NAME in drawn["series"] else []
            colours, axis = palette(drawn["series"]), view.verb.axis(column)
            draw = partial(draw_lines, drawn, across, axis, colours, log=True, slope=slope, guided=guided)
            figures += view.figures(column, title, " ".join(notes), [Drawing(draw, case)])
    return figures


def _lines(view: ChartView, rows: pl.DataFrame, x: str, column: str, by: list[str]) -> pl.DataFrame:
    means = _means(view, rows, x, column, by)
    if column != "kl_to_limit":
        return means
    if has_values(rows, "kl_to_other_limit"):
        parts = [means.with_columns(series=_named("series", pl.lit("its limit")))]
        other_rows = rows.drop_nulls("kl_to_other_limit")
        for (scaling,), other in other_rows.group_by("other_scaling", maintain_order=True):
            named = _named("series", pl.format(f"{OTHER} {{}}", pl.lit(scaling)))
            parts.append(_means(view, other, x, "kl_to_other_limit", by).with_columns(series=named))
        return pl.concat(parts)
    if has_values(rows, "kernel_kl_to_limit") and not by:
        kernel = rows.group_by(x, maintain_order=True).agg(
            y=pl.col("kernel_kl_to_limit").mean(), error=pl.col("kernel_kl_to_limit").std()
        )
        placed = kernel.drop_nulls("y").select(
            pl.col(x).cast(pl.Float64).alias("x"), "y", "error", series=pl.lit(KERNEL_NAME)
        )
        return pl.concat([means.with_columns(series=pl.lit(OWN)), placed])
    return means


OTHER = "limit of"


def _named(series: str, reference: pl.Expr) -> pl.Expr:
    """Add the limit that a series is compared with to its name, which is empty if no other setting varies."""
    return pl.when(pl.col(series) == "").then(reference).otherwise(pl.format("{}, {}", series, reference))


def _falls(series: str) -> bool:
    """Return whether theory says that the distance falls with the width: it is one to the layer's limit."""
    return series != KERNEL_NAME and OTHER not in series


def _points_note(rows: pl.DataFrame, points: list[str]) -> str:
    counts = rows.group_by(points).len()["len"].to_list()
    fewest, most = min(counts), max(counts)
    seeds = str(most) if fewest == most else f"{fewest} to {most}"
    return f"Points{'' if most == 1 else f': means over {seeds} seeds,'} with bars of one standard error."


def _means(view: ChartView, rows: pl.DataFrame, x: str, column: str, by: list[str]) -> pl.DataFrame:
    lines, _ = view.mean_lines(rows.drop_nulls(column), x, column, by)
    return lines.select(pl.col("x").cast(pl.Float64), "y", "error", "series")


def _heads_axis(view: ChartView, rows: pl.DataFrame) -> str:
    widths = rows["head_width"].unique().to_list()
    label = view.verb.axis("heads")
    return label if len(widths) > 1 or widths[0] is None else f"{label}, each of width {widths[0]:g}"


@chart(
    "KL divergence to a Gaussian",
    "How far the output is from a Gaussian of equal mean and variance, for each number of heads: 0 is a "
    "Gaussian. Dashed: the slope −2 that theory predicts: with twice as many heads, the divergence is four "
    "times smaller.",
)
def gaussian(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "heads", "kl_to_gaussian", log=True, slope=-2)


@chart(
    "Tokens from layer to layer",
    "Left: squared length of the token that attnlaw analyses; it should not explode or vanish. Right: how "
    "similar tokens are; at 1 all are parallel (rank collapse). Bars are one standard error.",
)
def path(view: ChartView) -> Drawings:
    """Draw the squared length of a token and the mean cosine over depth, for the first repetition."""
    names = [f"path_{name}{end}" for name in PATHS for end in ("", "_error")]
    rows = view.rows.drop_nulls(names)
    by = varying_settings(rows, view.settings)
    first = rows.unique(by, keep="first", maintain_order=True) if by else rows.head(1)
    whole = first.filter(
        pl.all_horizontal(pl.col(name).list.len() == pl.col(names[0]).list.len() for name in names)
    )
    named, colours = view.with_series(whole.select(*by, *names), by)
    long = named.explode(names).with_columns(x=pl.int_range(pl.len()).over("series"))
    panels = [
        partial(
            draw_lines,
            long.select("x", "series", y=f"path_{name}", error=f"path_{name}_error"),
            "layers passed",
            title,
            colours,
            log_y=name == "squared_length",
            **PANEL,
        )
        for name, title in PATHS.items()
    ]
    if long.height:
        yield Drawing(partial(draw_beside, panels))
