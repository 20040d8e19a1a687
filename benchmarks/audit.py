"""Audit of a 12 x 768 encoder, in float32 and in bfloat16, against WeightWatcher and dense SVDs.

    python benchmarks/audit.py [SRC] [--kernels]

Each side runs in a process of its own, on the same weights. The claims are CPU seconds without imports, with
one BLAS thread on both sides. The sides take turns, and the least of three runs counts: other work on the
machine can only add to it. Memory is the peak of a process. The dense side runs three of the twelve layers,
which cost the same. Exits with status 1 when a claim does not hold.

OpenBLAS chooses its kernels by the processor. They matter more to attnlaw, which spends its time in matrix
products, than to the SVDs of the other sides. So every side gets the kernels that OpenBLAS chooses, whatever
OPENBLAS_CORETYPE says, and their name is printed. --kernels keeps the variable.

`analyze()` fits a power law to each of its 72 matrices. So the side of attnlaw fits one to each of its 312
matrices, which adds 0.02 s to the audit.

What an audit spends its CPU on is printed, in one thread. "The floor" are Gram matrices and eigenvalues of
the 24 maps: without anything else, the ratio would be the printed ceiling. It depends on the processor,
because these are matrix products and the SVDs of the other sides are not.

SRC is the folder `src` of another version, such as 0.2.0. Its audits then take turns with ours, and its CPU
seconds and peak memory are claims, too.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
from claims import Claims
from safetensors.numpy import save_file
from threadpoolctl import threadpool_info

FLOAT32, BFLOAT16 = TYPES = ("float32", "bfloat16")
DENSE_LAYERS = 3


def make_encoder(
    folder: Path,
    layers: int = 12,
    width: int = 768,
    inner: int = 3072,
    heads: int = 12,
    dtype: str = FLOAT32,
) -> None:
    """A BERT-base-sized encoder with power-law singular values, as trained matrices have."""
    rng = np.random.default_rng(0)

    def weight(rows: int, cols: int) -> np.ndarray:
        decay = (1 + np.arange(cols)) ** -0.3
        return (rng.standard_normal((rows, cols)) * decay / cols**0.5 * 3).astype(np.float32)

    tensors = {}
    for layer in range(layers):
        prefix = f"bert.encoder.layer.{layer}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            tensors[f"{prefix}attention.{name}.weight"] = weight(width, width)
        for name in ("attention.output", "output"):
            tensors[f"{prefix}{name}.LayerNorm.weight"] = np.exp(0.2 * rng.standard_normal(width, np.float32))
            tensors[f"{prefix}{name}.LayerNorm.bias"] = np.zeros(width, np.float32)
        tensors[f"{prefix}intermediate.dense.weight"] = weight(inner, width)
        tensors[f"{prefix}output.dense.weight"] = weight(width, inner)
    narrow = {name: value.astype(ml_dtypes.bfloat16) for name, value in tensors.items()}
    save_file(tensors if dtype == FLOAT32 else narrow, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "hidden_act": "gelu",
    }
    (folder / "config.json").write_text(json.dumps(config))


# What rows of a feed-forward map, and columns of a head, differ by: conditions as real models have them, 10
# to 25 and 10 to 100. The second pair, of conditions about 100, is without a claim.
USUAL, STEEP = (6.0, 12.0), (60.0, 60.0)
HEAD = 6.0


def make_llama(folder: Path, layers: int = 2, steep: tuple[float, float] = USUAL) -> None:
    """Layers of LLaMA-7B's shapes in bfloat16, one shard each."""
    width, inner, heads = 4096, 11008, 32
    rng = np.random.default_rng(0)
    within_head = np.tile(np.geomspace(1, 1 / HEAD, width // heads), heads).astype(np.float32)

    def weight(name: str, shape: tuple[int, int]) -> np.ndarray:
        drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(width**-0.5)
        if name.startswith("self_attn"):
            return drawn * (within_head if "o_proj" in name else within_head[:, None])
        decay = np.geomspace(1, 1 / rng.uniform(*steep), width).astype(np.float32)
        return drawn * (decay if shape[1] == width else decay[:, None])

    weight_map = {}
    for layer in range(layers):
        shapes = {f"self_attn.{name}_proj.weight": (width, width) for name in "qkvo"}
        shapes |= {f"mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        shapes["mlp.down_proj.weight"] = (width, inner)
        norms = ("input_layernorm.weight", "post_attention_layernorm.weight")
        tensors = {f"model.layers.{layer}.{name}": np.ones(width, ml_dtypes.bfloat16) for name in norms}
        tensors |= {
            f"model.layers.{layer}.{name}": weight(name, shape).astype(ml_dtypes.bfloat16)
            for name, shape in shapes.items()
        }
        file = f"model-{layer + 1:05d}-of-{layers:05d}.safetensors"
        save_file(tensors, folder / file)
        weight_map |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))


def attnlaw(folder: str) -> object:
    import polars as pl
    import scipy.linalg  # noqa: F401

    import attnlaw.analysis.audit.audit
    import attnlaw.verbs.views  # noqa: F401  (an audit would import all these where it runs)
    from attnlaw import audit
    from attnlaw.analysis.fit.tail import power_law_tails

    jobs = 1 if os.environ.get("OMP_NUM_THREADS") == "1" else None

    def work() -> object:
        result = audit(folder, jobs=jobs)
        # WeightWatcher fits a power law to every matrix; so does this side, which an audit alone does not.
        return power_law_tails(result.spectra["singular_values"].list.eval(pl.element() ** 2).to_list())

    return work


def alone(folder: str) -> object:
    """An audit in one thread with any version of attnlaw. A small one before it imports everything."""
    from attnlaw import audit

    block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": np.eye(4)}
    audit(block, heads=2, jobs=1)
    return lambda: float(audit(folder, jobs=1).matrices.height)


def parts(folder: str) -> object:
    """An audit on one thread that prints what each of its parts took."""
    from attnlaw import audit
    from attnlaw.analysis.audit import audit as auditing
    from attnlaw.analysis.fit.null import NullPreparer
    from attnlaw.checkpoints.model import Model
    from attnlaw.spectra import exact, stacked

    named = {
        "Gram matrices": [(exact, "gram_matrix")],
        "eigenvalues": [(exact, "symmetric_eigenvalues")],
        "triangles of heads": [(stacked, "_gram"), (stacked, "_folded_gram"), (stacked, "_cholesky_factors")],
        "(1,1) norms of heads": [(stacked, "absolute_product_sum"), (stacked, "sampled_absolute_sum")],
        "SVDs of heads": [(stacked, "_singular_values")],
        "reading": [(Model, "read")],
        "null tests": [(auditing, "null_test"), (NullPreparer, "__call__")],
    }
    spent = dict.fromkeys(named, 0.0)

    def timed(part: str, run: object) -> object:
        def call(*given: object, **more: object) -> object:
            began = time.thread_time()
            try:
                return run(*given, **more)
            finally:
                spent[part] += time.thread_time() - began

        return call

    for part, places in named.items():
        for place, name in places:
            setattr(place, name, timed(part, getattr(place, name)))

    def work() -> dict[str, float]:
        began = time.process_time()
        subject = audit(folder, jobs=1).record.subject
        spent["findings"] = subject.evidence.seconds
        spent["the rest"] = time.process_time() - began - sum(spent.values())
        print(", ".join(f"{part} {seconds:.2f}" for part, seconds in spent.items()), file=sys.stderr)
        return {
            "floor": spent["Gram matrices"] + spent["eigenvalues"],
            "share": spent["findings"] / sum(spent.values()),
        }

    return work


def weightwatcher(folder: str) -> object:
    import logging

    logging.disable(logging.CRITICAL)
    import weightwatcher as ww

    return lambda: ww.WeightWatcher(model=folder).analyze()


def dense(folder: str) -> object:
    """The route of the published scripts: form every product, dense float64 SVDs, power sums on a grid."""
    from safetensors.numpy import load_file

    def run() -> float:
        tensors = load_file(f"{folder}/model.safetensors")
        grid = np.arange(39) / 19
        total = 0.0
        for layer in range(DENSE_LAYERS):
            prefix = f"bert.encoder.layer.{layer}."
            q, k, v, o = (
                tensors[f"{prefix}attention.{name}.weight"].astype(np.float64)
                for name in ("self.query", "self.key", "self.value", "output.dense")
            )
            matrices = []
            for head in range(12):
                rows = slice(64 * head, 64 * head + 64)
                matrices += [q[rows].T @ k[rows], v[rows].T @ o.T[rows]]
            for name in ("intermediate.dense", "output.dense"):
                matrices.append(tensors[f"{prefix}{name}.weight"].astype(np.float64).T)
            for matrix in matrices:
                values = np.linalg.svd(matrix, compute_uv=False)
                total += min((values**p).sum() ** (1 / (p + 2)) for p in grid)
                total += np.linalg.norm(matrix, axis=0).sum()
        return total

    return run


def peak_megabytes() -> float:
    """The peak of this process alone; getrusage would count what its parent held when it was started."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_side(made: Callable[[str], Callable[[], object]], folder: str) -> None:
    """Run one side in this process and print its figures."""
    started = time.perf_counter()
    run = made(folder)
    imported = time.perf_counter()
    worked = time.process_time()
    result = run()
    ended = time.perf_counter()
    figures = {"after": ended - imported, "with": ended - started, "cpu": time.process_time() - worked}
    if isinstance(result, dict):
        figures |= result
    elif isinstance(result, float):
        figures["found"] = result
    kernels = {pool.get("architecture", "") for pool in threadpool_info() if pool["user_api"] == "blas"}
    print(f"{sys.argv[2]} with kernels {', '.join(kernels)}: {figures['cpu']:.2f} CPU s", file=sys.stderr)
    print(json.dumps(figures | {"peak": peak_megabytes()}))


ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
BEFORE = "before: "  # begins the label of a side of another version


def side(
    name: str, folder: Path, script: str = __file__, env: dict[str, str] | None = None
) -> dict[str, float]:
    """The figures of one side of a script; what it writes to standard error is shown."""
    command = [sys.executable, script, "--side", name, str(folder)]
    environment = os.environ | (env or {})
    if "--kernels" not in sys.argv:
        environment.pop("OPENBLAS_CORETYPE", None)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def least_cpu(
    sides: dict[str, tuple[str, Path]], script: str = __file__, runs: int = 3, source: str | None = None
) -> dict[str, dict[str, float]]:
    """The run of each side that takes the least CPU seconds in one thread. The sides take turns.

    Sides whose label begins with `BEFORE` import attnlaw from the folder `source`.
    """

    def run(label: str) -> dict[str, float]:
        other = {"PYTHONPATH": source} if source and label.startswith(BEFORE) else {}
        return side(*sides[label], script, ONE_THREAD | other)

    rounds = [{label: run(label) for label in sides} for _ in range(runs)]
    return {label: min((turn[label] for turn in rounds), key=lambda run: run["cpu"]) for label in sides}


def compare_before(
    claims: Claims, figures: dict[str, dict[str, float]], what: str, label: str, goal: float
) -> None:
    """Claim that an audit takes less CPU time than the other version, and not more memory."""
    ours, theirs = figures[f"alone: {label}"], figures[f"{BEFORE}{label}"]
    claims.add(
        f"{what}, CPU seconds",
        f"{ours['cpu']:.1f} s",
        f"the version before: {theirs['cpu']:.1f} s",
        theirs["cpu"] / ours["cpu"],
        goal,
    )
    claims.add(
        f"{what}, peak memory over that of the version before",
        f"{ours['peak']:.0f} MB",
        f"the version before: {theirs['peak']:.0f} MB",
        ours["peak"] / theirs["peak"],
        1.02,  # a page more or less
        least=False,
    )


def main() -> int:
    claims = Claims()
    with tempfile.TemporaryDirectory() as name:
        folders = {dtype: Path(name) / dtype for dtype in TYPES}
        for dtype, folder in folders.items():
            folder.mkdir()
            make_encoder(folder, dtype=dtype)
        plain = folders[FLOAT32]
        sides = {f"attnlaw {dtype}": ("attnlaw", folder) for dtype, folder in folders.items()}
        sides |= {"weightwatcher": ("weightwatcher", plain), "dense": ("dense", plain)}
        figures = least_cpu(sides)
        source = next((word for word in sys.argv[1:] if word != "--kernels"), None)
        starts = "alone: ", BEFORE
        both = {f"{start}{dtype}": ("alone", folders[dtype]) for dtype in TYPES for start in starts}
        versions = least_cpu(both, source=source) if source else {}
        figures["dense"]["cpu"] *= 12 / DENSE_LAYERS
        print("12 layers x 768: 288 head products and 24 feed-forward matrices")
        print(f"{'side':<18}{'CPU s, one thread':>18}{'peak MB':>9}")
        for label, figure in figures.items():
            print(f"{label:<18}{figure['cpu']:>18.2f}{figure['peak']:>9.0f}")
        shares = {}
        for dtype, folder in folders.items():
            print(f"what an audit of {dtype} spends its CPU on: ", end="", flush=True, file=sys.stderr)
            spent = side("parts", folder, env=ONE_THREAD)
            ceilings = (figures[peer]["cpu"] / spent["floor"] for peer in ("weightwatcher", "dense"))
            print(f"{dtype}: floor {spent['floor']:.2f} s, ceilings ", end="")
            print(f"{next(ceilings):.1f} and {next(ceilings):.1f}")
            shares[dtype] = spent["share"]
    watcher, dense = figures["weightwatcher"], figures["dense"]
    for dtype, (first, second) in {FLOAT32: (3.6, 9.0), BFLOAT16: (4.2, 11.0)}.items():
        ours = figures[f"attnlaw {dtype}"]
        claims.add(
            f"audit of 12 x 768 in {dtype} with power-law fits, 288 heads and 24 maps, CPU seconds",
            f"{ours['cpu']:.1f} s",
            f"WeightWatcher 0.7.7 (72 matrices, no heads): {watcher['cpu']:.1f} s",
            watcher["cpu"] / ours["cpu"],
            first,
        )
        claims.add(
            "the same, every product formed, CPU seconds",
            f"{ours['cpu']:.1f} s",
            f"dense float64 SVDs: {dense['cpu']:.1f} s",
            dense["cpu"] / ours["cpu"],
            second,
        )
    for dtype in TYPES if versions else ():
        compare_before(claims, versions, f"audit of 12 x 768 in {dtype}", dtype, 1.3)
    ours = figures[f"attnlaw {FLOAT32}"]
    claims.add(
        "peak memory of the audit in float32",
        f"{ours['peak']:.0f} MB",
        f"WeightWatcher: {watcher['peak']:.0f} MB",
        watcher["peak"] / ours["peak"],
        2.0,
    )
    claims.add(
        "share of an audit's CPU time that looking for findings takes",
        f"{shares[FLOAT32]:.0%}",
        "the whole audit",
        shares[FLOAT32],
        0.1,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure_side(globals()[sys.argv[2]], sys.argv[3])
    else:
        sys.exit(main())
