"""The exact sampler against brute force, the cost of width, and all experiments of arXiv 2506.00846, timed.

Run `python benchmarks/limit.py`. Goals: 10,000 times the brute force's draws per second at n = 1024; the cost
at n = 1e9 within a factor 2 of that at n = 64; all experiments in three minutes on two cores.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from claims import Claims  # noqa: E402
from theory.limit.brute_force import brute_force  # noqa: E402
from theory.limit.layer_draws import sample  # noqa: E402

from attnlaw.theory.limit.depth import Depth  # noqa: E402
from attnlaw.theory.limit.inputs import RandomInputs  # noqa: E402
from attnlaw.theory.limit.layer import AttentionLayer  # noqa: E402
from attnlaw.theory.limit.sampler import output_law  # noqa: E402

# Studies of the paper's experiments, the longest first, so that two processes end together.
STUDIES = ("relu", "heads", "scaling", "width", "low-rank")
SETTING = ("heads", "width", "scaling")
DISTANCES = ("kl_to_limit", "kernel_kl_to_limit", "kl_to_other_limit", "kl_to_gaussian")


def seconds_per_draw(run: Callable[[int], object], draws: int, repeats: int = 5) -> float:
    """The best of several runs: other work on the machine only ever adds time."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run(draws)
        best = min(best, time.perf_counter() - start)
    return best / draws


def layer(n: int) -> AttentionLayer:
    """The paper's layer: four tokens, two heads."""
    return AttentionLayer(RandomInputs(4), heads=2, width=n)


def against_brute_force() -> float:
    """Print draws per second; return the smaller ratio at n = 1024."""
    print("s = 4, H = 2; draws per second of all tokens' outputs (of one token's)")
    ratio = 0.0
    for n, draws in ((64, 400), (256, 20), (1024, 2)):
        stack = Depth(layer(n))
        brute = seconds_per_draw(lambda k, stack=stack: brute_force(stack, k, seed=0), draws, repeats=3)
        whole = seconds_per_draw(lambda k, stack=stack: sample(stack.layer, k, seed=0), 20_000)
        row = seconds_per_draw(lambda k, stack=stack: output_law(stack.layer, k, seed=0), 100_000)
        ratio = brute / whole
        print(
            f"  n = {n:5}: brute force {1 / brute:9.2f}, exact {1 / whole:9.0f} ({1 / row:9.0f}), "
            f"ratio {ratio:9.0f} ({brute / row:9.0f})"
        )
    return ratio


def cost_of_width() -> float:
    """Print and return the larger ratio of the cost at n = 1e9 to that at n = 64."""
    ratios = []
    for text, run, draws in (("all tokens", sample, 20_000), ("one token", output_law, 100_000)):
        small, large = (
            seconds_per_draw(lambda k, n=n, run=run: run(layer(n), k, seed=0), draws) for n in (64, 10**9)
        )
        ratios.append(large / small)
        times = f"{small * 1e6:.2f} us at n = 64, {large * 1e6:.2f} us at n = 1e9"
        print(f"  {text}: {times}, ratio {large / small:.2f}")
    return max(ratios)


def study(name: str, out: Path) -> float:
    """Run a shipped study in a process of its own; return the seconds that it took."""
    start = time.perf_counter()
    command = [Path(sys.executable).with_name("attnlaw"), "study", "run", f"limit-{name}", "--out", out]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, capture_output=True, check=True, env=one_thread)
    return time.perf_counter() - start


def show(out: Path) -> None:
    """Print the means over seeds of all distances of a study."""
    rows = pl.read_parquet(out / "rows.parquet")
    names = [name for name in DISTANCES if name in rows.columns]
    for row in rows.group_by(SETTING, maintain_order=True).agg(pl.col(names).mean()).iter_rows(named=True):
        setting = f"{row['heads']:>3} heads, n = {row['width']:>6g}, {row['scaling']:>9}"
        print(f"    {setting}: {', '.join(f'{name} {row[name]:.3e}' for name in names if row[name])}")


def all_experiments() -> float:
    """Run the studies two at a time; return the seconds that all took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        outs = [Path(folder, name) for name in STUDIES]
        for name, out, seconds in zip(STUDIES, outs, pool.map(study, STUDIES, outs), strict=True):
            print(f"  limit-{name}: {seconds:.0f} s")
            show(out)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.perf_counter() - start
    print(f"  {seconds:.0f} s elapsed, {used.ru_utime + used.ru_stime:.0f} s of processor time")
    return seconds


def main() -> int:
    ratio = against_brute_force()
    print("cost of width")
    width = cost_of_width()
    print("the paper's experiments at its numbers of draws and seeds, two processes")
    seconds = all_experiments()
    claims = Claims()
    claims.add("draws of an attention layer of width 1024", "exact", "all weights drawn", ratio, 10_000)
    claims.add("cost of a draw at width 1e9", "", "at width 64", width, 2.0, least=False)
    claims.add(
        "all experiments of the paper, seconds", f"{seconds:.0f} s", "no peer", seconds, 180, least=False
    )
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
