"""Charts of what attention learns: learning curves, spectra, phase diagrams, scaling laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnlaw.base.tables import Schema
from attnlaw.report.style import PALETTE

Reals = NDArray[np.float64]
WIDTH, HEIGHT = 340, 230
GREY, BARS = "#555555", "#B8C9D9"
# Columns of a predicted density; a student that learned nothing has no row.
DENSITY: Schema = {"x": pl.Float64(), "density": pl.Float64(), "interval": pl.Int64()}
STUDENTS = {"factorized": PALETTE[0], "direct": PALETTE[1], "bayes": PALETTE[2]}
STUDENT_NAMES = {"factorized": "factorized", "direct": "direct (ridge)", "bayes": "Bayes-optimal"}


def learning_curves(
    theory: pl.DataFrame, points: pl.DataFrame | None = None, thresholds: pl.DataFrame | None = None
) -> Any:
    """Error against samples, one line per student, with simulated points and their standard errors.

    `theory`: alpha, student, estimation_error. `points`: alpha, student, size, mean, standard_error.
    `thresholds`: alpha, name; drawn as dotted vertical lines.
    """
    import altair as alt

    color = _student_color(alt, theory)
    x = alt.X("alpha:Q", title="sample ratio α = n/d²", scale=alt.Scale(nice=False, zero=False))
    y = alt.Y("estimation_error:Q", title="estimation error E", scale=alt.Scale(zero=True))
    lines = alt.Chart(_named(alt, theory)).mark_line(clip=True)
    layers = [_theory(alt, lines.encode(x=x, y=y, color=color))]
    if thresholds is not None:
        last = theory["alpha"].max()
        rows = thresholds.filter(pl.col("alpha") <= last)
        base = alt.Chart(alt.Data(values=rows.to_dicts())).encode(x="alpha:Q")
        layers.append(base.mark_rule(strokeDash=[2, 3], color="#666"))
        layers.append(
            base.mark_text(angle=270, align="right", dx=-3, dy=-6, fontSize=9, color="#444").encode(
                y=alt.value(0), text="name:N"
            )
        )
    if points is not None and points.height:
        spread = points.with_columns(
            estimation_error=pl.col("mean"),
            low=pl.col("mean") - pl.col("standard_error").fill_null(0.0),
            high=pl.col("mean") + pl.col("standard_error").fill_null(0.0),
        )
        spread = spread.sort("size")
        spread = spread.with_columns(trained=pl.Series([trained_name(size) for size in spread["size"]]))
        if spread["standard_error"].is_not_null().any():
            spread = spread.with_columns(trained=pl.col("trained") + " (± s.e.)")
        names = spread["trained"].unique(maintain_order=True).to_list()
        shape = alt.Shape(
            "trained:N",
            title=None,
            scale=alt.Scale(domain=names),
            legend=alt.Legend(symbolFillColor=GREY, symbolStrokeColor=GREY),
        )
        base = alt.Chart(_named(alt, spread)).encode(x=x, color=color)
        layers.append(base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q"))
        layers.append(base.mark_point(filled=True, size=34, opacity=1).encode(y=y, shape=shape))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)


def trained_name(*sizes: int) -> str:
    """How a legend calls trained students.

    >>> trained_name(20), trained_name(20, 40), trained_name()
    ('trained, d = 20', 'trained, d = 20, 40', 'trained')
    """
    return f"trained, d = {', '.join(map(str, sizes))}" if sizes else "trained"


def spectrum(
    density: pl.DataFrame,
    eigenvalues: pl.DataFrame | None = None,
    atom: float = 0.0,
    outliers: tuple[float, ...] = (),
    sizes: tuple[int, ...] = (),
) -> Any:
    """Predicted density of the trained matrix over a histogram of trained eigenvalues (those not at zero).

    `density`: columns `DENSITY`. `eigenvalues`: eigenvalue, of all seeds; the atom at zero is written, not
    drawn. Both may be empty: what was cut entirely is an atom alone. `sizes`: of the trained students.
    """
    import altair as alt

    title = f"weight at zero: predicted {atom:.3f}" if atom > 0 else ""
    layers = []
    if eigenvalues is not None and eigenvalues.height:
        values = eigenvalues["eigenvalue"].to_numpy()
        at_zero = float((values == 0.0).mean())
        title += f", trained {at_zero:.3f}" if atom > 0 else ""
        # An atom takes its own weight out of the histogram; without one every eigenvalue is drawn.
        kept = values[values != 0.0] if atom > 0 else values
        # Domains are given: a legend without an entry, of no row at all, has no size.
        name = trained_name(*sizes)
        bars = _bars(kept, density["x"].to_numpy(), values.size)
        layers.append(
            alt.Chart(alt.Data(values=bars))
            .mark_bar(stroke="white", strokeWidth=0.3)
            .encode(
                x=alt.X("left:Q"),
                x2="right:Q",
                y=alt.Y("floor:Q"),
                y2="height:Q",
                fill=alt.Fill("trained:N", title=None, scale=alt.Scale(domain=[name], range=[BARS])),
            )
            .transform_calculate(trained=repr(name))
        )
    line = alt.Chart(alt.Data(values=density.to_dicts())).mark_line(color=PALETTE[0], clip=True)
    line = line.encode(
        x=alt.X("x:Q", title="eigenvalue of the learned matrix"),
        y=alt.Y("density:Q", title="density"),
        detail="interval:N",
    )
    layers.append(_theory(alt, line, PALETTE[0]))
    if outliers:
        marks = alt.Chart(alt.Data(values=[{"x": place, "y": 0.0} for place in outliers]))
        marks = marks.transform_calculate(outlier="'outlier, theory'")
        layers.append(
            marks.mark_point(size=60, filled=True, color=PALETTE[1]).encode(
                x="x:Q",
                y="y:Q",
                shape=alt.Shape(
                    "outlier:N",
                    title=None,
                    scale=alt.Scale(range=["triangle-up"]),
                    legend=alt.Legend(symbolFillColor=PALETTE[1], symbolStrokeColor=PALETTE[1]),
                ),
            )
        )
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def _bars(kept: Reals, beside: Reals, total: int) -> list[dict[str, float]]:
    """A histogram of the values kept out of `total`, as a density over the range of both arrays."""
    if not kept.size:
        return []
    count = max(12, min(60, round(3 * kept.size ** (1 / 3))))
    places = np.concatenate([kept, beside])
    numbers, ends = np.histogram(kept, bins=count, range=(float(places.min()), float(places.max())))
    return [
        {"floor": 0.0, "left": left, "right": right, "height": number / (total * (right - left))}
        for number, left, right in zip(numbers.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def phase_diagram(rows: pl.DataFrame, lines: pl.DataFrame) -> Any:
    """Relative error over target rank and samples, with the thresholds as lines.

    `rows`: target_rank, alpha, relative_error on a grid. `lines`: target_rank, alpha, name.
    """
    import altair as alt

    ranks, alphas = rows["target_rank"].unique().sort(), rows["alpha"].unique().sort()
    dx, dy = (float(grid[1] - grid[0]) if grid.len() > 1 else 0.1 for grid in (ranks, alphas))
    cells = rows.with_columns(
        # Cells overlap a little: exact neighbours leave hairlines between them.
        left=pl.col("target_rank") - dx / 2,
        right=pl.col("target_rank") + dx * 0.6,
        low=pl.col("alpha") - dy / 2,
        high=pl.col("alpha") + dy * 0.6,
        shown=pl.col("relative_error").clip(0.0, 1.0),
    ).select("left", "right", "low", "high", "shown")
    span_x = [float(ranks[0]) - dx / 2, float(ranks[-1]) + dx / 2]
    span_y = [float(alphas[0]) - dy / 2, float(alphas[-1]) + dy / 2]
    x_scale, y_scale = alt.Scale(domain=span_x, nice=False), alt.Scale(domain=span_y, nice=False)
    heat = (
        alt.Chart(alt.Data(values=cells.to_dicts()))
        .mark_rect(clip=True)
        .encode(
            x=alt.X("left:Q", title="target rank ratio κ₀ = m₀/d", scale=x_scale),
            x2="right:Q",
            y=alt.Y("low:Q", title="sample ratio α = n/d²", scale=y_scale),
            y2="high:Q",
            color=alt.Color("shown:Q", title="E / Q*", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
        )
    )
    names = list(dict.fromkeys(lines["name"]))
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1]]
    rules = (
        alt.Chart(alt.Data(values=lines.to_dicts()))
        .mark_line(clip=True, color="white", strokeWidth=1.8)
        .encode(
            x=alt.X("target_rank:Q", scale=x_scale),
            y=alt.Y("alpha:Q", scale=y_scale),
            strokeDash=alt.StrokeDash(
                "name:N",
                title="threshold",
                scale=alt.Scale(domain=names, range=dashes[: len(names)]),
                legend=alt.Legend(symbolStrokeColor="black", symbolSize=250),
            ),
        )
    )
    return alt.layer(heat, rules).properties(width=WIDTH, height=HEIGHT)


def scaling_law(rows: pl.DataFrame, points: pl.DataFrame | None = None) -> Any:
    """Error against N/d on logarithmic axes: full equations as lines, the leading-order law dashed.

    `rows`: ratio, label, estimation_error, leading. `points`: ratio, label, mean, standard_error.
    """
    import altair as alt

    labels = list(dict.fromkeys(rows["label"]))
    color = alt.Color(
        "label:N", title=None, scale=alt.Scale(domain=labels, range=list(PALETTE[: len(labels)]))
    )
    x = alt.X("ratio:Q", title="observations N/d", scale=alt.Scale(type="log", nice=False))
    y_scale = alt.Scale(type="log", nice=False)
    lowest = min(rows["estimation_error"].to_list() + rows["leading"].to_list())
    decades = [10.0**power for power in range(math.floor(math.log10(lowest)), 2)]
    y_axis = alt.Axis(values=decades, format="~g")
    base = alt.Chart(alt.Data(values=rows.to_dicts())).encode(x=x, color=color)
    layers = [
        base.mark_line().encode(
            y=alt.Y("estimation_error:Q", title="estimation error E", scale=y_scale, axis=y_axis)
        ),
        base.mark_line(strokeDash=[4, 3], strokeWidth=1.1).encode(y=alt.Y("leading:Q", scale=y_scale)),
    ]
    if points is not None and points.height:
        spread = points.with_columns(
            low=pl.col("mean") - pl.col("standard_error"), high=pl.col("mean") + pl.col("standard_error")
        )
        marks = alt.Chart(alt.Data(values=spread.to_dicts())).encode(x=x, color=color)
        layers.append(marks.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", scale=y_scale), y2="high:Q"))
        layers.append(
            marks.mark_point(filled=True, size=34, opacity=1).encode(y=alt.Y("mean:Q", scale=y_scale))
        )
    title = "full equations (solid) and leading order (dashed)"
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def _theory(alt: Any, lines: Any, color: str = GREY) -> Any:
    """The lines with an entry of their own in the legend."""
    dash = alt.StrokeDash(
        "theory:N",
        title=None,
        scale=alt.Scale(domain=["theory"], range=[[1, 0]]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor=color),
    )
    return lines.encode(strokeDash=dash).transform_calculate(theory="'theory'")


def _named(alt: Any, rows: pl.DataFrame) -> Any:
    named = rows.with_columns(name=pl.col("student").replace(STUDENT_NAMES))
    return alt.Data(values=named.to_dicts())


def _student_color(alt: Any, rows: pl.DataFrame) -> Any:
    students = list(dict.fromkeys(rows["student"]))
    scale = alt.Scale(
        domain=[STUDENT_NAMES.get(student, student) for student in students],
        range=[STUDENTS.get(student, PALETTE[-1]) for student in students],
    )
    return alt.Color("name:N", title=None, scale=scale, legend=alt.Legend(symbolType="square"))
