"""Figures for a two-column paper: 3.3 or 6.9 inches wide, text of 7 and 8 points, thin lines.

A point of a page is a pixel of a chart. Text keeps its size while the panels are scaled, so that the whole
figure, axes and legends included, is as wide as the column.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import write_all
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.style import FONT, PALETTE, as_title, draw_svg, legend_below, vl_converter
from attnlaw.render.output_options import ENDINGS

POINTS_PER_INCH = 72
COLUMN, PAGE = 3.3 * POINTS_PER_INCH, 6.9 * POINTS_PER_INCH
# A chart that was drawn wider than this on screen takes both columns.
WIDE = 470
PIXELS_PER_INCH = 300  # of a bitmap
# A figure may miss its width by so many points.
WIDTH_TOLERANCE = 4.0
# How wide its widest panel is at least: beside a legend, or else above it.
ROOMY_PANEL, NARROWEST_PANEL = 60.0, 30.0
LETTER = 3.8  # of a legend, on average
STEPS = 8  # of the search for that width
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "padding": 1,
    "range": {"category": list(PALETTE), "heatmap": {"scheme": "viridis"}},
    "axis": {
        "labelFontSize": 7,
        "titleFontSize": 8,
        "titleFontWeight": "normal",
        "titlePadding": 3,
        "labelPadding": 2,
        "tickSize": 3,
        "tickWidth": 0.5,
        "domainWidth": 0.5,
        "gridWidth": 0.4,
        "gridOpacity": 0.5,
    },
    "axisBand": {"labelOverlap": True},  # of many heads some are labelled
    "axisY": {"labelFlush": True},  # else a label at the top of one panel lifts its title
    "legend": {
        "labelFontSize": 7,
        "titleFontSize": 7,
        "titleFontWeight": "normal",
        "offset": 6,
        "symbolSize": 40,
        "labelLimit": 0,
        "titleLimit": 0,
        "gradientThickness": 7,
    },
    "title": {"fontSize": 8, "fontWeight": "normal", "anchor": "start", "offset": 4},
    "line": {"strokeWidth": 1},
    "rule": {"strokeWidth": 0.8},
    "point": {"size": 12},
    "text": {"fontSize": 7},
    "view": {"strokeOpacity": 0.3, "strokeWidth": 0.5},
    "concat": {"spacing": 10},
}
# The size of a panel that states none, and of a step of its categories.
PANEL, CATEGORY = 300, 20
NESTED = ("hconcat", "vconcat", "concat", "layer")


def figure_files(figures: Iterable[Figure], folder: Path, ending: str) -> dict[Path, bytes]:
    """Return every figure for a paper, as the file NAME.ending of a folder, and the file of its caption."""
    paths = {folder / f"{figure.name}.{ending}": figure for figure in figures}
    drawn = {path: chart_bytes(_chart_with_model(figure), path) for path, figure in paths.items()}
    return drawn | {caption_path(path): figure.caption_text.encode() for path, figure in paths.items()}


def save_figure(figure: Figure, path: Path) -> None:
    """Write one figure and its caption."""
    write_all({path: chart_bytes(figure.draw(), path), caption_path(path): figure.caption_text.encode()})


def caption_path(path: Path) -> Path:
    """Where the caption of a figure stands.

    >>> caption_path(Path("figures/decay.pdf")).name
    'decay.caption.txt'
    """
    return path.with_name(f"{path.stem}.caption.txt")


def save_chart(chart: Any, path: str | os.PathLike[str]) -> Path:
    """Write a chart for a two-column paper as PDF, SVG or PNG (300 per inch), by the ending of `path`."""
    target = Path(path)
    write_all({target: chart_bytes(chart, target)})
    return target


def chart_bytes(chart: Any, target: Path) -> bytes:
    """What `save_chart` writes to the target."""
    if target.suffix[1:] not in ENDINGS:
        raise InputError(f"{target}: a figure ends in one of .{', .'.join(ENDINGS)}; rename it")
    spec = paper_spec(chart)
    if target.suffix == ".pdf":
        return vl_converter().vegalite_to_pdf(spec)  # type: ignore[no-any-return]
    if target.suffix == ".png":
        return vl_converter().vegalite_to_png(spec, ppi=PIXELS_PER_INCH)  # type: ignore[no-any-return]
    return _in_points(draw_svg(spec)).encode()


def _in_points(drawing: str) -> str:
    """The drawing with its width and height in points: without a unit they would be 96ths of an inch.

    >>> _in_points('<svg width="72" height="36.5"><rect width="9"/></svg>')
    '<svg width="72pt" height="36.5pt"><rect width="9"/></svg>'
    """
    head, end, rest = drawing.partition(">")
    return re.sub(r'\b(width|height)="([\d.]+)"', r'\1="\2pt"', head) + end + rest


def _chart_with_model(figure: Figure) -> Any:
    """The chart of the figure, above it the model where the figure shows one of several."""
    chart = figure.draw()
    if figure.model is None:
        return chart
    title = chart.to_dict(validate=False).get("title")
    words = [figure.model, *([title.strip()] if isinstance(title, str) else [])]
    return chart.properties(title={"text": as_title(": ".join(words)), "limit": PAGE})


def paper_spec(chart: Any) -> dict[str, Any]:
    """The chart's specification in the style of a paper, as wide as one column or two.

    An `InputError` where its text leaves no room for panels on a page.
    """
    spec = chart.to_dict(validate=False)
    beside = spec | {"config": CONFIG}
    tries = [(beside, PAGE, ROOMY_PANEL), (_with_legend_below(spec, PAGE), PAGE, NARROWEST_PANEL)]
    below = _with_legend_below(spec, COLUMN)
    if _drawing_width(below) <= WIDE:
        # Beside a chart of one column a legend would take a third of it.
        tries.insert(0, (below, COLUMN, ROOMY_PANEL))
    for styled, target, least in tries:
        fitted = _fit_width(styled, target, least)
        if fitted is not None:
            return fitted
    raise InputError(
        f"figure: its labels alone are wider than {PAGE / POINTS_PER_INCH:g} inches; draw fewer panels, or "
        "shorten the names"
    )


def _with_legend_below(spec: dict[str, Any], width: float) -> dict[str, Any]:
    legend = CONFIG["legend"] | legend_below(spec, width, LETTER)
    return spec | {"config": CONFIG | {"legend": legend}}


def _fit_width(spec: dict[str, Any], target: float, least: float) -> dict[str, Any] | None:
    """The panels scaled until the whole is `target` wide; None where the widest would shrink below `least`.

    The width is linear in the factor up to the rounding of ticks: secant steps from factor 1.
    """
    smallest = min(1.0, least / max(_panel_widths(spec), default=PANEL))
    last, at_last = 1.0, _drawing_width(spec)
    factor = target / at_last
    for _ in range(STEPS):
        scaled = _scale_panels(spec, max(factor, smallest))
        at = _drawing_width(scaled)
        if abs(at - target) <= WIDTH_TOLERANCE:
            return scaled
        # Above a legend that is wider than they are, panels grow unnoticed but for what is rounded.
        unnoticed = abs(at - at_last) < 1.0
        if factor < smallest or (unnoticed and at > target):
            return None
        step = factor if unnoticed else (target - at) * (factor - last) / (at - at_last)
        last, at_last, factor = factor, at, factor + step
    return None


def _panel_widths(spec: dict[str, Any]) -> list[float]:
    """The widths of all panels."""
    widths = [float(spec["width"])] if isinstance(spec.get("width"), int | float) else []
    return widths + [width for key in NESTED for part in spec.get(key, ()) for width in _panel_widths(part)]


def _drawing_width(spec: dict[str, Any]) -> float:
    """How wide the whole drawing is."""
    match = re.search(r'width="([\d.]+)"', draw_svg(spec))
    return float(match[1]) if match else 0.0


def _scale_panels(spec: dict[str, Any], factor: float) -> dict[str, Any]:
    """The specification with every panel's width multiplied, and its height too, unless it would grow."""
    scaled = dict(spec)
    for side, by in (("width", factor), ("height", min(factor, 1.0))):
        if isinstance(spec.get(side), int | float):
            scaled[side] = spec[side] * by
    if "config" in spec:
        sizes = {"continuousWidth": PANEL * factor, "continuousHeight": PANEL * min(factor, 1.0)}
        view = spec["config"]["view"] | sizes | {"discreteWidth": {"step": CATEGORY * factor}}
        scaled["config"] = spec["config"] | {"view": view}
    for key in NESTED:
        if key in spec:
            scaled[key] = [_scale_panels(part, factor) for part in spec[key]]
    return scaled
