"""Effective directions: the table of a small spectrum, a search by hand, and the bound from below."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest

from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.spectrum_adaptive import (
    best_index,
    effective_directions,
    log_contribution,
    log_truncations,
)


def spectrum_of(values) -> Spectrum:
    ordered = np.sort(np.asarray(values, dtype=float))[::-1]
    return Spectrum(ordered, (ordered.size, ordered.size), norm_21=0.0, norm_11=0.0, route="svd")


def test_a_small_spectrum():
    """N = 256, scale .01: C(0), C(1), C(2) = 32, 17.002537, 13.741043, B = 10.24, r = 0."""
    spectrum, log_scale = spectrum_of([4, 2, 1, 0.5]), log(0.01)
    curve = np.exp(log_contribution(np.array([0.0, 1.0, 2.0]), spectrum, log_scale, 256))
    np.testing.assert_allclose(curve, [32, 17.002537, 13.741043], atol=5e-7)
    assert exp(log_truncations(spectrum, log_scale, 256).min()) == pytest.approx(10.24, rel=1e-14)
    assert effective_directions(spectrum, log_scale, 256) == 0


def test_the_bound_is_below_every_index_and_the_count_is_found_by_hand():
    generator = np.random.default_rng(0)
    for _ in range(300):
        rank, n = int(generator.integers(1, 40)), int(generator.integers(40, 400))
        spectrum = spectrum_of(np.exp(generator.normal(0, generator.uniform(0.1, 3), rank)))
        scale = exp(generator.normal(-2, 3))
        values = [*spectrum.values, 0.0]
        by_hand = [max(sqrt(n * r), n * scale * values[r]) for r in range(rank + 1)]
        np.testing.assert_allclose(np.exp(log_truncations(spectrum, log(scale), n)), by_hand, rtol=1e-12)
        count = effective_directions(spectrum, log(scale), n)
        assert by_hand[count] <= min(by_hand) * (1 + 1e-12)
        p = best_index(spectrum, log(scale), n)
        least = log_contribution(np.array([p]), spectrum, log(scale), n)[0]
        assert log(min(by_hand)) <= least + 1e-12


def test_ends():
    spectrum = spectrum_of([3.0, 1.0])
    assert effective_directions(spectrum, -np.inf, 16) == 0
    assert effective_directions(spectrum, 100.0, 16) == 2
    # Both terms are 4 at r = 1, and at r = 2 the first is larger: the smaller of equal choices counts.
    assert effective_directions(spectrum_of([1.0, 1.0, 1.0]), log(0.25), 16) == 0
