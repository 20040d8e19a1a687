"""A comparison of two 12 x 768 encoders against one audit of them; memory at LLaMA-7B's size.

    python benchmarks/diff.py

Each side runs in a process of its own, on the same files; what dominates is printed. Exits with status 1 when
a claim does not hold.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import numpy as np
from audit import make_encoder, make_llama, peak_megabytes
from claims import Claims
from safetensors.numpy import load_file, save_file

MOST_TIME, MOST_MEMORY = 6.0, 1.5
# Parts of a comparison: where each is called, and what it is.
PARTS = {
    "compare_tensors": "stored tensors",
    "compare_heads": "heads",
    "compare_matrices": "feed-forward maps",
    "match_heads": "matching heads",
    "match_neurons": "matching neurons",
}


def make_pair(folder: Path, make: object) -> tuple[Path, Path]:
    """A model, and the same with noise and a few directions added to every matrix, as training adds them."""
    base, model = folder / "base", folder / "model"
    base.mkdir()
    make(base)  # type: ignore[operator]
    shutil.copytree(base, model)
    rng = np.random.default_rng(1)
    for file in model.glob("*.safetensors"):
        tensors = load_file(file)
        for name, tensor in tensors.items():
            if tensor.ndim < 2:
                continue
            deviation = np.float32(0.2) * np.float32(tensor.astype(np.float32).std())
            noise = rng.standard_normal(tensor.shape, dtype=np.float32)
            strong = rng.standard_normal((tensor.shape[0], 3), dtype=np.float32) @ rng.standard_normal(
                (3, tensor.shape[1]), dtype=np.float32
            )
            tensors[name] = (tensor.astype(np.float32) + deviation * (noise + strong)).astype(tensor.dtype)
        save_file(tensors, file)
    return base, model


def run_audit(base: str, model: str) -> object:
    from attnlaw import audit

    return lambda: audit(base)


def run_diff(base: str, model: str) -> object:
    from attnlaw import diff

    return lambda: diff(base, model)


def run_parts(base: str, model: str) -> object:
    """The comparison with its parts timed, CPU seconds of each."""
    from attnlaw import diff
    from attnlaw.analysis.diff import compare, units

    spent = dict.fromkeys(PARTS, 0.0)
    rooms = (compare, units)
    where = {name: next(room for room in rooms if hasattr(room, name)) for name in PARTS}

    def timed(name: str) -> object:
        function = getattr(where[name], name)

        def call(*words: object) -> object:
            started = time.thread_time()
            try:
                return function(*words)
            finally:
                spent[name] += time.thread_time() - started

        return call

    def work() -> dict[str, float]:
        with ExitStack() as patches:
            for name, module in where.items():
                patches.enter_context(mock.patch.object(module, name, timed(name)))
            diff(base, model, jobs=1)
        return spent

    return work


def measure_side(side: str, base: str, model: str) -> None:
    """Run one side in this process and print its figures; the second of two runs, the nulls being drawn."""
    run = globals()[f"run_{side}"](base, model)
    result = run()
    started, worked = time.perf_counter(), time.process_time()
    if side in ("audit", "diff") and "llama" not in base:
        result = run()
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - worked}
    parts = result if isinstance(result, dict) else {}
    print(json.dumps(figures | {"peak": peak_megabytes(), "parts": parts}))


def side(name: str, base: Path, model: Path) -> dict[str, object]:
    command = [sys.executable, __file__, "--side", name, str(base), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    claims = Claims()
    with tempfile.TemporaryDirectory() as name:
        pair = make_pair(Path(name), make_encoder)
        audited, compared, parts = (side(label, *pair) for label in ("audit", "diff", "parts"))
    whole = sum(parts["parts"].values())
    print("CPU seconds of a comparison, what dominates first:")
    for part, spent in sorted(parts["parts"].items(), key=lambda item: -item[1]):
        print(f"{spent:10.2f}  {spent / whole:6.1%}  {PARTS[part]}")
    claims.add(
        "comparison of two 12 x 768 encoders over one audit, CPU time",
        f"{compared['cpu']:.1f} s",
        f"an audit: {audited['cpu']:.1f} s",
        compared["cpu"] / audited["cpu"],
        MOST_TIME,
        least=False,
    )
    claims.add(
        "its peak memory over that of the audit",
        f"{compared['peak']:.0f} MB",
        f"{audited['peak']:.0f} MB",
        compared["peak"] / audited["peak"],
        MOST_MEMORY,
        least=False,
    )
    if "--small" in sys.argv:
        return claims.finish()
    with tempfile.TemporaryDirectory(prefix="llama") as name:
        pair = make_pair(Path(name), make_llama)
        held = sum(file.stat().st_size for folder in pair for file in folder.glob("*.safetensors"))
        large = side("diff", *pair)
    whole_models = held * 4 / 2**20  # bfloat16 on disk, float64 in memory
    claims.add(
        "peak memory of a comparison at two layers of LLaMA-7B's size, share of both models in float64",
        f"{large['peak']:.0f} MB",
        f"both models: {whole_models:.0f} MB",
        large["peak"] / whole_models,
        0.75,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    if "--side" in sys.argv:
        measure_side(*sys.argv[2:])
    else:
        sys.exit(main())
