"""Figures for a two-column paper: 3.3 or 6.9 inches wide, text of 7 and 8 points, thin lines. A point is one
pixel of the chart. Panels are scaled until the figure, with axes and legends, is as wide as the column."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import to_json, write_all
from attnlaw.render.charts.figure import Figure, draw_each
from attnlaw.render.charts.style import (
    FONT,
    PALETTE,
    as_title,
    call_engine,
    draw_svg,
    legend_below,
    without_controls,
)
from attnlaw.render.output_options import ENDINGS

POINTS_PER_INCH = 72
COLUMN, PAGE = 3.3 * POINTS_PER_INCH, 6.9 * POINTS_PER_INCH
WIDE = 470  # a wider chart, with the legend below, takes both columns
PIXELS_PER_INCH = 300  # in a PNG
WIDTH_TOLERANCE = 4.0  # allowed deviation from the width, in points
# Least width of the widest panel: with the legend at its side, and above the legend.
ROOMY_PANEL, NARROWEST_PANEL = 60.0, 30.0
LETTER = 3.8  # mean width of a letter in a legend, in points
STEPS = 8  # at most, of the search for the factor
LABELS: dict[str, Any] = {"labelFontSize": 7, "titleFontWeight": "normal"}
THIN_LINES = {"tickSize": 3, "tickWidth": 0.5, "domainWidth": 0.5, "gridWidth": 0.4, "gridOpacity": 0.5}
UNCUT = {"labelLimit": 0, "titleLimit": 0}
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "padding": 1,
    "range": {"category": list(PALETTE), "heatmap": {"scheme": "viridis"}},
    "axis": LABELS | THIN_LINES | {"titleFontSize": 8, "titlePadding": 3, "labelPadding": 2},
    "axisBand": {"labelOverlap": True},  # only some of many heads get a label
    "axisY": {"labelFlush": True},  # or a label at the top of a panel would lift its title
    "legend": LABELS | UNCUT | {"titleFontSize": 7, "offset": 6, "symbolSize": 40, "gradientThickness": 7},
    "title": {"fontSize": 8, "fontWeight": "normal", "anchor": "start", "offset": 4},
    "line": {"strokeWidth": 1},
    "rule": {"strokeWidth": 0.8},
    "point": {"size": 12},
    "text": {"fontSize": 7},
    "view": {"strokeOpacity": 0.3, "strokeWidth": 0.5},
    "concat": {"spacing": 10},
}
PANEL, CATEGORY = 300, 20  # default size of a panel, and of a category on an axis
NESTED = ("hconcat", "vconcat", "concat", "layer")


def figure_files(figures: Iterable[Figure], folder: Path, ending: str) -> dict[Path, bytes]:
    """Return the contents of all figure and caption files, by path, for figures that can be drawn."""

    def path_of(figure: Figure) -> Path:
        return folder / f"{figure.name}.{ending}"

    drawings = draw_each(figures, lambda figure: chart_bytes(_chart_with_model(figure), path_of(figure)))
    drawn = {figure: content for figure, content in drawings if not isinstance(content, InputError)}
    captions = {caption_path(path_of(figure)): figure.caption_text.encode() for figure in drawn}
    return {path_of(figure): content for figure, content in drawn.items()} | captions


def save_figure(figure: Figure, path: Path) -> None:
    write_all({path: chart_bytes(figure.draw(), path), caption_path(path): figure.caption_text.encode()})


def caption_path(path: Path) -> Path:
    """Return the path of a figure's caption file.

    >>> caption_path(Path("figures/decay.pdf")).name
    'decay.caption.txt'
    """
    return path.with_name(f"{path.stem}.caption.txt")


def save_chart(chart: Any, path: str | os.PathLike[str]) -> Path:
    """Write an altair chart for a two-column paper, and return the path.

    Args:
        chart: the altair chart.
        path: a path that ends in .pdf, .svg or .png (300 pixels per inch).

    Raises:
        InputError: if the path has another ending, or if the labels are too wide for a page.
    """
    target = Path(path)
    write_all({target: chart_bytes(chart, target)})
    return target


def chart_bytes(chart: Any, target: Path) -> bytes:
    """Return the content of the file that `save_chart` writes."""
    if target.suffix[1:] not in ENDINGS:
        raise InputError(
            f"{target}: the file name of a figure must end in one of .{', .'.join(ENDINGS)}; choose another "
            "name"
        )
    spec = without_controls(paper_spec(chart))
    if target.suffix == ".pdf":
        return call_engine("draw_pdf", to_json(spec, indent=None))  # type: ignore[no-any-return]
    if target.suffix == ".png":
        return call_engine("draw_png", to_json(spec, indent=None), PIXELS_PER_INCH)  # type: ignore[no-any-return]
    return _in_points(draw_svg(spec)).encode()


def _in_points(drawing: str) -> str:
    """Write the unit "pt" after the width and the height of an SVG. Without it, the unit is 1/96 inch.

    >>> _in_points('<svg width="72" height="36.5"><rect width="9"/></svg>')
    '<svg width="72pt" height="36.5pt"><rect width="9"/></svg>'
    """
    head, end, rest = drawing.partition(">")
    return re.sub(r'\b(width|height)="([\d.]+)"', r'\1="\2pt"', head) + end + rest


def _chart_with_model(figure: Figure) -> Any:
    """Return the chart. If the result has several models, the title starts with the name of the model."""
    chart = figure.draw()
    if figure.model is None:
        return chart
    title = chart.to_dict(validate=False).get("title")
    words = [figure.model, *([title.strip()] if isinstance(title, str) else [])]
    return chart.properties(title={"text": as_title(": ".join(words)), "limit": PAGE})


def paper_spec(chart: Any) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart for a paper. Text must leave room for panels."""
    spec = chart.to_dict(validate=False)
    beside = spec | {"config": CONFIG}
    tries = [(beside, PAGE, ROOMY_PANEL), (_with_legend_below(spec, PAGE), PAGE, NARROWEST_PANEL)]
    below = _with_legend_below(spec, COLUMN)
    if _drawing_width(below) <= WIDE:
        # In one column, a legend at the side would take a third of the width.
        tries.insert(0, (below, COLUMN, ROOMY_PANEL))
    for styled, target, least in tries:
        if (fitted := _fit_width(styled, target, least)) is not None:
            return fitted
    raise InputError(
        f"figure: its labels do not fit into the width of {PAGE / POINTS_PER_INCH:g} inches; draw fewer "
        "panels, or shorten the names"
    )


def _with_legend_below(spec: dict[str, Any], width: float) -> dict[str, Any]:
    return spec | {"config": CONFIG | {"legend": CONFIG["legend"] | legend_below(spec, width, LETTER)}}


def _fit_width(spec: dict[str, Any], target: float, least: float) -> dict[str, Any] | None:
    """Scale the panels until the drawing is `target` wide, or return None if they are below `least`."""
    smallest = min(1.0, least / max(_panel_widths(spec), default=PANEL))
    last, at_last = 1.0, _drawing_width(spec)
    factor = target / at_last
    for _ in range(STEPS):
        scaled = _scale_panels(spec, max(factor, smallest))
        at = _drawing_width(scaled)
        if abs(at - target) <= WIDTH_TOLERANCE:
            return scaled
        # Above a wider legend, panels grow without a change of the total width, except for rounding.
        unnoticed = abs(at - at_last) < 1.0
        if factor < smallest or (unnoticed and at > target):
            return None
        step = factor if unnoticed else (target - at) * (factor - last) / (at - at_last)
        last, at_last, factor = factor, at, factor + step
    return None


def _panel_widths(spec: dict[str, Any]) -> list[float]:
    widths = [float(spec["width"])] if isinstance(spec.get("width"), int | float) else []
    return widths + [width for key in NESTED for part in spec.get(key, ()) for width in _panel_widths(part)]


def _drawing_width(spec: dict[str, Any]) -> float:
    match = re.search(r'width="([\d.]+)"', draw_svg(spec))
    return float(match[1]) if match else 0.0


def _scale_panels(spec: dict[str, Any], factor: float) -> dict[str, Any]:
    """Multiply the width of every panel by a factor. The height is multiplied too, unless it would grow."""
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
