"""Outliers: which modes of a power law stand alone, and what is left of the spectrum beside them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.learn.outliers import find_outliers
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution

WEAK = Problem(1e-5, target=Target.power_law(1.0, 10**6), noise=0.5, weight_decay=0.005)


def gap_between(values: np.ndarray, weights: np.ndarray, a: float, low: int) -> float | None:
    """Where `sum p/(u-s)^2` is least between two neighbouring atoms, if a gap opens there (Biane)."""

    def blur(u: float) -> float:
        return float((weights / (u - values) ** 2).sum())

    left, right = values[low], values[low + 1]
    least = minimize_scalar(blur, bounds=(left, right), method="bounded", options={"xatol": 1e-9 * right})
    return float(least.x) if least.fun < 1 / a**2 else None


@pytest.mark.slow
@pytest.mark.parametrize("student", ["factorized", "direct"])
def test_a_weak_mode_inside_the_bulk_leaves_the_bulk(student: str) -> None:
    """The fourth mode has an overlap of 2% by the formula for spikes, but no gap parts it from the bulk."""
    prediction = state_evolution(Problem(**{**vars(WEAK), "student": student}))
    values, weights = WEAK.target.law.arrays
    a, b = prediction.noise_level.value, prediction.threshold.value if prediction.threshold else 0.0
    gaps = [gap_between(values, weights, a, values.size - 2 - k) for k in range(5)]
    alone = next(k for k, gap in enumerate(gaps) if gap is None)
    assert [outlier.target for outlier in prediction.outliers] == pytest.approx(values[::-1][:alone])
    # The bulk ends where the sum passes 1/a^2 below the last gap, at x(u) = u + a^2 sum p/(u-s).
    edge = brentq(
        lambda u: (weights / (u - values) ** 2).sum() - 1 / a**2,
        values[-alone - 1] * (1 + 1e-9),
        gaps[alone - 1],
        xtol=1e-12,
    )
    top = prediction.shrinkage * (edge + a**2 * (weights / (edge - values)).sum() - b)
    low, high = prediction.edges
    assert high == pytest.approx(top, rel=1e-9)
    assert low == 0.0 if student == "factorized" else low < 0
    assert all(outlier.location > high for outlier in prediction.outliers)


def test_a_mode_is_seen_where_a_random_matrix_shows_it() -> None:
    target, a = Target.power_law(1.0, 900), 9.0
    noise = np.random.default_rng(3).normal(size=(900, 900)) / np.sqrt(900)
    seen = np.linalg.eigvalsh(np.diag(target.quantiles(900)) + a * (noise + noise.T) / np.sqrt(2))
    outliers = find_outliers(target, a, 0.0, 1.0)
    assert len(outliers) == 2
    # An outlier of overlap w fluctuates by a sqrt(2 w/d): four of them.
    for outlier, place in zip(outliers, seen[::-1], strict=False):
        assert place == pytest.approx(outlier.location, abs=4 * a * np.sqrt(2 * outlier.overlap / 900))


def test_bayes_student_shrinks_an_outlier_as_the_oracle_does() -> None:
    """The oracle keeps the eigenvectors v of `S* + a Z` and gives each the value `v^T S* v`."""
    d = 800
    target = Target.marchenko_pastur(0.5).with_spikes(8.0)
    prediction = state_evolution(Problem(0.3, target=target, noise=0.5, student="bayes"))
    (outlier,) = prediction.outliers
    a, values = prediction.noise_level.value, target.quantiles(d)
    noise = np.random.default_rng(5).normal(size=(d, d)) / np.sqrt(d)
    seen, vectors = np.linalg.eigh(np.diag(values) + a * (noise + noise.T) / np.sqrt(2))
    # Fluctuations are of order a/sqrt(d): four of them.
    spread = 4 * a / np.sqrt(d)
    assert vectors[:, -1] ** 2 @ values == pytest.approx(outlier.location, abs=spread)
    assert vectors[-1, -1] ** 2 == pytest.approx(outlier.overlap, abs=spread)
    # The denoiser at the place where the noisy matrix shows the spike, by the Stieltjes transform.
    (shown,) = find_outliers(target, a, None, 1.0)
    assert seen[-1] == pytest.approx(shown.location, abs=spread)
    g = FreeConvolution(target.law, a).stieltjes(np.array([shown.location])).real[0]
    assert outlier.location == pytest.approx(shown.location - 2 * a**2 * g, rel=1e-9)


def test_the_overlap_is_how_fast_an_outlier_moves_with_its_spike() -> None:
    """First-order perturbation: the derivative of an eigenvalue along v v^T is the squared overlap with v."""
    base, a, step = Target.marchenko_pastur(0.5), 3.0, 1e-4
    low, here, high = (
        find_outliers(base.with_spikes(s), a, 0.3, 1.0)[0] for s in (6.0 - step, 6.0, 6.0 + step)
    )
    # A central difference: its error is step^2 times a third derivative of order 1, round-off 1e-12.
    assert here.overlap == pytest.approx((high.location - low.location) / (2 * step), abs=1e-7)
    assert 0.5 < here.overlap < 0.8


@pytest.mark.slow
def test_the_overlap_of_a_weak_spike_is_that_of_a_random_matrix() -> None:
    d, a, seeds = 600, 3.0, 12
    target = Target.marchenko_pastur(0.5).with_spikes(6.0)
    (outlier,) = find_outliers(target, a, None, 1.0)
    overlaps = []
    for seed in range(seeds):
        noise = np.random.default_rng(seed).normal(size=(d, d)) / np.sqrt(d)
        _, vectors = np.linalg.eigh(np.diag(target.quantiles(d)) + a * (noise + noise.T) / np.sqrt(2))
        overlaps.append(vectors[-1, -1] ** 2)
    error = np.std(overlaps, ddof=1) / np.sqrt(seeds)
    assert np.mean(overlaps) == pytest.approx(outlier.overlap, abs=4 * error)
    assert 4 * error < 0.1
    assert outlier.overlap < 0.8


def test_bayes_student_lists_modes_once() -> None:
    prediction = state_evolution(Problem(**{**vars(WEAK), "student": "bayes"}))
    assert len(prediction.outlier_locations) >= 3
    assert len(prediction.bulk) == 1
    assert min(prediction.outlier_locations) > prediction.top_edge


def test_only_a_threshold_hides_an_outlier_below_zero() -> None:
    target, a = Target.marchenko_pastur(9.0).with_spikes(0.01), 0.3
    (below,) = find_outliers(target, a, None, 1.0)
    assert below.location < 0
    assert find_outliers(target, a, 0.0, 1.0) == ()
