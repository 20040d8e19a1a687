"""How the cost of a feed-forward matrix grows with its size: float32, float64, and `--approximate`.

    python benchmarks/growth.py [--write]

Matrices of LLaMA's proportions, n x 2.6875 n, n = 512 to 16384, as bfloat16 keeps them. CPU seconds of one
thread, the least of three runs up to 2048 rows; at 16384 float64 is left out. Fitted over n >= 1024: cost = c
n^e, beside the operations of each route. With `--write` the table and the figure go to
docs/theory/benchmarks.md.
Takes a quarter of an hour and 9 GB.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import altair as alt
import ml_dtypes
import numpy as np
import polars as pl
from claims import Claims
from table import write_between
from threadpoolctl import threadpool_limits

from attnlaw.spectra.approximate import approximate_spectrum
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.precision import rounding

SIZES = (512, 1024, 2048, 4096, 8192, 16384)
ASPECT = 2.6875
DOCS = Path(__file__).parent.parent / "docs"
MARKS = "<!-- growth -->\n", "<!-- end of growth -->"
ROUTES = {
    "float32": lambda matrix: matrix_spectrum(matrix, rounding=rounding("bfloat16")),
    "float64": lambda matrix: matrix_spectrum(matrix.astype(np.float64)),
    "approximate": lambda matrix: approximate_spectrum(matrix.astype(np.float64)),
}
MOST = {"float64": 8192}


def made(rows: int) -> np.ndarray:
    rng = np.random.default_rng(rows)
    drawn = rng.standard_normal((rows, int(ASPECT * rows)), dtype=np.float32)
    drawn *= np.geomspace(1, 1 / 6, rows, dtype=np.float32)[:, None]
    return drawn.astype(ml_dtypes.bfloat16).astype(np.float32)


def measured(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    timings = []
    for rows in sizes:
        matrix = made(rows)
        for route, run in ROUTES.items():
            seconds = []
            for _ in range((3 if rows <= 2048 else 1) if rows <= MOST.get(route, rows) else 0):
                began = time.process_time()
                spectrum = run(matrix)
                seconds.append(time.process_time() - began)
            if seconds:
                assert route == "approximate" or spectrum.precision == route
                timings.append({"rows": rows, "route": route, "seconds": min(seconds)})
                print(f"{route:<12} {rows:5} x {int(ASPECT * rows):5} {min(seconds):8.2f} s", flush=True)
    return timings


def fitted(timings: list[dict[str, object]], route: str) -> tuple[float, float]:
    """(c, e) of seconds = c n^e, least squares of logarithms over n >= 1024."""
    points = [
        (row["rows"], row["seconds"]) for row in timings if row["route"] == route and row["rows"] >= 1024
    ]
    exponent, constant = np.polyfit(*np.log(np.array(points)).T, 1)
    return float(np.exp(constant)), float(exponent)


def page(timings: list[dict[str, object]]) -> str:
    cells = {(row["route"], row["rows"]): f"{row['seconds']:.2f}" for row in timings}
    lines = [
        f"| | {' | '.join(map(str, SIZES))} | fitted, n >= 1024 | operations |",
        "|---" * (len(SIZES) + 3) + "|",
    ]
    counts = {
        "float32": "n² m + 4/3 n³ in float32",
        "float64": "n² m + 4/3 n³",
        "approximate": "4,256 n m: products with 1,064 vectors, there and back",
    }
    for route in ROUTES:
        texts = [cells.get((route, rows), "") for rows in SIZES]
        constant, exponent = fitted(timings, route)
        law = f"{constant:.1e} n^{exponent:.2f}"
        lines.append(f"| {route} | {' | '.join(texts)} | {law} | {counts[route]} |")
    return "\n".join(lines) + "\n"


def draw(timings: list[dict[str, object]]) -> None:
    """Measured seconds over rows, both logarithmic, with the fitted laws."""
    laws = [
        {"rows": rows, "route": route, "seconds": c * rows**e}
        for route in ROUTES
        for c, e in [fitted(timings, route)]
        for rows in (SIZES[0], SIZES[-1])
    ]
    x = alt.X("rows:Q", title="rows n", scale=alt.Scale(type="log", base=2, domain=[SIZES[0], SIZES[-1]]))
    y = alt.Y("seconds:Q", title="CPU seconds", scale=alt.Scale(type="log"))
    dots = (
        alt.Chart(pl.DataFrame(timings)).mark_point(filled=True, size=60).encode(x, y, alt.Color("route:N"))
    )
    lines = alt.Chart(pl.DataFrame(laws)).mark_line(strokeDash=[4, 3]).encode(x, y, alt.Color("route:N"))
    (lines + dots).properties(width=420, height=260).save(DOCS / "figures" / "growth.svg")


def main() -> int:
    with threadpool_limits(1):
        timings = measured(SIZES)
    if saved := os.environ.get("ATTNLAW_GROWTH"):
        Path(saved).write_text(json.dumps(timings))
    print(page(timings))
    if "--write" in sys.argv[1:]:
        draw(timings)
        write_between(DOCS / "theory" / "benchmarks.md", page(timings), MARKS)
    claims = Claims()
    _, exponent = fitted(timings, "float32")
    claims.add(
        "exponent of the cost of n x 2.69 n matrices in n, float32, 1024 to 16384 rows",
        f"n^{exponent:.2f}",
        "operations: n^3",
        exponent,
        3.2,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
