"""One look for every chart: sizes for a two-column page, a colour-blind-safe palette, atomic saving."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from attnlaw.base.errors import InputError
from attnlaw.base.files import replace_all, to_json

# Okabe and Ito's palette without its yellow, which is too light for lines on white, and two more.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999", "#882255")
FORMATS = (".png", ".svg", ".pdf")


def inline(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as the data of a chart, in one string: altair copies and checks lists of rows again and again."""
    import altair as alt

    return alt.Data(values=to_json(rows, indent=None), format=alt.DataFormat(type="json"))


def whole_axis(values: Iterable[int], most: int = 8) -> Any:
    """An axis of whole numbers, from the least in steps of 1, 2, 5, 10, ...: at most `most` labels.

    >>> whole_axis(range(3)).to_dict()["values"], whole_axis(range(24)).to_dict()["values"]
    ([0, 1, 2], [0, 5, 10, 15, 20])
    """
    import altair as alt

    present = set(values) or {0}
    low, high = min(present), max(present)
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(step for step in steps if (high - low) // step < most)
    return alt.Axis(values=list(range(low, high + 1, step)), format="d")


def as_title(name: str) -> str:
    """A name as the title of a chart: the blank is not drawn, and without it Vega takes a name such as
    `constructor` for one of JavaScript's own and fails.
    """
    return f"{name} "


def drawn_svg(spec: dict[str, Any]) -> str:
    """The chart of a specification as SVG; an `InputError` where Vega-Lite fails, or leaves it blank."""
    import vl_convert

    try:
        drawn = vl_convert.vegalite_to_svg(spec)
    except ValueError as error:
        lines = [line for line in str(error).splitlines() if line.startswith("Error: ")]
        raise _undrawable(lines[0] if lines else "no reason given") from error
    if "<text" not in drawn:  # a part of a chart fails without an error
        raise _undrawable("it came out blank")
    return drawn


def _undrawable(reason: str) -> InputError:
    return InputError(f"figure: cannot be drawn ({reason}); give the models other names")


def styled(chart: Any) -> Any:
    """The chart with the house style applied."""
    return (
        chart.configure(font="Helvetica, Arial, sans-serif")
        .configure_range(category=list(PALETTE), heatmap={"scheme": "viridis"})
        .configure_axis(labelFontSize=10, titleFontSize=11, titleFontWeight="normal", gridOpacity=0.4)
        .configure_legend(labelFontSize=10, titleFontSize=10, titleFontWeight="normal")
        .configure_title(fontSize=12, fontWeight="normal", anchor="start")
        .configure_line(strokeWidth=1.6)
        .configure_view(strokeOpacity=0.3)
    )


def save_chart(chart: Any, path: str | os.PathLike[str]) -> Path:
    """Write a chart for a two-column paper as PDF, SVG or PNG (300 per inch), by the ending of `path`."""
    target = Path(path)
    replace_all({target: chart_bytes(chart, target)})
    return target


def chart_bytes(chart: Any, target: Path) -> bytes:
    """What `save_chart` writes to the target."""
    import vl_convert

    from attnlaw.report.paper import PIXELS_PER_INCH, paper_spec

    if target.suffix not in FORMATS:
        raise InputError(f"{target}: a figure ends in one of {', '.join(FORMATS)}; rename it")
    spec = paper_spec(chart)
    if target.suffix == ".pdf":
        return vl_convert.vegalite_to_pdf(spec)
    if target.suffix == ".png":
        return vl_convert.vegalite_to_png(spec, ppi=PIXELS_PER_INCH)
    return _in_points(drawn_svg(spec)).encode()


def _in_points(drawing: str) -> str:
    """The drawing with its width and height in points: without a unit they would be 96ths of an inch.

    >>> _in_points('<svg width="72" height="36.5"><rect width="9"/></svg>')
    '<svg width="72pt" height="36.5pt"><rect width="9"/></svg>'
    """
    head, end, rest = drawing.partition(">")
    return re.sub(r'\b(width|height)="([\d.]+)"', r'\1="\2pt"', head) + end + rest
