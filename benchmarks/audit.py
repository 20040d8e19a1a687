"""Audit of a 12 x 768 encoder against WeightWatcher and dense SVDs; memory at LLaMA-7B size.

    python benchmarks/audit.py

Each side runs in a process of its own, on the same file; times are printed without and with imports,
memory is the peak of that process. Exits with status 1 when a claim does not hold.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np
from claims import Claims
from safetensors.numpy import save_file

SIDES = ("attnlaw", "weightwatcher", "dense")


def make_encoder(
    folder: Path, layers: int = 12, width: int = 768, inner: int = 3072, heads: int = 12
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
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "hidden_act": "gelu",
    }
    (folder / "config.json").write_text(json.dumps(config))


# What rows of a feed-forward map, and columns of a head, differ by: conditions as real models have them, 10 to
# 25 and 10 to 100. The second pair, of conditions about 100, is without a claim.
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

    from attnlaw import audit
    from attnlaw.fits.tail import power_law_tails

    def work() -> object:
        found = audit(folder)
        # WeightWatcher fits a power law to every matrix; so does this side, which an audit alone does not.
        return power_law_tails(found.spectra["singular_values"].list.eval(pl.element() ** 2).to_list())

    return work


def null_test(folder: str) -> object:
    """The part of an audit that tells matrices from noise, of spectra that are measured already."""
    from attnlaw import audit
    from attnlaw.fits.null import _null, null_test

    (tree,) = audit(folder).trees
    _null.cache_clear()
    return lambda: [null_test(spectrum) for _, spectrum in tree.leaves() if spectrum is not None]


def findings(folder: str) -> object:
    """An audit that prints how much of its CPU time looking for findings took."""
    from attnlaw import audit

    def work() -> float:
        (subject,) = audit(folder).subjects
        return subject.evidence.seconds

    return work


def feed_forward(folder: str) -> object:
    from attnlaw import audit

    return lambda: audit(folder, only="ffn")


def approximate(folder: str) -> object:
    from attnlaw import audit

    return lambda: audit(folder, only="ffn", approximate=True)


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
        for layer in range(12):
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


def measure_side(side: str, folder: str) -> None:
    """Run one side in this process and print its figures."""
    started = time.perf_counter()
    run = globals()[side](folder)
    imported = time.perf_counter()
    worked = time.process_time()
    found = run()
    ended = time.perf_counter()
    figures = {"after": ended - imported, "with": ended - started, "cpu": time.process_time() - worked}
    if isinstance(found, float):
        figures["found"] = found
    print(json.dumps(figures | {"peak": peak_megabytes()}))


def side(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--side", name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_encoder(folder)
        print("12 layers x 768: 288 head products and 24 feed-forward matrices")
        print(f"{'side':<16}{'seconds':>10}{'with imports':>15}{'peak MB':>10}")
        figures = {}
        for label in SIDES:
            runs = [side(label, folder) for _ in range(2)]
            figures[label] = min(runs, key=lambda run: run["after"])
            best = figures[label]
            print(f"{label:<16}{best['after']:>10.2f}{best['with']:>15.2f}{best['peak']:>10.0f}")
        tested = side("null_test", folder)["cpu"]
        print(f"of attnlaw's {figures['attnlaw']['cpu']:.2f} s of CPU, its null test takes {tested:.2f} s")
        looked = min((side("findings", folder) for _ in range(2)), key=lambda run: run["found"] / run["cpu"])
        share = looked["found"] / looked["cpu"]
        print(
            f"of an audit's {looked['cpu']:.2f} s of CPU, findings take {looked['found']:.2f} s ({share:.1%})"
        )
    ours, watcher, plain = (figures[name] for name in SIDES)
    claims = Claims()
    claims.add(
        "audit of a 12 x 768 encoder with power-law fits: 288 heads, 24 feed-forward matrices",
        f"{ours['after']:.1f} s",
        f"WeightWatcher 0.7.7 (72 matrices, no heads): {watcher['after']:.1f} s",
        watcher["after"] / ours["after"],
        5.0,
    )
    claims.add(
        "the same, every product formed",
        f"{ours['after']:.1f} s",
        f"dense float64 SVDs: {plain['after']:.1f} s",
        plain["after"] / ours["after"],
        12.0,
    )
    claims.add(
        "peak memory of that audit",
        f"{ours['peak']:.0f} MB",
        f"WeightWatcher: {watcher['peak']:.0f} MB",
        watcher["peak"] / ours["peak"],
        2.0,
    )
    claims.add(
        "share of an audit's CPU time that looking for findings takes",
        f"{looked['found']:.2f} s",
        f"the whole audit: {looked['cpu']:.2f} s",
        share,
        0.1,
        least=False,
    )
    with tempfile.TemporaryDirectory() as name:
        make_llama(Path(name))
        exact, factorised, estimated = (
            side(label, Path(name)) for label in ("attnlaw", "feed_forward", "approximate")
        )
    claims.add(
        "peak memory at two layers of LLaMA-7B's size, MB",
        f"{exact['peak']:.0f} MB in {exact['after']:.0f} s",
        "a budget of 1500 MB",
        exact["peak"],
        1500.0,
        least=False,
    )
    claims.add(
        "the six feed-forward matrices of that model, `--approximate`",
        f"{estimated['after']:.0f} s",
        f"all their values: {factorised['after']:.0f} s",
        factorised["after"] / estimated["after"],
        1.0,
    )
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure_side(*sys.argv[2:4])
    else:
        sys.exit(main())
