"""What the scripts limit_*.py share: one measurement, one table, one place for figures.

Each script repeats one experiment of arXiv 2506.00846 with its numbers of draws and seeds. `kernel` is the
paper's own distance (a kernel estimate for each of 10 seeds: mean and standard deviation), `KL` the same
distance from averages of normals, with its standard error.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.limits import Layer, distances, kernel_kl, output_law
from attnlaw.report.style import save_chart

DRAWS, SEEDS = 50_000, 10


def arguments(text: str, draws: int = DRAWS) -> argparse.Namespace:
    """The options of every script."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--draws", type=int, default=draws, help="draws for each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="repetitions")
    parser.add_argument("--out", type=Path, help="directory for the figure")
    return parser.parse_args()


def measure(layer: Layer, draws: int, seeds: int, reference: Layer | None = None) -> dict[str, float]:
    """KL(layer, its limit or another reference) by the paper's recipe and by averages of normals."""
    limit = reference or layer.at_width(math.inf)
    kernel = []
    for seed in range(seeds):
        finite_law, limit_law = output_law(layer, draws, seed), output_law(limit, draws, 1000 + seed)
        kernel.append(kernel_kl(finite_law.draw(seed), limit_law.draw(1000 + seed)))
        if seed == 0:
            # With the finite law's seed, the limit shares its normals: a more precise difference.
            exact = distances(finite_law, output_law(limit, draws, seed)).kl
    assert exact is not None
    return {
        "kernel": float(np.mean(kernel)),
        "kernel_sd": float(np.std(kernel, ddof=1)) if seeds > 1 else 0.0,
        "kl": exact.value,
        "kl_error": exact.error,
    }


def show(name: str, key: object, row: dict[str, float]) -> None:
    """One line of the table."""
    print(
        f"{name} {key!s:>8}   KL {row['kl']:.3e} +- {row['kl_error']:.0e}   "
        f"kernel {row['kernel']:.3e} +- {row['kernel_sd']:.0e}",
        flush=True,
    )


def chart_rows(x: float, row: dict[str, float]) -> list[dict[str, Any]]:
    """Both distances as rows for a chart."""
    return [
        {"x": x, "series": "averages of normals", "value": row["kl"], "error": row["kl_error"]},
        {"x": x, "series": "kernel estimate", "value": row["kernel"], "error": row["kernel_sd"]},
    ]


def save(chart: Any, out: Path | None, name: str) -> None:
    """Write the figure where one was asked for."""
    if out is not None:
        print("wrote", save_chart(chart, out / name))
