"""Other paths that users wait for: start-up, laws of LLaMA-7B's heads, 4096 tokens, a monitored step.

    python benchmarks/paths.py

CPU seconds of one thread. Start-up is that of fresh processes, beside an empty one, with the modules that
take longest to import. Spectra of heads are drawn at LLaMA-7B's shapes. Exits with status 1 when a claim does
not hold.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from claims import Claims
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
HEADS, WIDTH, HEAD_SIZE = 2048, 4096, 128
COMMANDS = {"--help": ["--help"], "audit of the tiny decoder": ["audit", str(ROOT / "examples/tiny-decoder")]}
MOST = {"--help": 1.0, "audit of the tiny decoder": 6.0}
SLOWEST = 8  # modules that are named


def process_seconds(words: list[str], runs: int = 3, source: str | None = None) -> float:
    """CPU seconds of a fresh Python and its children, the least of some runs."""
    seconds = []
    environment = ONE_THREAD | ({} if source is None else {"PYTHONPATH": source})
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


def imports(words: list[str]) -> str:
    """The packages that a command imports, by their share of the time that all imports take."""
    command = [sys.executable, "-X", "importtime", *words]
    report = subprocess.run(command, capture_output=True, check=True, text=True, env=ONE_THREAD).stderr
    spent: dict[str, float] = {}
    for row in report.splitlines():
        if match := re.match(r"import time: +(\d+) \| +\d+ \| +(\w+)", row):
            spent[match[2]] = spent.get(match[2], 0.0) + int(match[1])
    slowest = sorted(spent.items(), key=lambda item: -item[1])[:SLOWEST]
    return ", ".join(f"{name} {took / sum(spent.values()):.0%}" for name, took in slowest)


def start_up(claims: Claims) -> None:
    empty = process_seconds(["-c", ""])
    for name, words in COMMANDS.items():
        command = ["-m", "attnlaw", *words]
        took = process_seconds(command)
        print(
            f"attnlaw {name}: {took:.2f} s of CPU, an empty Python {empty:.2f} s; imports {imports(command)}"
        )
        claims.add(
            f"`attnlaw` {name}, CPU seconds of a fresh process",
            f"{took:.2f} s",
            "no peer",
            took,
            MOST[name],
            least=False,
        )


def head_laws(claims: Claims) -> None:
    """All laws of a head's spectrum; the null of its shape is drawn once for all heads."""
    from attnlaw.analysis.fit.describe import describe
    from attnlaw.analysis.fit.null import _null
    from attnlaw.spectra.spectrum import Spectrum

    rng = np.random.default_rng(0)
    decay = np.geomspace(1, 1 / 6, HEAD_SIZE)

    def root() -> np.ndarray:
        return np.linalg.qr(rng.standard_normal((WIDTH, HEAD_SIZE)) * decay, mode="r")

    spectra = [
        Spectrum(
            np.linalg.svd(root() @ root().T, compute_uv=False),
            (WIDTH, WIDTH),
            1.0,
            1.0,
            "cholesky",
            inner=HEAD_SIZE,
        )
        for _ in range(17)
    ]
    describe(spectra[0], 0)
    began = time.process_time()
    for spectrum in spectra[1:]:
        describe(spectrum, 0)
    each = (time.process_time() - began) / 16
    _null.cache_clear()
    began = time.process_time()
    describe(spectra[0], 0)
    alone = time.process_time() - began
    print(f"laws of a head: {1e3 * each:.0f} ms, with a null of its own {1e3 * alone:.0f} ms")
    claims.add(
        f"laws of LLaMA-7B's {HEADS:,} heads, CPU seconds, from 16 of them",
        f"{HEADS * each + alone:.0f} s",
        f"a null for each head: {HEADS * alone:.0f} s",
        alone / each,
        5.0,
    )


def many_tokens(claims: Claims) -> None:
    """The law of one token's output among 4096 random ones."""
    from attnlaw.theory.limit import sampler
    from attnlaw.theory.limit.inputs import RandomInputs
    from attnlaw.theory.limit.layer import AttentionLayer
    from attnlaw.theory.limit.sampler import output_law
    from attnlaw.theory.limit.wishart import streams

    layer = AttentionLayer(RandomInputs(4096), heads=2, width=1024)
    output_law(layer, 8, seed=0)
    began = time.process_time()
    output_law(layer, 400, seed=0)
    between = time.process_time()
    sampler._row_of_all(layer, 0, 4, streams(0), normalise=False)
    ended = time.process_time()
    ours, before = (between - began) / 400, (ended - between) / 4
    claims.add(
        "a draw of one token's output among 4096, width 1024, CPU milliseconds",
        f"{1e3 * ours:.1f} ms",
        f"from a root of all tokens: {1e3 * before:.0f} ms",
        before / ours,
        20.0,
    )


def monitored(claims: Claims) -> None:
    """A step that is not due, and a measurement in units of steps of training."""
    import torch

    from attnlaw.training import SpectralMonitor

    torch.set_num_threads(1)
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    module = torch.nn.TransformerEncoder(block, 6, enable_nested_tensor=False)
    optimiser = torch.optim.SGD(module.parameters(), 1e-3)
    tokens = torch.randn(16, 64, 256)

    def train() -> None:
        optimiser.zero_grad()
        module(tokens).square().mean().backward()
        optimiser.step()

    def seconds(run: object, times: int) -> float:
        run()
        began = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - began) / times

    with tempfile.TemporaryDirectory() as folder:
        monitor = SpectralMonitor(module, folder, every=10)
        monitor.step(0)
        idle = seconds(lambda: monitor.step(1), 10_000)
        taken = seconds(lambda: monitor.measure(1), 3)
    step = seconds(train, 3)
    claims.add(
        "a step that `SpectralMonitor` does not measure, CPU microseconds",
        f"{1e6 * idle:.1f} us",
        "no peer",
        1e6 * idle,
        50.0,
        least=False,
    )
    claims.add(
        "a measurement of `SpectralMonitor`, 6 x 256, in steps of training of 1,024 tokens",
        f"{taken:.2f} s",
        f"a step: {step:.2f} s",
        taken / step,
        6.0,
        least=False,
    )


def main() -> int:
    claims = Claims()
    start_up(claims)
    with threadpool_limits(1):
        head_laws(claims)
        many_tokens(claims)
        monitored(claims)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
