"""Four layers of LLaMA-7B's size in bfloat16: CPU seconds a layer, memory, and the route of 0.1.0 beside it.

    python benchmarks/llama.py [LAYERS [SRC]]

Conditions are as real models have them: 10 to 25 of feed-forward maps, 10 to 100 of heads. Each side runs in
a process of its own. 0.1.0 is measured on one layer, all of which cost the same: float64 throughout,
`eigvalsh` of Gram matrices, QR of thin factors, every entry of every product of heads. 32 layers are 32 times
the cost of one, and what an audit spends once, on the null of each shape, which is drawn and timed before it.
CPU seconds are those of one thread on both sides; then once more with a thread for each core, by the clock.
Without a claim, on one layer: feed-forward maps at a condition of 100.

Two claims are about single matrices of 4096 x 11008: the random reference over one Gram matrix in float32,
and float32 weights over bfloat16 weights; the least of two runs counts. SRC is the folder `src` of another
version, such as 0.2.0: its audit of one layer then takes turns with ours. LAYERS 0 measures these alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import audit
import numpy as np
from audit import BEFORE, ONE_THREAD, STEEP, compare_before, least_cpu, make_llama, measure_side, side
from claims import Claims

LAYERS = 4
WIDTH, INNER, HEAD_SIZE = 4096, 11008, 128


def in_one_thread(folder: str) -> object:
    return attnlaw(folder, jobs=1)


def attnlaw(folder: str, jobs: int | None = None) -> object:
    """A whole audit: the share of feed-forward matrices that went the double way, and seconds spent once."""
    import attnlaw.analysis.audit.audit  # noqa: F401  (an audit would import it where it runs)
    from attnlaw import audit as run_audit
    from attnlaw.analysis.fit.null import null_of_shape

    def work() -> dict[str, float]:
        began = time.process_time()
        null_of_shape(WIDTH, INNER).compare(np.linspace(2.0, 1.0, WIDTH))
        null_of_shape(WIDTH, WIDTH, HEAD_SIZE).compare(np.linspace(2.0, 1.0, HEAD_SIZE))
        once = time.process_time() - began
        matrices = run_audit(folder, jobs=jobs).matrices
        maps = matrices.filter(matrices["kind"].str.starts_with("ffn"))
        return {"double": float((maps["precision"] == "float64").mean()), "once": once}

    return work


def route_of_0_1_0(folder: str) -> object:
    """The spectra and norms of the first layer as 0.1.0 found them."""
    from scipy.linalg import qr, svdvals

    from attnlaw.checkpoints.open import open_model

    model = open_model(folder)
    layer = model.layers[0]

    def norms(matrix: np.ndarray) -> float:
        return float(np.sqrt(np.einsum("ij,ij->j", matrix, matrix)).sum() + np.abs(matrix).sum())

    def head(left: np.ndarray, right: np.ndarray) -> float:
        roots = qr(left, mode="r")[0][: left.shape[1]], qr(right.T, mode="r")[0][: left.shape[1]]
        values = svdvals(roots[0] @ roots[1].T)
        columns = roots[0] @ right
        blocks = range(0, left.shape[0], 64)
        absolute = sum(float(np.abs(left[at : at + 64] @ right).sum()) for at in blocks)
        return float(values[0] + np.sqrt(np.einsum("ij,ij->j", columns, columns)).sum() + absolute)

    def work() -> float:
        total = 0.0
        for kind in ("qk", "vo"):
            total += sum(head(*pair) for pair in layer.attention.factors(model, kind))
        for view in (layer.feed_forward.inner, layer.feed_forward.gate, layer.feed_forward.outer):
            matrix = model.read(view)
            wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
            total += float(np.sqrt(np.linalg.eigvalsh(wide @ wide.T)[-1])) + norms(matrix)
        return total

    return work


def one_matrix(folder: str) -> object:
    """CPU seconds of one matrix: its Gram matrix, random reference, and spectra in both precisions."""
    from attnlaw.analysis.fit.null import null_of_shape
    from attnlaw.checkpoints.open import open_model
    from attnlaw.spectra.exact import gram_matrix, matrix_spectrum
    from attnlaw.spectra.precision import rounding

    matrix = open_model(folder).read(open_model(folder).layers[0].feed_forward.inner)

    def seconds(run: Callable[[], object]) -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    def work() -> dict[str, float]:
        narrow = matrix.astype(np.float32)
        null_of_shape(200, 300).compare(np.linspace(2.0, 1.0, 200))  # imports
        gram = seconds(lambda: gram_matrix(narrow, narrow.dtype))
        reference = seconds(lambda: null_of_shape(WIDTH, INNER).compare(np.linspace(2.0, 1.0, WIDTH)))
        single = seconds(lambda: matrix_spectrum(narrow, None, rounding("bfloat16")))
        double = seconds(lambda: matrix_spectrum(matrix))
        return {"gram": gram, "reference": reference, "single": single, "double": double}

    return work


def compare_layers(claims: Claims, layers: int) -> None:
    """Compare several layers with the route of 0.1.0, and add up what 32 layers take."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_llama(folder, layers)
        ours = side("in_one_thread", folder, __file__)
        threads = side("attnlaw", folder, __file__)
        before = side("route_of_0_1_0", folder, __file__)
    once = ours["once"]
    layer = (ours["cpu"] - once) / layers
    clock = (threads["after"] - threads["once"]) / layers
    print(f"{layers} layers: {layer:.1f} s of CPU a layer, {once:.1f} s once for the nulls of two shapes")
    print(f"with a thread for each core: {clock:.1f} s a layer by the clock")
    print(f"{ours['double']:.0%} of the feed-forward maps went the double way")
    print(f"the route of 0.1.0: {before['cpu']:.1f} s of CPU a layer", flush=True)
    with tempfile.TemporaryDirectory() as name:
        make_llama(Path(name), 1, STEEP)
        steep = side("in_one_thread", Path(name), __file__)
    took = steep["cpu"] - steep["once"]
    print(f"feed-forward maps at 100: {took:.1f} s of CPU a layer, {steep['double']:.0%} the double way")
    print(json.dumps({"ours": ours, "threads": threads, "before": before, "steep": steep}))
    claims.add(
        "a layer of LLaMA-7B's size in bfloat16, CPU seconds",
        f"{layer:.1f} s",
        f"the route of 0.1.0: {before['cpu']:.1f} s",
        before["cpu"] / layer,
        3.0,
    )
    claims.add(
        f"peak memory at {layers} layers of LLaMA-7B's size, MB",
        f"{threads['peak']:.0f} MB",
        "a budget of 1500 MB",
        threads["peak"],
        1500.0,
        least=False,
    )
    claims.add(
        "a model of LLaMA-7B's size, 32 layers, CPU seconds",
        f"{once + 32 * layer:.0f} s from {layers} layers",
        "no peer",
        once + 32 * layer,
        600.0,
        least=False,
    )
    claims.add(
        "a model of LLaMA-7B's size, 32 layers, seconds by the clock, a thread for each of two cores",
        f"{once + 32 * clock:.0f} s from {layers} layers",
        "no peer",
        once + 32 * clock,
        420.0,
        least=False,
    )


def compare_matrices(claims: Claims, source: str | None) -> None:
    """Compare parts of a single matrix, and one layer with another version."""
    with tempfile.TemporaryDirectory() as name:
        make_llama(Path(name), 1)
        runs = [side("one_matrix", Path(name), __file__) for _ in range(2)]
        both = {start: ("alone", Path(name)) for start in ("alone: a layer", f"{BEFORE}a layer")}
        versions = least_cpu(both, runs=2, source=source, script=audit.__file__) if source else {}
    one = {part: min(run[part] for run in runs) for part in ("gram", "reference", "single", "double")}
    claims.add(
        "random reference of 4096 x 11008 over its Gram matrix in float32, CPU seconds",
        f"{one['reference']:.2f} s",
        f"the Gram matrix: {one['gram']:.2f} s",
        one["reference"] / one["gram"],
        1.0,
        least=False,
    )
    claims.add(
        "a map of 4096 x 11008 in bfloat16 over float32, CPU seconds",
        f"{one['single']:.1f} s",
        f"in float32: {one['double']:.1f} s",
        one["double"] / one["single"],
        1.5,
    )
    if versions:
        what = "a layer of LLaMA-7B's size with its random reference"
        compare_before(claims, versions, what, "a layer", 1.8)


def main() -> int:
    layers = int(sys.argv[1]) if sys.argv[1:] else LAYERS
    os.environ |= ONE_THREAD  # CPU seconds are those of work
    claims = Claims()
    if layers:
        compare_layers(claims, layers)
    compare_matrices(claims, sys.argv[2] if sys.argv[2:] else None)
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure_side(globals()[sys.argv[2]], sys.argv[3])
    else:
        sys.exit(main())
