"""What an audit of a model of 70 or 405 billion parameters asks of each worker, from rates measured here.

    python benchmarks/plan.py

One layer of LLaMA-7B's shapes is made. Units of it are measured, each in a process of its own with one
thread: the heads of QK, a feed-forward matrix in float32 (as its bfloat16 is taken), the same matrix in
float64, and approximately. Their operations (`attnlaw.spectra.cost`) over their CPU time are the rates;
peak
memory over the size of the matrix in float64 is the factor. The plan scales both to the shapes of Llama 3
(arXiv 2407.21783, table 3). It claims nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from audit import make_llama, peak_megabytes

from attnlaw.analysis.audit.units import pack
from attnlaw.analysis.findings.observer import Observer
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.settings import Arithmetic
from attnlaw.spectra.cost import matrix_operations, product_operations
from attnlaw.spectra.measure import Selection, unit_spectra, units_of

SIDES = {"heads": "qk", "float32": "ffn_in", "float64": "ffn_in", "approximate": "ffn_in"}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
WORKERS = 64
BFLOAT16, FLOAT64 = 2, 8


@dataclass(frozen=True)
class Shape:
    """A decoder of grouped heads with a gated feed-forward block."""

    name: str
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    words: int
    head: int = 128

    @property
    def read(self) -> float:
        """Bytes that workers read: every matrix of every layer once, in bfloat16."""
        attention = 2 * self.width * self.head * (self.heads + self.kv_heads)
        return BFLOAT16 * self.layers * (attention + 3 * self.width * self.inner)

    @property
    def head_operations(self) -> float:
        operations = product_operations(self.width, self.head, self.width, every=False)
        return 2 * self.layers * self.heads * operations

    def matrix_operations(self, route: str) -> float:
        operations = matrix_operations(self.width, self.inner, route == "approximate", route == "float32")
        return 3 * self.layers * operations


SHAPES = (
    Shape("Llama 3 70B", 80, 8192, 28672, 64, 8, 128256),
    Shape("Llama 3 405B", 126, 16384, 53248, 128, 8, 128256),
)


def measure_side(side: str, folder: str) -> None:
    """Measure one unit in this process, with the notes for findings, and print its figures."""
    model = open_model(folder)
    how = Arithmetic(precision="double" if side in ("float64", "approximate") else "storage")
    unit = next(
        unit for unit in units_of(model, Selection(arithmetic=how)) if unit.location.kind == SIDES[side]
    )
    unit = replace(unit, approximate=side == "approximate")
    noted: list[object] = []
    watched = Observer(model, noted.append).model
    worked = time.process_time()
    spectra = unit_spectra(watched, unit)
    seconds = time.process_time() - worked
    figures = {
        "seconds": seconds,
        "rate": unit.operations / seconds,
        "peak": peak_megabytes() * 2**20,
        "elements": unit.product.elements,
        "records": sum(len(pack(record)) for record in (*spectra, *noted)),
    }
    print(json.dumps(figures))


def side(name: str, folder: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--side", name, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_llama(Path(folder), layers=1)
        figures = {name: side(name, folder) for name in SIDES}
    print("measured at 4096 x 11008 (32 heads of 128), one thread:")
    for name, cost in figures.items():
        factor = cost["peak"] / FLOAT64 / cost["elements"]
        print(
            f"{name:<12} {cost['seconds']:6.1f} s of CPU, {cost['rate'] / 1e9:5.1f} G operations/s, "
            f"peak {cost['peak'] / 1e6:.0f} MB ({factor:.2f} of float64), "
            f"keeps {cost['records'] / 1e6:.2f} MB"
        )
    for shape in SHAPES:
        print_plan(shape, figures)


def print_plan(shape: Shape, figures: dict[str, dict[str, float]]) -> None:
    read, beside = shape.read / 1e9, BFLOAT16 * shape.words * shape.width / 1e9
    heads = shape.head_operations / figures["heads"]["rate"] / 3600
    print(f"\n{shape.name}: {5 * shape.layers} tasks, {shape.layers * (2 * shape.heads + 3)} matrices")
    print(f"  read by workers {read:.0f} GB, {read / WORKERS:.1f} GB each of {WORKERS}")
    print(f"  read by the driver 2 x {beside:.1f} GB (embedding, unembedding), one at a time")
    print(f"  heads        {shape.head_operations:.2e} operations, {heads:.1f} core-hours")
    for route in ("float32", "float64", "approximate"):
        cost, operations = figures[route], shape.matrix_operations(route)
        hours = operations / cost["rate"] / 3600
        minutes = hours / (3 * shape.layers) * 60
        memory = cost["peak"] / cost["elements"] * shape.width * shape.inner / 1e9
        print(
            f"  {route:<12} {operations:.2e} operations, {hours:.1f} core-hours ({minutes:.1f} min each), "
            f"{memory:.1f} GB; with the heads {(hours + heads) / WORKERS:.2f} h on {WORKERS} workers"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure_side(*sys.argv[2:4])
    else:
        main()
