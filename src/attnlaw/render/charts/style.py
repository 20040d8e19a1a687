"""The style of all charts: a palette for colour-blind readers, and drawing as SVG. Inside a page, colours
follow its theme, ids are unique to the chart, and a mark with a description shows it under the pointer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from attnlaw.core.child_process import CallFailed, ChildEnded, ChildProcess, has_address_limit
from attnlaw.core.errors import InputError
from attnlaw.core.files import to_json
from attnlaw.render.charts.packages import require_packages

# Arimo ships with attnlaw. It has subscripts, Greek letters and signs of norms, so a label needs one font.
FONT = "Arimo, Helvetica, Arial, sans-serif"
# Okabe and Ito's palette without yellow, which is too light for lines on white, and two more colours.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999", "#882255")
# Fixed colours of charts, and the variables of the page that replace them.
THEME_VARIABLES = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(PALETTE)}
THEME_VARIABLES |= {"black": "var(--ink)", "#000000": "var(--ink)", "#b8c9d9": "var(--bars)"}
THEME_VARIABLES |= dict.fromkeys(("#444", "#555555", "#666", "#888888"), "var(--soft)")
LABELS = {"labelFontSize": 10, "titleFontWeight": "normal"}
BASE_CONFIG: dict[str, Any] = {
    "font": FONT,
    "range": {"category": list(PALETTE), "heatmap": {"scheme": "viridis"}},
    "axis": LABELS | {"titleFontSize": 11, "gridOpacity": 0.4},
    "axisQuantitative": {"labelLimit": 0},  # with a limit, Vega would measure every number repeatedly
    "legend": LABELS | {"titleFontSize": 10, "labelLimit": 0, "titleLimit": 0},
    "text": {"fontSize": 10},
    "title": {"fontSize": 12, "fontWeight": "normal", "anchor": "start"},
    "line": {"strokeWidth": 1.6},
    "view": {"strokeOpacity": 0.3},
}
MOST_KEPT = 64  # compiled outlines in the cache
HOLE = "\ue000"  # a placeholder; no text contains this letter
TEXT = "var(--ink)"
QUIET = "var(--soft)"
QUIET_LABELS = {"labelColor": QUIET, "titleColor": QUIET}
QUIET_LINES = {"domainColor": QUIET, "tickColor": QUIET, "gridColor": "var(--line)", "gridOpacity": 1}
ON_PAGE = {
    "aria": False,
    "background": None,
    "axis": QUIET_LABELS | QUIET_LINES,
    "axisY": {"labelFlush": True},
    "legend": QUIET_LABELS,
    "title": {"color": TEXT},
    "view": {"stroke": "var(--line)", "strokeOpacity": 1},
    "text": {"color": TEXT},
}
# A mark with a description for screen readers and the pointer.
DESCRIBED = re.compile(
    r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*" ([^>]*?)/>'
)


def palette(names: Iterable[str]) -> dict[str, str]:
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def finite_or_none(value: Any) -> Any:
    """Replace NaN and infinity with None, also inside lists, because JSON has neither."""
    if isinstance(value, list):
        return [finite_or_none(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_title(name: str) -> str:
    """Return a title with a space at its end, without which Vega fails for a name such as `constructor`."""
    return f"{name} "


# Long enough for the largest figure on a busy machine.
ENGINE = ChildProcess(Path(__file__).with_name("engine.py"), seconds=300)


def call_engine(function: str, *arguments: Any) -> Any:
    """Call a function in `engine`, which runs in a child process. Raise an `InputError` if the call fails."""
    require_packages()
    try:
        return ENGINE.call(function, *arguments)
    except CallFailed as error:
        lines = [line for line in str(error).splitlines() if line.startswith("Error: ")]
        raise _undrawable(lines[0] if lines else "no reason given", "give the models other names") from error
    except ChildEnded as error:
        remedy = "to draw it later from saved results, type attnlaw report DIR"
        if has_address_limit():
            remedy = f"drawing needs more memory than `ulimit -v` allows; raise this limit, or {remedy}"
        raise _undrawable(f"the process that draws {error}", remedy) from error


# Characters that XML, and so SVG, cannot hold, and the visible signs that replace them. A backslash would not
# do: Vega reads escape sequences in some titles.
SIGNS = {chr(code): chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}
SIGNS |= {"\ufffe": "\ufffd", "\uffff": "\ufffd"}
CONTROLS = re.compile(f"[{''.join(SIGNS)}]")
# The same characters in JSON, which writes most of them as escapes. A backslash that is escaped begins none.
JSON_ESCAPES = re.compile(r"\\u(?:00[01][0-9A-Fa-f]|[Ff]{3}[EFef])|\\[bf\\]|[\ufffe\uffff]")


def without_controls(spec: Any) -> Any:
    r"""Return a specification with visible signs for the characters that would end the drawing engine.

    >>> without_controls({"title": "a\x1b[31m", "data": {"values": '[{"a": "\\u0000"}]'}})
    {'title': 'a␛[31m', 'data': {'values': '[{"a": "␀"}]'}}
    """
    if isinstance(spec, dict):
        return {
            key: JSON_ESCAPES.sub(_sign_in_json, part)
            if key == "values" and isinstance(part, str)
            else without_controls(part)
            for key, part in spec.items()
        }
    if isinstance(spec, list):
        return [without_controls(part) for part in spec]
    return CONTROLS.sub(lambda char: SIGNS[char[0]], spec) if isinstance(spec, str) else spec


def _sign_in_json(escape: re.Match[str]) -> str:
    return SIGNS.get(json.loads(f'"{escape[0]}"'), escape[0])


def draw_svg(spec: dict[str, Any]) -> str:
    """Draw a Vega-Lite specification as SVG. Raise an `InputError` if Vega-Lite fails or draws nothing."""
    drawn: str = call_engine("draw_svg", compile_to_vega(without_controls(spec)))
    if "<text" not in drawn:  # some charts fail without an error
        raise _undrawable("the picture is blank", "give the models other names")
    return drawn


def _undrawable(reason: str, remedy: str) -> InputError:
    return InputError(f"figure: cannot be drawn ({reason}); {remedy}")


def compile_to_vega(spec: dict[str, Any]) -> str:
    """Compile a Vega-Lite specification to Vega, as JSON. Raise an `InputError` if Vega-Lite fails.

    Compiling does not depend on the data of a chart. Therefore attnlaw compiles and caches a version with
    placeholders, and inserts the data afterwards. In the lab, this saves a quarter of the drawing time.

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
    vega: str = call_engine("compile_to_vega", outline)
    return vega


def house_spec(chart: Any) -> dict[str, Any]:
    """Return the specification of a chart in attnlaw's style. The configuration of the chart has priority."""
    spec: dict[str, Any] = chart.to_dict()
    spec["config"] = _merge_configs(BASE_CONFIG, spec["config"])
    return spec


def offline_chart(chart: Any) -> Any:
    """Return a chart that a notebook shows as SVG. Altair's own way loads a script from the network."""
    # Setting an attribute of an altair chart would change its specification.
    object.__setattr__(chart, "__class__", _offline_class(chart.__class__))
    return chart


@cache
def _offline_class(kind: type) -> type:
    def shown(self: Any, *_: Any, **__: Any) -> dict[str, str]:
        return {"image/svg+xml": draw_svg(house_spec(self))}

    return type(kind.__name__, (kind,), {"_repr_mimebundle_": shown, "__module__": kind.__module__})


def inline_svg(chart: Any, name: str) -> str:
    """Return the chart as an SVG element, whose ids start with `name` to be unique on a page."""
    spec = chart.to_dict(validate=False)
    spec = _apply_theme(spec | {"config": _merge_configs(spec["config"], BASE_CONFIG)})
    spec["config"] = _merge_configs(spec["config"], ON_PAGE)
    if not {"hconcat", "vconcat", "concat"} & spec.keys():
        # A legend below a single panel leaves room for the panel on a phone.
        spec["config"] = _merge_configs(spec["config"], {"legend": legend_below(spec, LEGEND_WIDTH, LETTER)})
    drawn = draw_svg(spec)
    # Vega numbers ids through all charts of a process. Here each chart has its own numbers.
    ids = {old: f"{name}-{i}" for i, old in enumerate(re.findall(r'<[^>]*\bid="([^"]*)"', drawn))}
    svg = re.sub(r"<[^>]*>", lambda tag: _rewrite_tag(tag[0], ids), drawn)
    titled_svg = DESCRIBED.sub(r'<path shape-rendering="crispEdges" \2><title>\1</title></path>', svg)
    # The page describes the whole drawing. Screen readers would announce groups of marks without a name.
    return re.sub(r' (role|aria-[a-z]+)="[^"]*"', "", titled_svg)


LEGEND_WIDTH, LETTER = 420, 6.0  # pixels: a legend below a panel, and a letter in it
SYMBOL = 3.5  # width of a symbol with the space around it, in letters


def legend_below(spec: Mapping[str, Any], width: float, letter: float) -> dict[str, Any]:
    """Return a legend below the panels, in as many columns as fit. Widths are in pixels."""
    longest = max((len(name) for name in _legend_labels(spec)), default=1)
    columns = max(1, int(width / (letter * (longest + SYMBOL))))
    layout = {"bottom": {"direction": "vertical", "anchor": "start"}}
    return {"orient": "bottom", "columns": columns, "layout": layout}


def _legend_labels(spec: Any) -> Iterator[str]:
    """Yield the labels of all legends. These are the domains of the scales of colours, dashes and shapes."""
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
    """Replace the ids in an SVG tag, and round its coordinates to a hundredth of a pixel."""
    tag = re.sub(r'\bid="([^"]*)"', lambda match: f'id="{ids[match[1]]}"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", lambda match: f"url(#{ids.get(match[1], match[1])})", tag)
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)


def _apply_theme(spec: Any, key: str = "") -> Any:
    if key in ("data", "datasets"):
        return spec
    if isinstance(spec, dict):
        return {name: _apply_theme(part, name) for name, part in spec.items()}
    if isinstance(spec, list):
        return [_apply_theme(part) for part in spec]
    # A white outline separates a mark from its neighbours, so it gets the colour of the page.
    if key == "stroke" and spec == "white":
        return "var(--card)"
    return THEME_VARIABLES.get(spec.lower(), spec) if isinstance(spec, str) else spec


def _merge_configs(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    nested = [key for key in base.keys() & over.keys() if isinstance(over[key], dict)]
    return base | over | {key: _merge_configs(base[key], over[key]) for key in nested}
