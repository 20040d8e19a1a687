"""The families of runs whose generalization gaps are to be ranked: tasks, and factors that runs differ in.

| family | task | runs of a seed | ends |
|---|---|---|---|
| digits | handwritten digits, 8 rows of 8 pixels as tokens | 128 | loss below .02, or 1000 steps of 50 |
| mod | a + b mod 29 from the tokens a, b | 32 | 1500 steps of the whole training set |
| bytes | a byte of the Python standard library from the 16 before, 48 classes | 16 | .05, 2000 of 100 |
| causal | the next byte at each of 16 positions, 48 symbols | 32 | .8, 2000 of 50 |

Every seed draws its own training set. The inputs of D are neither training nor test inputs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnlaw.training import decoder as byte_corpus

# 1797 lines of 64 pixels from 0 to 16 and a label: the test part of E. Alpaydin and C. Kaynak, Optical
# Recognition of Handwritten Digits, UCI Machine Learning Repository (CC BY 4.0), as scikit-learn ships it.
DIGITS = Path(__file__).parent / "digits.csv.gz"
SYMBOLS = 48  # the 47 most common bytes, and one for all others
CONTEXT = 16
MODULUS = 29
D_INPUTS = 200
TEST_WINDOWS = 2000

WIDTH = (32, 64)
DECAY = (0.0, 1.0)
RATE = (1e-3, 4e-3)
DROPOUT = (0.0, 0.3)


@dataclass(frozen=True)
class Family:
    """A task and how runs of it are trained: one for each combination of the values of its `factors`."""

    name: str
    classes: int
    tokens: int
    seeds: tuple[int, ...]
    factors: dict[str, tuple[float, ...]]
    steps: int
    batch: int | None  # None: the whole training set
    loss: float | None  # training ends below it
    causal: bool = False


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="digits",
            classes=10,
            tokens=8,
            seeds=(0, 1),
            factors={
                "n": (100, 400),
                "decay": DECAY,
                "width": WIDTH,
                "depth": (1, 3),
                "rate": RATE,
                "noise": (0.0, 0.2),
                "dropout": DROPOUT,
            },
            steps=1000,
            batch=50,
            loss=0.02,
        ),
        Family(
            name="mod",
            classes=MODULUS,
            tokens=2,
            seeds=(0, 1),
            factors={
                "n": (420, 600),
                "decay": DECAY,
                "width": WIDTH,
                "rate": (2e-3, 6e-3),
                "draw": (0, 1),
            },
            steps=1500,
            batch=None,
            loss=None,
        ),
        Family(
            name="bytes",
            classes=SYMBOLS,
            tokens=CONTEXT,
            seeds=(0,),
            factors={"n": (400,), "decay": DECAY, "width": WIDTH, "depth": (1, 2), "rate": RATE},
            steps=2000,
            batch=100,
            loss=0.05,
        ),
        Family(
            name="causal",
            classes=SYMBOLS,
            tokens=CONTEXT,
            seeds=(0, 1),
            factors={
                "n": (200,),
                "decay": DECAY,
                "width": WIDTH,
                "depth": (1, 2),
                "rate": RATE,
                "dropout": DROPOUT,
            },
            steps=2000,
            batch=50,
            loss=0.8,
            causal=True,
        ),
    )
}


@dataclass(frozen=True)
class Run:
    """One combination of the factors of a family for one seed; `draw` is for runs that are alike else."""

    family: str
    seed: int
    number: int
    n: int
    width: int
    decay: float
    rate: float
    depth: int = 1
    noise: float = 0.0
    dropout: float = 0.0
    draw: int = 0

    @property
    def name(self) -> str:
        return f"{self.family}-seed-{self.seed}-run-{self.number:03d}"


def runs_of(family: Family, seed: int) -> list[Run]:
    """All combinations of the family's factors, n varying slowest."""
    values = itertools.product(*family.factors.values())
    return [
        Run(family.name, seed, number, **dict(zip(family.factors, chosen, strict=True)))
        for number, chosen in enumerate(values)
    ]


@dataclass(frozen=True)
class Data:
    """Inputs (floats n x T x 8, or ids n x T) with their labels (n, or n x T), and the inputs of D."""

    inputs: Tensor
    labels: Tensor
    held_out: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def data_of(run: Run) -> Data:
    """The examples of a run: the same for all runs of its seed that have its n and its noise."""
    inputs, labels, held_out, test = POOLS[run.family](run)
    rng = np.random.default_rng([run.seed, 1])
    clean = labels[: run.n]
    flipped = torch.from_numpy(rng.random(clean.shape) < run.noise)
    random = torch.from_numpy(rng.integers(0, FAMILIES[run.family].classes, clean.shape))
    return Data(
        inputs=inputs[: run.n],
        labels=torch.where(flipped, random, clean),
        held_out=inputs[held_out],
        test_inputs=inputs[test],
        test_labels=labels[test],
    )


Pool = tuple[Tensor, Tensor, slice, slice]  # inputs, labels, which are for D, which for the test error


def _digits(run: Run) -> Pool:
    digits = torch.from_numpy(np.loadtxt(DIGITS, delimiter=","))
    digits = digits[np.random.default_rng(run.seed).permutation(len(digits))]
    images = digits[:, :-1].unflatten(1, (8, 8)).float() / 8 - 1
    return images, digits[:, -1].long(), slice(400, 600), slice(600, None)


def _sums(run: Run) -> Pool:
    pairs = torch.tensor(list(itertools.product(range(MODULUS), repeat=2)))
    pairs = pairs[np.random.default_rng(run.seed).permutation(len(pairs))]
    return pairs, pairs.sum(dim=1) % MODULUS, slice(-100, None), slice(run.n, -100)


def _byte_after(run: Run) -> Pool:
    windows, held_out, test = _windows(run)
    return windows[:, :-1], windows[:, -1], held_out, test


def _next_bytes(run: Run) -> Pool:
    windows, held_out, test = _windows(run)
    return windows[:, :-1], windows[:, 1:], held_out, test


def _windows(run: Run) -> tuple[Tensor, slice, slice]:
    """Windows of 17 bytes that do not overlap, drawn by the seed, as symbols."""
    symbols = _symbols()
    count = run.n + D_INPUTS + TEST_WINDOWS
    places = np.random.default_rng(run.seed).choice(len(symbols) // (CONTEXT + 1), count, replace=False)
    drawn = symbols[places[:, None] * (CONTEXT + 1) + np.arange(CONTEXT + 1)]
    end = run.n + D_INPUTS
    return torch.from_numpy(drawn), slice(run.n, end), slice(end, None)


@cache
def _symbols() -> np.ndarray:
    """The standard library's bytes by their rank among bytes, those from SYMBOLS - 1 on as one."""
    files = sorted(byte_corpus.source_files(held_out=False) + byte_corpus.source_files(held_out=True))
    text = byte_corpus.read_bytes(files)
    ranks = np.argsort(np.argsort(-np.bincount(text, minlength=256), kind="stable"))
    return np.minimum(ranks, SYMBOLS - 1)[text].astype(np.int64)


POOLS = {"digits": _digits, "mod": _sums, "bytes": _byte_after, "causal": _next_bytes}
