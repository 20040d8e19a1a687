"""Four layers of LLaMA-7B's size in bfloat16: CPU seconds a layer, memory, and the route of 0.1.0 beside it.

    python benchmarks/llama.py [LAYERS]

Conditions are as real models have them: 10 to 25 of feed-forward maps, 10 to 100 of heads. Each side runs in
a process of its own. 0.1.0 is measured on one layer, all of which cost the same: float64 throughout,
`eigvalsh` of Gram matrices, QR of thin factors, every entry of every product of heads. 32 layers are 32 times
the cost of one, and what an audit spends once, on the null of each shape, which is drawn and timed before it.
CPU seconds are those of one thread on both sides; then once more with a thread for each core, by the clock.
Without a claim, on one layer: feed-forward maps at a condition of 100.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from audit import STEEP, make_llama, measure_side, side
from claims import Claims

LAYERS = 4
WIDTH, INNER, HEAD_SIZE = 4096, 11008, 128


def in_one_thread(folder: str) -> object:
    return attnlaw(folder, jobs=1)


def attnlaw(folder: str, jobs: int | None = None) -> object:
    """A whole audit: the share of feed-forward matrices that went the double way, and seconds spent once."""
    import attnlaw.analysis.audit.audit  # noqa: F401  (an audit would import it where it runs)
    from attnlaw import audit
    from attnlaw.analysis.fit.null import null_of_shape

    def work() -> dict[str, float]:
        began = time.process_time()
        null_of_shape(WIDTH, INNER)
        null_of_shape(WIDTH, WIDTH, HEAD_SIZE)
        once = time.process_time() - began
        matrices = audit(folder, jobs=jobs).matrices
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


def main() -> int:
    layers = int(sys.argv[1]) if sys.argv[1:] else LAYERS
    claims = Claims()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_llama(folder, layers)
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # CPU seconds are those of work
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
    print(json.dumps({"ours": ours, "threads": threads, "before": before, "steep": steep}))
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure_side(globals()[sys.argv[2]], sys.argv[3])
    else:
        sys.exit(main())
