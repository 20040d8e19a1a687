"""The functions that draw figures. They run in a child process, because the JavaScript engine that they use
can end its process (`core.child_process`)."""

from __future__ import annotations

import json
from pathlib import Path

import vl_convert

# Arimo ships with attnlaw.
vl_convert.register_font_directory(str(Path(__file__).with_name("fonts")))


def compile_to_vega(spec: str) -> str:
    """Compile a Vega-Lite specification to Vega. Both are JSON."""
    return json.dumps(vl_convert.vegalite_to_vega(spec), allow_nan=False, ensure_ascii=False)


def draw_svg(vega: str) -> str:
    drawn: str = vl_convert.vega_to_svg(vega)
    return drawn


def draw_pdf(spec: str) -> bytes:
    drawn: bytes = vl_convert.vegalite_to_pdf(spec)
    return drawn


def draw_png(spec: str, pixels_per_inch: float) -> bytes:
    drawn: bytes = vl_convert.vegalite_to_png(spec, ppi=pixels_per_inch)
    return drawn
