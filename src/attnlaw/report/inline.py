"""Charts as SVG inside a page: its colours follow the page's light or dark theme, its ids are its own."""

from __future__ import annotations

import re
from typing import Any

from attnlaw.report.style import PALETTE, drawn_svg, styled

# Fixed colours of charts, and the page's variables that stand for them.
THEMED = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(PALETTE)} | {
    "black": "var(--ink)",
    "#000000": "var(--ink)",
    "#444": "var(--soft)",
    "#666": "var(--soft)",
    "#666666": "var(--soft)",
    "#888888": "var(--soft)",
    "#b8c9d9": "var(--bars)",
}
TEXT = "var(--ink)"
QUIET = "var(--soft)"
CONFIG = {
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


def inline_svg(chart: Any, name: str) -> str:
    """The chart as an SVG element; `name` keeps its ids apart from those of other charts on the page."""
    spec = _themed(styled(chart).to_dict(validate=False))
    spec["config"] = _merged(spec["config"], CONFIG)
    if not any(key in spec for key in ("hconcat", "vconcat", "concat")):
        # Below a single panel a legend leaves room for the panel on a phone.
        spec["config"] = _merged(spec["config"], {"legend": {"orient": "bottom"}})
    drawn = drawn_svg(spec)
    # Vega numbers its ids through all charts of a process; here each chart counts its own.
    ids = {old: f"{name}-{i}" for i, old in enumerate(re.findall(r'<[^>]*\bid="([^"]*)"', drawn))}
    return re.sub(r"<[^>]*>", lambda tag: _own(tag[0], ids), drawn)


def _own(tag: str, ids: dict[str, str]) -> str:
    """One tag with new ids, and its coordinates rounded to a hundredth of a pixel."""
    tag = re.sub(r'\bid="([^"]*)"', lambda found: f'id="{ids[found[1]]}"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", lambda found: f"url(#{ids.get(found[1], found[1])})", tag)
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)


def _themed(spec: Any) -> Any:
    """The specification with fixed colours replaced by variables; data are left as they are."""
    if isinstance(spec, dict):
        return {
            key: value
            if key in ("data", "datasets")
            else _themed("var(--card)" if _edge(key, value) else value)
            for key, value in spec.items()
        }
    if isinstance(spec, list):
        return [_themed(value) for value in spec]
    return THEMED.get(spec.lower(), spec) if isinstance(spec, str) else spec


def _edge(key: str, value: Any) -> bool:
    """White around a mark is there to tell it from its neighbours: it has the colour of the page."""
    return key == "stroke" and value == "white"


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(over[key], dict)
    }
    return base | over | both
