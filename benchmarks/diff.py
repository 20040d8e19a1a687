"""A comparison of two 12 x 768 encoders against one audit of them; memory at LLaMA-7B's size.

    python benchmarks/diff.py [--small] [--old SRC]

The comparison is measured on three pairs: a dense update, a low-rank update, and a dense one of 0.05 percent
that is mostly hidden by the rounding of a bfloat16 file. With `--old SRC`, a directory that holds version
0.2.0 of the package, each comparison is also measured with it. Both sides take turns.

Each side runs in a process of its own, on the same files; what dominates is printed. Exits with status 1 when
a claim does not hold.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np
from audit import make_encoder, make_llama, peak_megabytes
from claims import Claims
from safetensors.numpy import load_file, save_file

MOST_TIME, MOST_MEMORY = 6.0, 1.5
# CPU seconds of a comparison, over those of version 0.2.0.
MOST_OVER_OLD = 2.0
# Parts of a comparison: where each is called, and what it is.
PARTS = {
    "compare_tensors": "stored tensors",
    "compare_heads": "heads",
    "compare_matrices": "feed-forward maps",
    "match_heads": "matching heads",
    "match_neurons": "matching neurons",
}


def dense(tensor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return noise and a few directions, as training adds them."""
    noise = rng.standard_normal(tensor.shape, dtype=np.float32)
    return np.float32(0.2) * np.float32(tensor.std()) * (noise + factors(tensor, rng, 3))


def low_rank(tensor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.float32(0.01) * np.float32(tensor.std()) * factors(tensor, rng, 8)


def hidden(tensor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.float32(5e-4) * np.float32(tensor.std()) * rng.standard_normal(tensor.shape, dtype=np.float32)


def factors(tensor: np.ndarray, rng: np.random.Generator, rank: int) -> np.ndarray:
    left = rng.standard_normal((tensor.shape[0], rank), dtype=np.float32)
    return left @ rng.standard_normal((rank, tensor.shape[1]), dtype=np.float32)


# Pairs: what is added to each matrix, and the type of the model's file if it is not that of the base.
PAIRS = {"dense": (dense, None), "low-rank": (low_rank, None), "bfloat16": (hidden, ml_dtypes.bfloat16)}


def make_pair(folder: Path, make: object, kind: str = "dense") -> tuple[Path, Path]:
    """Make a model, and a copy with something added to every matrix."""
    change, dtype = PAIRS[kind]
    base, model = folder / "base", folder / "model"
    base.mkdir()
    make(base)  # type: ignore[operator]
    shutil.copytree(base, model)
    rng = np.random.default_rng(1)
    for file in model.glob("*.safetensors"):
        tensors = load_file(file)
        for name, tensor in tensors.items():
            matrix = tensor.astype(np.float32)
            sum_of = matrix if tensor.ndim < 2 else matrix + change(matrix, rng)
            tensors[name] = sum_of.astype(dtype or tensor.dtype)
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


def side(name: str, base: Path, model: Path, source: str | None = None) -> dict[str, object]:
    command = [sys.executable, __file__, "--side", name, str(base), str(model)]
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    places = {} if source is None else {"PYTHONPATH": source}
    environment = os.environ | single | places
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare_with_old(claims: Claims, source: str) -> None:
    """Measure every pair with this version and with 0.2.0, twice in turn, and take the least of each."""
    for kind in PAIRS:
        with tempfile.TemporaryDirectory() as name:
            pair = make_pair(Path(name), make_encoder, kind)
            turns = [(side("diff", *pair)["cpu"], side("diff", *pair, source)["cpu"]) for _ in range(2)]
        new, old = (min(times) for times in zip(*turns, strict=True))
        label = f"comparison of two 12 x 768 encoders, {kind} pair, over version 0.2.0, CPU time"
        claims.add(label, f"{new:.1f} s", f"0.2.0: {old:.1f} s", new / old, MOST_OVER_OLD, least=False)


def main() -> int:
    claims = Claims()
    if "--old" in sys.argv:
        compare_with_old(claims, sys.argv[sys.argv.index("--old") + 1])
        return claims.finish()
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
