"""One look for every chart: a colour-blind-safe palette, drawing as SVG, and SVG inside a page.

Inside a page the colours follow its light or dark theme, ids are the chart's own, and a mark with a
description tells it under the pointer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.files import to_json

# Arimo ships here: subscripts, Greek and the signs of norms are in it, so that a label is of one font.
FONT = "Arimo, Helvetica, Arial, sans-serif"
# Okabe and Ito's palette without its yellow, which is too light for lines on white, and two more.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999", "#882255")
# Fixed colours of charts, and the page's variables that stand for them.
THEME_VARIABLES = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(PALETTE)} | {
    "black": "var(--ink)",
    "#000000": "var(--ink)",
    "#444": "var(--soft)",
    "#555555": "var(--soft)",
    "#666": "var(--soft)",
    "#888888": "var(--soft)",
    "#b8c9d9": "var(--bars)",
}
BASE_CONFIG: dict[str, Any] = {
    "font": FONT,
    "range": {"category": list(PALETTE), "heatmap": {"scheme": "viridis"}},
    "axis": {"labelFontSize": 10, "titleFontSize": 11, "titleFontWeight": "normal", "gridOpacity": 0.4},
    "axisQuantitative": {"labelLimit": 0},  # against a limit Vega measures every number again and again
    "legend": {
        "labelFontSize": 10,
        "titleFontSize": 10,
        "titleFontWeight": "normal",
        "labelLimit": 0,
        "titleLimit": 0,
    },
    "text": {"fontSize": 10},
    "title": {"fontSize": 12, "fontWeight": "normal", "anchor": "start"},
    "line": {"strokeWidth": 1.6},
    "view": {"strokeOpacity": 0.3},
}
MOST_KEPT = 64  # outlines of charts
HOLE = "\ue000"  # a letter that no text has
TEXT = "var(--ink)"
QUIET = "var(--soft)"
ON_PAGE = {
    "aria": False,
    "background": None,
    "axis": {
        "labelColor": QUIET,
        "titleColor": QUIET,
        "domainColor": QUIET,
        "tickColor": QUIET,
        "gridColor": "var(--line)",
        "gridOpacity": 1,
    },
    "axisY": {"labelFlush": True},
    "legend": {"labelColor": QUIET, "titleColor": QUIET},
    "title": {"color": TEXT},
    "view": {"stroke": "var(--line)", "strokeOpacity": 1},
    "text": {"color": TEXT},
}
# A mark that has a description: what screen readers and pointers are told of it.
DESCRIBED = re.compile(
    r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*" ([^>]*?)/>'
)


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def finite_or_none(value: Any) -> Any:
    """The value, lists included; None for a float that JSON cannot hold."""
    if isinstance(value, list):
        return [finite_or_none(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_title(name: str) -> str:
    """A name as the title of a chart: the blank is not drawn, and without it Vega takes a name such as
    `constructor` for one of JavaScript's own and fails.
    """
    return f"{name} "


@cache
def vl_converter() -> Any:
    """vl_convert, which knows the font."""
    import vl_convert

    vl_convert.register_font_directory(str(files("attnlaw.render.charts") / "fonts"))
    return vl_convert


def draw_svg(spec: dict[str, Any]) -> str:
    """The chart of a specification as SVG; an `InputError` where Vega-Lite fails, or leaves it blank."""
    try:
        drawn: str = vl_converter().vega_to_svg(compile_to_vega(spec))
    except ValueError as error:
        lines = [line for line in str(error).splitlines() if line.startswith("Error: ")]
        raise _undrawable(lines[0] if lines else "no reason given") from error
    if "<text" not in drawn:  # a part of a chart fails without an error
        raise _undrawable("it came out blank")
    return drawn


def _undrawable(reason: str) -> InputError:
    return InputError(f"figure: cannot be drawn ({reason}); give the models other names")


def compile_to_vega(spec: dict[str, Any]) -> str:
    """The Vega specification of a Vega-Lite one, as JSON; a ValueError where Vega-Lite fails.

    Compiling looks at no row. So what is compiled, and kept, is an outline with holes in their place, which
    are filled afterwards: under a slider that takes a quarter off the time of a drawing.

    >>> chart = {"title": "a", "data": {"values": "[]"}, "mark": "point", "encoding": {}}
    >>> compile_to_vega(chart) == compile_to_vega(chart | {"title": "b"}).replace('"b"', '"a"')
    True
    """
    holes: list[str] = []

    def add_hole(text: str) -> str:
        holes.append(text)
        return f"{HOLE}{len(holes) - 1}"

    def outline(part: Any) -> Any:
        if isinstance(part, list):
            return [outline(entry) for entry in part]
        if not isinstance(part, dict):
            return part
        return {
            key: add_hole(entry) if key == "values" and isinstance(entry, str) else outline(entry)
            for key, entry in part.items()
        }

    title = spec.get("title")
    named = {"title": add_hole(title)} if isinstance(title, str) and title else {}
    vega = _compile_outline(to_json(outline(spec) | named, indent=None))
    for place, text in enumerate(holes):
        vega = vega.replace(to_json(f"{HOLE}{place}"), to_json(text))
    return vega


@lru_cache(MOST_KEPT)
def _compile_outline(outline: str) -> str:
    import vl_convert

    return to_json(vl_convert.vegalite_to_vega(outline), indent=None)


def house_spec(chart: Any) -> dict[str, Any]:
    """The specification of a chart in the house style, under what the chart's own configuration says."""
    spec: dict[str, Any] = chart.to_dict()
    spec["config"] = _merge_configs(BASE_CONFIG, spec["config"])
    return spec


def offline_chart(chart: Any) -> Any:
    """The chart, which a notebook shows as a drawing instead of as a script from a network."""
    # Altair takes attributes for its own.
    object.__setattr__(chart, "__class__", _offline_class(chart.__class__))
    return chart


@cache
def _offline_class(kind: type) -> type:
    def shown(self: Any, *_: Any, **__: Any) -> dict[str, str]:
        return {"image/svg+xml": draw_svg(house_spec(self))}

    return type(kind.__name__, (kind,), {"_repr_mimebundle_": shown, "__module__": kind.__module__})


def inline_svg(chart: Any, name: str) -> str:
    """The chart as an SVG element; `name` keeps its ids apart from those of other charts on the page."""
    spec = chart.to_dict(validate=False)
    spec = _apply_theme(spec | {"config": _merge_configs(spec["config"], BASE_CONFIG)})
    spec["config"] = _merge_configs(spec["config"], ON_PAGE)
    if not {"hconcat", "vconcat", "concat"} & spec.keys():
        # Below a single panel a legend leaves room for the panel on a phone.
        spec["config"] = _merge_configs(spec["config"], {"legend": legend_below(spec, LEGEND_WIDTH, LETTER)})
    drawn = draw_svg(spec)
    # Vega numbers its ids through all charts of a process; here each chart counts its own.
    ids = {old: f"{name}-{i}" for i, old in enumerate(re.findall(r'<[^>]*\bid="([^"]*)"', drawn))}
    svg = re.sub(r"<[^>]*>", lambda tag: _rewrite_tag(tag[0], ids), drawn)
    titled_svg = DESCRIBED.sub(r'<path shape-rendering="crispEdges" \2><title>\1</title></path>', svg)
    # The page tells what the whole drawing is; groups of marks without a name would be told as nothing.
    return re.sub(r' (role|aria-[a-z]+)="[^"]*"', "", titled_svg)


# Points below a panel on a page that a row of a legend may take, and those of a letter of it.
LEGEND_WIDTH, LETTER = 420, 6.0
SYMBOL = 3.5  # letters that a symbol takes with the space around it


def legend_below(spec: Mapping[str, Any], width: float, letter: float) -> dict[str, Any]:
    """Legends below the panels, one upon another, each in as many columns as its longest label allows."""
    longest = max((len(name) for name in _legend_labels(spec)), default=1)
    columns = max(1, int(width / (letter * (longest + SYMBOL))))
    return {
        "orient": "bottom",
        "columns": columns,
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
    }


def _legend_labels(spec: Any) -> Iterator[str]:
    """The labels of all legends: what scales of colours, dashes and shapes name."""
    if isinstance(spec, list):
        for part in spec:
            yield from _legend_labels(part)
    elif isinstance(spec, Mapping):
        for key, part in spec.items():
            if key in ("color", "fill", "strokeDash", "shape") and isinstance(part, Mapping):
                domain = (part.get("scale") or {}).get("domain") if part.get("legend", True) else None
                yield from (label for label in domain or () if isinstance(label, str))
            elif key not in ("data", "datasets"):
                yield from _legend_labels(part)


def _rewrite_tag(tag: str, ids: dict[str, str]) -> str:
    """One tag with new ids, and its coordinates rounded to a hundredth of a pixel."""
    tag = re.sub(r'\bid="([^"]*)"', lambda match: f'id="{ids[match[1]]}"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", lambda match: f"url(#{ids.get(match[1], match[1])})", tag)
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)


def _apply_theme(spec: Any, key: str = "") -> Any:
    """The specification with fixed colours replaced by variables; data are left as they are."""
    if key in ("data", "datasets"):
        return spec
    if isinstance(spec, dict):
        return {name: _apply_theme(part, name) for name, part in spec.items()}
    if isinstance(spec, list):
        return [_apply_theme(part) for part in spec]
    # White around a mark is there to tell it from its neighbours: it has the colour of the page.
    if key == "stroke" and spec == "white":
        return "var(--card)"
    return THEME_VARIABLES.get(spec.lower(), spec) if isinstance(spec, str) else spec


def _merge_configs(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merge_configs(base[key], over[key])
        for key in base.keys() & over.keys()
        if isinstance(over[key], dict)
    }
    return base | over | both
