"""Entrywise errors: a kernel by its diagonal, a naive route, published exponents, the chaos of exp."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh
from scipy.special import iv, softmax

from attnlaw.core.errors import InputError
from attnlaw.spectra.entrywise import entrywise_errors, rank_within


def periodic(points: np.ndarray, a: int) -> np.ndarray:
    """`2 sum_l l^-a cos 2 pi l t` in closed form, t the distance of two points."""
    t = np.abs(points[:, None] - points)
    if a == 2:
        return 2 * np.pi**2 * (t**2 - t + 1 / 6)
    return -((2 * np.pi) ** 4) / 24 * (t**4 - 2 * t**3 + t**2 - 1 / 30)


def poisson(points: np.ndarray, q: float) -> np.ndarray:
    """`2 sum_l q^l cos 2 pi l t`."""
    angle = 2 * np.pi * (points[:, None] - points)
    return (1 - q * q) / (1 - 2 * q * np.cos(angle) + q * q) - 1


def test_a_kernel_matrix_by_its_leading_eigenvectors() -> None:
    """Of a positive semidefinite matrix the worst entry is on the diagonal: the top r pairs tell it."""
    K = periodic(np.random.default_rng(1).random(400), 2)
    (errors,) = entrywise_errors(K, [20])
    values, vectors = np.linalg.eigh(K)
    diagonal = np.diagonal(K) - vectors[:, -20:] ** 2 @ values[-20:]
    assert errors.largest == pytest.approx(diagonal.max(), rel=1e-10)
    # Reference values: 0.330042, 0.0239017 and the mean 0.1792567 of the diagonal, which is the tail.
    assert errors.largest == pytest.approx(0.330042, abs=5e-7)
    assert errors.rms == pytest.approx(0.0239017, abs=5e-8)
    assert errors.tail == pytest.approx(0.1792567, abs=5e-8)
    assert errors.tail == pytest.approx(diagonal.mean(), rel=1e-10)
    assert errors.coherence == pytest.approx(0.330042 / 0.1792567, rel=1e-5)


def test_against_a_naive_route() -> None:
    """Projections on eigenvectors of A^T A, rank by rank; ranks come back in the order of the asking."""
    rng = np.random.default_rng(0)
    A = softmax(3 * rng.standard_normal((20, 4)) @ rng.standard_normal((4, 30)), axis=1)
    vectors = np.linalg.eigh(A.T @ A)[1][:, ::-1]
    ranks = [7, 0, 3]
    for errors, rank in zip(entrywise_errors(A, ranks), ranks, strict=True):
        left = A - A @ vectors[:, :rank] @ vectors[:, :rank].T
        s = np.linalg.svd(left, compute_uv=False)
        assert errors.rank == rank
        assert errors.largest == pytest.approx(np.abs(left).max(), rel=1e-9)
        assert errors.rms == pytest.approx(np.sqrt(np.mean(left**2)), rel=1e-9)
        assert errors.tail == pytest.approx(s.sum() / np.sqrt(600), rel=1e-9)
        assert errors.largest <= errors.bound <= errors.tail * np.sqrt(600)


@pytest.mark.parametrize("error", [0.3, 0.05, 0.01, 1e-3, 1e-20])
def test_the_least_rank_by_trying_all(error: float) -> None:
    rng = np.random.default_rng(0)
    A = softmax(3 * rng.standard_normal((20, 4)) @ rng.standard_normal((4, 30)), axis=1)
    worst = [errors.largest for errors in entrywise_errors(A, range(20))]
    assert rank_within(A, error) == next((rank for rank, largest in enumerate(worst) if largest <= error), 20)
    assert rank_within(A) == rank_within(A, 0.01)


def test_what_round_off_leaves_has_no_coherence() -> None:
    rng = np.random.default_rng(0)
    low = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 30))
    full, beyond = entrywise_errors(low, [2, 3])
    assert full.coherence is not None
    assert beyond.coherence is None
    assert beyond.largest < 1e-13


@pytest.mark.parametrize(
    ("matrix", "ranks", "message"),
    [
        (np.eye(3), [4], "ranks: found 4, expected a whole number of at least 0 and of at most 3"),
        (np.zeros((2, 3, 3)), [1], r"found an array of shape \(2, 3, 3\), expected one matrix"),
        (np.full((2, 2), np.nan), [1], "expected one matrix of finite numbers"),
    ],
)
def test_bad_input_is_one_line(matrix: np.ndarray, ranks: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        entrywise_errors(matrix, ranks)


@pytest.mark.parametrize(
    ("kernel", "rank", "exponent"),
    [
        (lambda x: periodic(x, 2), lambda n: 2 * n**0.5, -0.5),
        (lambda x: periodic(x, 4), lambda n: 2 * n**0.25, -0.75),
        (lambda x: poisson(x, 0.6), lambda n: 2 * math.log(n) / math.log(1 / 0.6), -1.0),
    ],
    ids=["i^-2", "i^-4", "0.6^i"],
)
def test_the_worst_entry_falls_with_the_size(kernel, rank, exponent: float) -> None:
    """arXiv 2405.14494: as n^exponent up to a logarithm, 1/ln n = 0.2 of slope here, in single draws.

    The mean of the diagonal is below the population's tail, in expectation, and near it.
    """
    sizes = (125, 250, 500, 1000)
    errors = []
    for n in sizes:
        K = kernel(np.random.default_rng(n).random(n))
        r = round(rank(n))
        errors.append(entrywise_errors(K, [r])[0])
        assert 1 <= errors[-1].coherence <= 6
    slope = np.polyfit(np.log(sizes), np.log([error.largest for error in errors]), 1)[0]
    assert exponent - 0.3 < slope < exponent + 0.3
    if exponent == -0.5:
        # 2 sum_{l > r/2} l^-2, each frequency twice; one draw of n = 1000 points.
        tail = 2 * (np.pi**2 / 6 - sum(l**-2.0 for l in range(1, round(rank(1000)) // 2 + 1)))
        assert 0.85 * tail < errors[-1].tail < 1.05 * tail


def by_leading_pairs(K: np.ndarray, rank: int) -> tuple[float, float]:
    """The worst entry of a kernel matrix and the mean of its diagonal's error, by the leading pairs alone."""
    values, vectors = eigsh(K, k=rank)
    left = np.diagonal(K) - vectors**2 @ values
    return float(left.max()), float(left.mean())


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "rank", "exponent", "first"),
    [
        (lambda x: periodic(x, 2), lambda n: 2 * n**0.5, -0.56, 0.313),
        (lambda x: periodic(x, 4), lambda n: 2 * n**0.25, -0.80, None),
        (lambda x: poisson(x, 0.6), lambda n: 2 * math.log(n) / math.log(1 / 0.6), -1.20, None),
    ],
    ids=["i^-2", "i^-4", "0.6^i"],
)
def test_larger_kernels(kernel, rank, exponent: float, first: float | None) -> None:
    """n = 125 to 4000: exponents of single draws, whose worst entries scatter by a tenth or two."""
    sizes = (125, 250, 500, 1000, 2000, 4000)
    pairs = [by_leading_pairs(kernel(np.random.default_rng(n).random(n)), round(rank(n))) for n in sizes]
    slope = np.polyfit(np.log(sizes), np.log([worst for worst, _ in pairs]), 1)[0]
    assert slope == pytest.approx(exponent, abs=0.1)
    coherences = [worst / mean for worst, mean in pairs]
    assert all(1 <= coherence < (3.5 if exponent > -1 else np.inf) for coherence in coherences)
    if exponent == -0.56:
        assert pairs[0][0] == pytest.approx(first, rel=0.3)
        assert pairs[-1][0] == pytest.approx(0.0567, rel=0.3)
        assert pairs[-1][1] == pytest.approx(0.0300, rel=0.02)  # below the population's tail, .0315
        assert 2 * (np.pi**2 / 6 - sum(l**-2.0 for l in range(1, 64))) == pytest.approx(0.0315, abs=5e-5)
    if exponent == -1.20:
        assert pairs[-2][1] == pytest.approx(0.00139, rel=0.05)  # n = 2000; the tail is .00141
        r = round(rank(2000)) // 2
        assert 2 * 0.6 ** (r + 1) / 0.4 == pytest.approx(0.00141, abs=5e-6)


def largest_entries(dimension: int, n: int) -> np.ndarray:
    """`n max_i u_i^2` of the trailing half of the eigenvectors of exp(-|x - y|) on a sphere."""
    x = np.random.default_rng(dimension).standard_normal((n, dimension + 1))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    vectors = np.linalg.eigh(np.exp(-np.sqrt(np.maximum(2 - 2 * x @ x.T, 0))))[1]
    return n * (vectors[:, : n // 2] ** 2).max(axis=0)


@pytest.mark.long
@pytest.mark.parametrize(("dimension", "median", "most"), [(1, 817, 0.75), (2, 553, 0.72), (20, 14, 0.40)])
def test_trailing_eigenvectors_are_localised_in_low_dimension(dimension, median, most) -> None:
    """n = 1600, a single draw: half of all weight in one entry in dimension 1, 2 ln n/n in dimension 20."""
    entries = largest_entries(dimension, 1600)
    assert np.median(entries) == pytest.approx(median, rel=0.1)
    assert entries.max() == pytest.approx(most * 1600, rel=0.35)  # the largest of 800


def test_unbounded_eigenfunctions_leave_a_worst_entry() -> None:
    """Gaussian points and kernel: far points are alone, so the worst entry stays and the coherence grows."""
    errors = []
    for n in (125, 500):
        x = np.random.default_rng(n).standard_normal(n)
        K = np.exp(-((x[:, None] - x) ** 2) / 2)
        errors.append(entrywise_errors(K, [round(2 * math.log(n) / math.log(1 / 0.6)) // 4])[0])
    assert errors[1].tail < errors[0].tail / 2
    assert errors[1].coherence > 2 * errors[0].coherence > 10


@pytest.mark.long
def test_the_chaos_of_exp() -> None:
    """exp of Gaussian scores: rms after rank 1 + d is that of Hermite levels above 1, up to 1/d."""
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, 1500, 64)) / 64**0.25
    rank_one, level = entrywise_errors(np.exp(Q @ K.T), [1, 65])
    chaos = [math.sqrt(math.e * (math.e - sum(1 / math.factorial(j) for j in range(m + 1)))) for m in (0, 1)]
    assert chaos == pytest.approx([2.161, 1.397], abs=5e-4)
    # Corrections of order 1/d, and a heavy tail: exp of a Gaussian has kurtosis 114.
    assert 1 < rank_one.rms / chaos[0] < 1.12
    assert 0.97 < level.rms / chaos[1] < 1.06
    # 1.413 and 2.266 in another draw.
    assert (level.rms, rank_one.rms) == pytest.approx((1.413, 2.266), rel=0.05)
    Q, K = rng.standard_normal((2, 1500, 32)) / 32**0.25
    assert entrywise_errors(np.exp(Q @ K.T), [33])[0].rms / chaos[1] == pytest.approx(1.09, abs=0.05)
    # The worst case over scores of this size, by Chebyshev: two to three orders too large.
    size = float(np.abs(Q @ K.T).max())
    assert 2 * iv(np.arange(2, 60), size).sum() > 100 * chaos[1]
