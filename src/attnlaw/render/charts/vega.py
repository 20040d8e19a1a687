"""Vega-Lite compiled to Vega, once for all charts that differ in their rows and their title alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from attnlaw.core.files import to_json

MOST_KEPT = 64
HOLE = "\ue000"  # a letter that no text has


def compile_to_vega(spec: dict[str, Any]) -> str:
    """The Vega specification of a Vega-Lite one, as JSON; a ValueError where Vega-Lite fails.

    Compiling looks at no row. So what is compiled, and kept, is an outline with holes in their place, which
    are filled afterwards: under a slider that takes a quarter off the time of a drawing.

    >>> chart = {"title": "a", "data": {"values": "[]"}, "mark": "point", "encoding": {}}
    >>> compile_to_vega(chart) == compile_to_vega(chart | {"title": "b"}).replace('"b"', '"a"')
    True
    """
    holes: list[str] = []
    title = spec.get("title")
    named = {"title": _add_hole(title, holes)} if isinstance(title, str) and title else {}
    vega = _compile_outline(to_json(_outline(spec, holes) | named, indent=None))
    for place, text in enumerate(holes):
        vega = vega.replace(to_json(f"{HOLE}{place}"), to_json(text))
    return vega


def _outline(spec: Any, holes: list[str]) -> Any:
    """The specification with a hole for every text of rows."""
    if isinstance(spec, list):
        return [_outline(part, holes) for part in spec]
    if not isinstance(spec, dict):
        return spec
    return {
        key: _add_hole(part, holes) if key == "values" and isinstance(part, str) else _outline(part, holes)
        for key, part in spec.items()
    }


def _add_hole(text: str, holes: list[str]) -> str:
    holes.append(text)
    return f"{HOLE}{len(holes) - 1}"


@lru_cache(MOST_KEPT)
def _compile_outline(outline: str) -> str:
    import vl_convert

    return to_json(vl_convert.vegalite_to_vega(outline), indent=None)
