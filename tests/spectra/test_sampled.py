"""(1,1) norms from a sample of columns against the sum of every entry."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.spectra import factored as sampled
from attnlaw.spectra.factored import product_spectrum, sampled_absolute_sum, spectrum_and_roots


def factors(spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Thin factors whose rows and columns differ in size by `spread` in the logarithm."""
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((500, 8)), rng.standard_normal((8, 700))
    sizes = np.exp(spread * rng.standard_normal(500)), np.exp(spread * rng.standard_normal(700))
    return left * sizes[0][:, None], right * sizes[1]


def lengths(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.linalg.norm(left @ right, axis=0)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_estimates_scatter_about_every_entry_by_their_standard_error(spread):
    left, right = factors(spread)
    exact = np.abs(left @ right).sum()
    estimates = [sampled_absolute_sum(left, right, lengths(left, right), seed) for seed in range(60)]
    away = np.array([(estimate.value - exact) / estimate.error for estimate in estimates])
    assert all(0 < estimate.error <= 0.005 * estimate.value for estimate in estimates)
    # 60 normal numbers: the mean within 4 standard errors of 0, the variance within 4 of 1.
    assert abs(away.mean()) < 4 / 60**0.5
    assert abs((away**2).mean() - 1) < 4 * (2 / 60) ** 0.5


def test_the_same_seed_draws_the_same_columns():
    left, right = factors(0.5)
    first, two, other = (sampled_absolute_sum(left, right, lengths(left, right), seed) for seed in (1, 1, 2))
    assert first == two != other


def test_where_columns_do_not_agree_every_entry_is_summed(monkeypatch):
    monkeypatch.setattr(sampled, "ACCURACY", 1e-9)
    left, right = factors(1.0)
    estimate = sampled_absolute_sum(left, right, lengths(left, right), 0)
    assert estimate.error is None
    assert estimate.value == pytest.approx(np.abs(left @ right).sum(), rel=1e-13)


def test_zeros_and_scales_are_kept():
    left, right = factors(0.5)
    assert sampled_absolute_sum(left * 0, right, np.zeros(700), 0).value == 0
    spectrum = spectrum_and_roots(left * 1e80, right, None, seed=3)[0]
    unit = spectrum_and_roots(left, right, None, seed=3)[0]
    assert spectrum.norm_11 == pytest.approx(1e80 * unit.norm_11, rel=1e-12)
    assert spectrum.norm_11_error == pytest.approx(1e80 * unit.norm_11_error, rel=1e-9)
    exact = product_spectrum(left, right)
    assert exact.norm_11_error is None
    assert abs(unit.norm_11 - exact.norm_11) < 5 * unit.norm_11_error
    assert unit.norm_21 == exact.norm_21
