"""Approximate spectra against exact ones, with the errors that they state themselves."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.lanczos import approximate_spectrum
from attnlaw.spectra.spectrum import Spectrum

INDICES = (0.1, 0.5, 1.0, 1.5)
SEEDS = range(24)


def _rotated(values: np.ndarray, cols: int, seed: int) -> np.ndarray:
    """A matrix with the given singular values between random orthonormal factors."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((values.size, values.size)))[0]
    right = np.linalg.qr(rng.standard_normal((cols, values.size)))[0]
    return (left * values) @ right.T


MATRICES = {
    "Gaussian, wide": np.random.default_rng(1).standard_normal((300, 420)),
    "Gaussian, tall": np.random.default_rng(2).standard_normal((450, 300)),
    "power law 1/2": _rotated(np.arange(1.0, 301) ** -0.5, 320, 3),
    "power law 1": _rotated(np.arange(1.0, 301) ** -1.0, 320, 4),
    "power law 3/2": _rotated(np.arange(1.0, 301) ** -1.5, 320, 5),
}


def _schatten(spectrum: Spectrum, p: float) -> float:
    return spectrum.schatten_sum(p)


@pytest.mark.parametrize("name", MATRICES)
def test_estimates_lie_within_the_errors_that_they_state(name: str) -> None:
    """Root mean square of error / stated error over seeds and indices: about one, and never large.

    The standard error comes from 16 probes, so a score is a t variable with 15 degrees of freedom: its
    variance is 1.15, and over 24 seeds the largest stays below 5.5 with probability 0.998. Stated quadrature
    errors are bounds, so the scores may be much smaller, never larger.
    """
    matrix = MATRICES[name]
    exact = matrix_spectrum(matrix)
    scores = []
    for seed in SEEDS:
        found = approximate_spectrum(matrix, seed)
        for p in INDICES:
            error = found.error(lambda spectrum, p=p: _schatten(spectrum, p))
            assert error is not None
            scores.append((found.schatten_sum(p) - exact.schatten_sum(p)) / error)
    assert np.sqrt(np.mean(np.square(scores))) < 1.5
    assert np.max(np.abs(scores)) < 5.5


@pytest.mark.parametrize("name", MATRICES)
def test_what_is_known_exactly_comes_out_exactly(name: str) -> None:
    exact, found = matrix_spectrum(MATRICES[name]), approximate_spectrum(MATRICES[name])
    assert found.numerical_rank == exact.numerical_rank
    assert found.frobenius == pytest.approx(exact.frobenius, rel=1e-10)
    assert found.norm_21 == exact.norm_21
    assert found.norm_11 == exact.norm_11
    assert found.multiplicities is not None
    assert (
        abs(found.spectral - exact.spectral) <= found.multiplicities.spectral_error + 1e-12 * exact.spectral
    )
    assert found.condition is None


def test_errors_of_a_flat_spectrum_are_nothing() -> None:
    """All singular values equal: every probe sees the same, whatever its signs."""
    found = approximate_spectrum(3.0 * np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))[0])
    assert found.nuclear == pytest.approx(900.0, rel=1e-10)
    assert found.effective_rank == pytest.approx(300.0, rel=1e-10)


def test_a_zero_matrix_and_extreme_scales() -> None:
    zero = approximate_spectrum(np.zeros((300, 310)))
    assert zero.spectral == zero.nuclear == 0.0
    matrix = MATRICES["power law 1"]
    plain, scaled = approximate_spectrum(matrix), approximate_spectrum(matrix * 2.0**-700)
    assert scaled.nuclear == pytest.approx(plain.nuclear * 2.0**-700, rel=1e-13)
    error = plain.error(lambda spectrum: spectrum.nuclear)
    assert scaled.error(lambda spectrum: spectrum.nuclear) == pytest.approx(error * 2.0**-700, rel=1e-9)


def test_the_same_seed_gives_the_same_spectrum() -> None:
    first, second = (approximate_spectrum(MATRICES["power law 1"], seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.counts, second.counts)


def test_small_matrices_are_factorised() -> None:
    """Up to twice the deflated directions nothing would be gained."""
    assert approximate_spectrum(np.eye(128)).multiplicities is None
    assert approximate_spectrum(np.eye(129)).multiplicities is not None


@pytest.mark.parametrize("seed", range(6))
def test_a_singular_value_lies_within_the_error_of_the_largest(seed: int) -> None:
    """Values so close that 40 steps do not tell them apart: the error must say so, and hold."""
    values = 1.0 + 1e-3 * np.random.default_rng(seed).random(300)
    found = approximate_spectrum(_rotated(values, 320, seed), seed)
    assert found.multiplicities is not None
    assert 1e-9 < found.multiplicities.spectral_error < 1e-3
    assert np.min(np.abs(values - found.spectral)) <= found.multiplicities.spectral_error


def test_a_separated_largest_value_is_known_to_round_off() -> None:
    values = np.concatenate([[4.0], np.linspace(1.0, 0.01, 299)])
    found = approximate_spectrum(_rotated(values, 320, 0))
    assert found.multiplicities is not None
    assert found.spectral == pytest.approx(4.0, rel=1e-13)
    assert found.multiplicities.spectral_error < 1e-12


@pytest.mark.parametrize("rank", [1, 3, 20])
def test_a_matrix_of_low_rank_is_found_whole(rank: int) -> None:
    """Lanczos reaches an invariant space at once, and round-off behind it must add nothing."""
    values = np.linspace(2.0, 1.0, rank)
    found = approximate_spectrum(_rotated(np.concatenate([values, np.zeros(300 - rank)]), 320, 1))
    assert found.spectral == pytest.approx(2.0, rel=1e-12)
    assert found.nuclear == pytest.approx(values.sum(), rel=1e-6)
