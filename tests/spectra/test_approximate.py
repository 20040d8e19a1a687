"""Approximate spectra against exact ones, with the errors that they state themselves."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from attnlaw.spectra.approximate import _gauss_rules, _radau_rules, approximate_spectrum
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.krylov import lanczos
from attnlaw.spectra.spectrum import Spectrum

INDICES = (0.1, 0.5, 1.0, 1.5)
SEEDS = range(12)


def _rotated(values: np.ndarray, cols: int, seed: int) -> np.ndarray:
    """A matrix with the given singular values between random orthonormal factors."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((values.size, values.size)))[0]
    right = np.linalg.qr(rng.standard_normal((cols, values.size)))[0]
    return (left * values) @ right.T


def _gaussian(rows: int, cols: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, cols))


def _low_rank() -> np.ndarray:
    return _rotated(np.where(I[:300] <= 20, I[:300] ** -0.3, 0.0), 320, 10)


I = np.arange(1.0, 601)
MATRICES = {
    "Gaussian, wide": lambda: _gaussian(300, 420, 1),
    "Gaussian, tall": lambda: _gaussian(450, 300, 2),
    "power law 1/2": lambda: _rotated(I[:300] ** -0.5, 320, 3),
    "power law 1": lambda: _rotated(I[:300] ** -1.0, 320, 4),
    "power law 3/2": lambda: _rotated(I[:300] ** -1.5, 320, 5),
}
# Values below what the steps resolve, or below the tolerance of ranks, or none at all.
DIFFICULT = {
    "Gaussian, square": lambda: _gaussian(300, 300, 6),
    "power law 2": lambda: _rotated(I[:300] ** -2, 320, 6),
    "geometric, beyond the tolerance": lambda: _rotated(5 * np.exp(-I / 30), 600, 7),
    "geometric": lambda: _rotated(np.exp(-I / 50), 600, 8),
    "rank 20": _low_rank,
    "rank 20 and noise": lambda: _low_rank() + 1e-4 * _gaussian(300, 320, 9),
    "rank 20 and noise about the tolerance": lambda: _low_rank() + 3e-9 * _gaussian(300, 320, 12),
    "rank 200": lambda: _rotated(np.where(I[:300] <= 200, I[:300] ** -0.3, 0.0), 320, 11),
}


def _schatten(spectrum: Spectrum, p: float) -> float:
    return spectrum.schatten_sum(p)


QUANTITIES = {f"S_{p}": partial(_schatten, p=p) for p in (0.0, 0.1, 0.5, 1.0, 1.5)} | {
    "effective rank": lambda spectrum: spectrum.effective_rank
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_estimates_lie_within_the_errors_that_they_state(name: str) -> None:
    """Root mean square of error / stated error over seeds and indices: about one, and never large.

    The standard error comes from 16 probes, so a score is a t variable with 15 degrees of freedom: its
    variance is 1.15 and that of its square 3.4, so that the mean square of 12 seeds has the standard error
    0.53 (the indices of a seed go together): 1.64^2 lies 2.9 of them above. The largest stays below 5.1 with
    probability 0.998. Stated quadrature errors are bounds, so the scores may be much smaller, never larger.
    """
    matrix = MATRICES[name]()
    exact = matrix_spectrum(matrix)
    scores = []
    for seed in SEEDS:
        estimate = approximate_spectrum(matrix, seed)
        for p in INDICES:
            error = estimate.error(lambda spectrum, p=p: _schatten(spectrum, p))
            assert error is not None
            scores.append((estimate.schatten_sum(p) - exact.schatten_sum(p)) / error)
    assert np.sqrt(np.mean(np.square(scores))) < 1.64
    assert np.max(np.abs(scores)) < 5.1


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFICULT)
def test_errors_hold_where_the_steps_do_not_resolve_the_spectrum(name: str) -> None:
    """A t variable with 15 degrees of freedom exceeds 3 in one case of a hundred; brackets are never left.

    The allowance is round-off: a value of zero is found as the root of the Gram matrix's.
    """
    matrix = DIFFICULT[name]()
    exact = matrix_spectrum(matrix)
    scores = []
    for seed in range(5):
        estimate = approximate_spectrum(matrix, seed)
        for quantity in QUANTITIES.values():
            error = estimate.error(quantity)
            assert error is not None
            scores.append((quantity(estimate) - quantity(exact)) / (error + 1e-9 * quantity(exact)))
    assert np.mean(np.abs(scores) <= 3) >= 0.95
    assert np.max(np.abs(scores)) < 5.5


@pytest.mark.parametrize("name", MATRICES)
def test_errors_are_small_where_the_steps_resolve_the_spectrum(name: str) -> None:
    """Steep power laws reach below the resolution: there ranks are less certain than sums."""
    estimate = approximate_spectrum(MATRICES[name]())
    relative = {
        q: estimate.error(QUANTITIES[q]) / QUANTITIES[q](estimate) for q in ("S_0.0", "S_0.5", "S_1.0")
    }
    steep = name == "power law 3/2"
    assert relative["S_1.0"] < 0.003
    assert relative["S_0.5"] < (0.05 if steep else 0.003)
    assert relative["S_0.0"] < (0.15 if steep else 0.003)


def test_a_rank_that_cannot_be_told_says_so_and_one_that_can_is_told() -> None:
    rank = QUANTITIES["S_0.0"]
    matrix = DIFFICULT["geometric, beyond the tolerance"]()
    smooth, exact = approximate_spectrum(matrix), matrix_spectrum(matrix).numerical_rank
    assert exact < 500
    assert smooth.error(rank) > smooth.numerical_rank - exact > 100
    assert approximate_spectrum(DIFFICULT["rank 200"]()).error(rank) < 3


@pytest.mark.parametrize("steps", [2, 5, 8])
def test_the_two_rules_bracket_a_sum_over_atoms(steps: int) -> None:
    """Against the atoms: powers lie between the rules, moments agree to the degree of each, and the weight at
    zero is the least of sum w q(x)^2 over polynomials with q(0) = 1."""
    rng = np.random.default_rng(steps)
    atoms, start = rng.uniform(0.001, 1.0, 40), rng.standard_normal(40)
    run = lanczos(lambda block: atoms[:, None] * block, start[:, None], steps)
    (gauss,), (gauss_weights,) = _gauss_rules(run)
    (radau,), (radau_weights,) = _radau_rules(run, 1e-16)
    for power in (0.02, 0.25, 0.5, 0.75, 0.98):
        low, high = radau_weights @ radau**power, gauss_weights @ gauss**power
        assert low < start**2 @ atoms**power < high
    for degree in range(2 * steps + 1):
        moment = pytest.approx(start**2 @ atoms**degree, rel=1e-12)
        assert radau_weights @ radau**degree == moment
        assert degree == 2 * steps or gauss_weights @ gauss**degree == moment
    powers = np.abs(start)[:, None] * np.vander(atoms, steps + 1, increasing=True)
    least = np.linalg.lstsq(powers[:, 1:], -powers[:, 0])[1]
    assert radau[-1] == 0
    assert radau_weights[-1] == pytest.approx(least[0], rel=1e-8)


@pytest.mark.parametrize("name", MATRICES)
def test_what_is_known_exactly_comes_out_exactly(name: str) -> None:
    matrix = MATRICES[name]()
    exact, estimate = matrix_spectrum(matrix), approximate_spectrum(matrix)
    assert estimate.numerical_rank == exact.numerical_rank
    assert estimate.frobenius == pytest.approx(exact.frobenius, rel=1e-10)
    assert estimate.norm_21 == exact.norm_21
    assert estimate.norm_11 == exact.norm_11
    assert estimate.multiplicities is not None
    assert (
        abs(estimate.spectral - exact.spectral)
        <= estimate.multiplicities.spectral_error + 1e-12 * exact.spectral
    )
    assert estimate.condition is None


def test_errors_of_a_flat_spectrum_are_nothing() -> None:
    """All singular values equal: every probe sees the same, whatever its signs."""
    spectrum = approximate_spectrum(
        3.0 * np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))[0]
    )
    assert spectrum.nuclear == pytest.approx(900.0, rel=1e-10)
    assert spectrum.effective_rank == pytest.approx(300.0, rel=1e-10)


def test_a_zero_matrix_and_extreme_scales() -> None:
    zero = approximate_spectrum(np.zeros((300, 310)))
    assert zero.spectral == zero.nuclear == 0.0
    matrix = MATRICES["power law 1"]()
    plain, scaled = approximate_spectrum(matrix), approximate_spectrum(matrix * 2.0**-700)
    assert scaled.nuclear == pytest.approx(plain.nuclear * 2.0**-700, rel=1e-13)
    error = plain.error(lambda spectrum: spectrum.nuclear)
    assert scaled.error(lambda spectrum: spectrum.nuclear) == pytest.approx(error * 2.0**-700, rel=1e-9)


def test_the_same_seed_gives_the_same_spectrum() -> None:
    first, second = (approximate_spectrum(MATRICES["power law 1"](), seed=7) for _ in range(2))
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
    spectrum = approximate_spectrum(_rotated(values, 320, seed), seed)
    assert spectrum.multiplicities is not None
    assert 1e-9 < spectrum.multiplicities.spectral_error < 1e-3
    assert np.min(np.abs(values - spectrum.spectral)) <= spectrum.multiplicities.spectral_error


def test_a_separated_largest_value_is_known_to_round_off() -> None:
    values = np.concatenate([[4.0], np.linspace(1.0, 0.01, 299)])
    spectrum = approximate_spectrum(_rotated(values, 320, 0))
    assert spectrum.multiplicities is not None
    assert spectrum.spectral == pytest.approx(4.0, rel=1e-13)
    assert spectrum.multiplicities.spectral_error < 1e-12


@pytest.mark.parametrize("rank", [1, 3, 20])
def test_a_matrix_of_low_rank_is_found_whole(rank: int) -> None:
    """Lanczos reaches an invariant space at once, and round-off behind it must add nothing."""
    values = np.linspace(2.0, 1.0, rank)
    spectrum = approximate_spectrum(_rotated(np.concatenate([values, np.zeros(300 - rank)]), 320, 1))
    assert spectrum.spectral == pytest.approx(2.0, rel=1e-12)
    assert spectrum.nuclear == pytest.approx(values.sum(), rel=1e-6)
