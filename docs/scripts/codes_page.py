"""Measure how exact each quantised code is, on the small checkpoints in the tests.

    python docs/scripts/codes_page.py

decodes every checkpoint and compares it with what its library decoded and with the original model. It writes
docs/experiments/codes.csv, which docs/hooks/checkpoints.py shows on the page, and docs/figures/codes.svg.
"""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from checkpoints.quantization.fixtures import FOLDER, NAMES, about, difference, expected

from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.files import write_all
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.style import PALETTE, draw_svg, house_spec

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs" / "experiments" / "codes.csv"
FIGURE = ROOT / "docs" / "figures" / "codes.svg"
HEAD = ("code", "file", "library", "difference", "bits", "error")
ITEM_SIZES = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "float16": 2}
ITEM_SIZES |= {"bfloat16": 2, "int16": 2, "uint16": 2}
NEAR_BITS, NEAR_ERRORS = (4.2, 5.35), (0.08, 0.18)  # the enlarged part of the figure


@dataclass(frozen=True)
class Row:
    """One checkpoint. What needs the original model is None if the tests do not have it."""

    name: str
    label: str
    library: str
    difference: float
    bits: float | None
    error: float | None


@cache
def original(name: str) -> Tensors:
    return open_model(FOLDER / name).tensors


def measure(name: str) -> Row:
    """Decode a checkpoint, and compare its matrices with the library's and with the original's."""
    model = open_model(FOLDER / name)
    weights = {key: model.tensors.read(key) for key in expected(name)}
    labels = dict.fromkeys(model.tensors.dtype(key) for key in weights)
    label = "; ".join(labels) if len(labels) < 4 else f"{len(labels)} types"
    base = str(about(name)["original"])
    error = None
    if (FOLDER / base).is_dir() and all(key in original(base).shapes for key in weights):
        pairs = [(original(base).read(key).astype(np.float64), value) for key, value in weights.items()]
        before, after = (np.concatenate([np.ravel(pair[side]) for pair in pairs]) for side in (0, 1))
        error = float(np.linalg.norm(after - before) / np.linalg.norm(before))
    return Row(
        name=name,
        label=label,
        library=str(about(name)["library"]),
        difference=max(difference(name, key, value) for key, value in weights.items()),
        bits=_bits(model.tensors, weights),
        error=error,
    )


def _bits(tensors: Any, weights: dict[str, np.ndarray]) -> float | None:
    """The bits of all parts of the coded weights, scales included, over the number of weights."""
    coded = getattr(tensors, "coded", {})
    if not coded:
        return None
    stored = tensors._tensors
    parts = {part for key in weights for part in coded[key].parts}
    size = sum(prod(stored.shapes[part]) * ITEM_SIZES.get(stored.dtype(part), 1) for part in parts)
    return 8 * size / sum(value.size for value in weights.values())


def rows() -> list[Row]:
    return [measure(name) for name in NAMES]


def table(measured: list[Row]) -> str:
    """Return the rows as CSV, rounded as the page shows them; what is not known is empty."""

    def shown(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for row in measured:
        sizes = (f"{row.difference:g}", shown(row.bits, ".2f"), shown(row.error, ".3f"))
        writer.writerow((row.label, row.name, row.library, *sizes))
    return text.getvalue()


def clusters(dots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join dots that would cover each other: one name for all of them."""
    joined: list[dict[str, Any]] = []
    for dot in sorted(dots, key=lambda dot: (dot["bits"], dot["error"])):
        near = (
            other
            for other in joined
            if abs(other["bits"] - dot["bits"]) < 0.03 and 0.97 < other["error"] / dot["error"] < 1.03
        )
        if (cluster := next(near, None)) is not None:
            cluster["code"] += f", {dot['code']}"
        else:
            joined.append(dict(dot))
    return joined


def chart(measured: list[Row]) -> Any:
    """Bits per weight across, relative error up: all codes above, and those near 4 bits again below."""
    import altair as alt

    dots = [
        {"code": row.name, "bits": row.bits, "error": row.error}
        for row in measured
        if row.bits is not None and row.error is not None
    ]
    crowd = [dot for dot in dots if within(dot)]
    whole = panel(dots, [dot for dot in dots if not within(dot)], [1.5, 10], "all codes")
    near = panel(crowd, clusters(crowd), list(NEAR_BITS), "4-bit codes, enlarged")
    return alt.vconcat(whole, near, spacing=18)


def within(dot: dict[str, Any]) -> bool:
    """Whether a dot belongs to the enlarged panel."""
    bits, errors = NEAR_BITS, NEAR_ERRORS
    return bits[0] < dot["bits"] < bits[1] and errors[0] < dot["error"] < errors[1]


def panel(dots: list[dict[str, Any]], named: list[dict[str, Any]], domain: list[float], title: str) -> Any:
    import altair as alt

    x = alt.X("bits:Q", title="bits per weight, scales included", scale=alt.Scale(domain=domain, nice=False))
    ticks = alt.Axis(format="~%", values=[0.01, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.5, 1])
    y = alt.Y(
        "error:Q", title="relative error", axis=ticks, scale=alt.Scale(type="log", nice=False, padding=14)
    )
    points = alt.Chart(inline_data(dots)).mark_circle(size=50, color=PALETTE[0], opacity=0.9)
    names = alt.Chart(inline_data(named)).mark_text(align="left", dx=7, fontSize=10)
    layers = points.encode(x=x, y=y) + names.encode(x=x, y=y, text="code:N")
    return layers.properties(width=640, height=230, title=alt.TitleParams(title, fontSize=12, anchor="start"))


def draw(measured: list[Row]) -> str:
    return draw_svg(house_spec(chart(measured)))


def main() -> None:
    measured = rows()
    write_all({MEASURED: table(measured).encode(), FIGURE: draw(measured).encode()})


if __name__ == "__main__":
    main()
