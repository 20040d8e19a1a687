"""Readouts of attention features: published crossings and times, matrices, training by steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.readout import arrival_time, readout, training_loss
from attnlaw.theory.laws.tied_values import TiedValuesLaw

RIDGE, NOISE = 1e-4, 0.1


def error_of(beta: float, key_size: int, value_size: int) -> float:
    """arXiv 2610.10033, (D.1): 96 heads, 8192 tokens, gO 1.5."""
    law = MultiHeadLaw(beta, 96, 96 * key_size / 8192, 96 * value_size / 8192, 1.5)
    return readout(law, RIDGE, NOISE).coefficient_error


@pytest.mark.slow
def test_wide_values_win_above_the_published_temperature() -> None:
    crossing = brentq(lambda beta: error_of(beta, 64, 192) - error_of(beta, 128, 128), 0.3, 1.0)
    assert crossing == pytest.approx(0.559, abs=5e-4)  # published
    assert crossing == pytest.approx(0.55872, abs=5e-6)
    ratios = [
        error_of(beta, 64, 192) / error_of(beta, 128, 128) for beta in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
    ]
    assert ratios == pytest.approx([2.1400, 1.0785, 0.8552, 0.7748, 0.7393, 0.7223], abs=1.01e-4)


@pytest.mark.parametrize(
    ("ratio", "published", "digits"),
    [(1.0, 41.22, 41.224), (5 / (3 + 2 / 64), 7.80, 7.804), (106 * 64 / 4096, 7.76, 7.755)],
)
def test_published_arrival_times(ratio: float, published: float, digits: float) -> None:
    law = MultiHeadLaw(1.0, 64, ratio, ratio, 2.0)
    arrival = arrival_time(law, 0.1)
    assert arrival == pytest.approx(published, abs=5.1e-3)
    assert arrival == pytest.approx(digits, abs=5.1e-4)
    assert training_loss(law, [0.0, arrival]) == pytest.approx([1.0, 0.1], rel=1e-10)


def test_published_loss_of_a_long_training() -> None:
    loss = float(training_loss(MultiHeadLaw(1.0, 128, 2.0, 2.0, 2.0), 100.0))
    assert loss == pytest.approx(7.55e-5, abs=5e-8)
    assert loss == pytest.approx(7.39e-5, abs=0.58e-5)  # as they measured it


def test_published_difference_of_tied_values() -> None:
    """K = V minus grouped keys, all ratios 1/2: it changes its sign between 4 and 8 heads."""
    differences = [
        readout(TiedValuesLaw(1.0, h, 0.5, 0.5), RIDGE, NOISE).coefficient_error
        - readout(MultiHeadLaw(1.0, h, 0.5, 0.5, 0.5), RIDGE, NOISE).coefficient_error
        for h in (2, 4, 8, 16, 32)
    ]
    assert differences == pytest.approx([0.5049, 0.0602, -0.1593, -0.2673, -0.3207], abs=5.1e-5)


@pytest.mark.parametrize("law", [MultiHeadLaw(1.0, 8, 1.0, 1.0, 2.0), TiedValuesLaw(0.7, 4, 0.5, 0.8)])
def test_degrees_of_freedom_are_the_transform_below_zero(law: MultiHeadLaw | TiedValuesLaw) -> None:
    """`w = 1 - z g(z)` at `z = -lambda`; its slope by differences gives the error again."""
    ridge, step = 0.03, 1e-4
    w = [
        1 + penalty * law.mean * float(law.stieltjes(-penalty * law.mean).real)
        for penalty in (ridge, ridge - step, ridge + step)
    ]
    slope = (w[2] - w[1]) / (2 * step)
    ridge_fit = readout(law, ridge, 0.2)
    assert ridge_fit.degrees_of_freedom == pytest.approx(w[0], abs=1e-9)
    gO = law.output_ratio
    # The second difference of w over lambda^2 is of order one: the slope is good to the step squared over it.
    expected = 1 - w[0] / gO + (ridge / gO - 0.2) * slope
    assert ridge_fit.coefficient_error == pytest.approx(expected, rel=10 * (step / ridge) ** 2)


def explicit(law: MultiHeadLaw, tokens: int, ridge: float, noise: float) -> float:
    """Return the error of ridge regression on a matrix of this spectrum, with matrices alone."""
    width = int(law.output_ratio * tokens)
    rng = np.random.default_rng(1)
    U = np.linalg.qr(rng.standard_normal((tokens, tokens)))[0]
    V = np.linalg.qr(rng.standard_normal((width, tokens)))[0]
    values = law.quantile((np.arange(tokens) + 0.5) / tokens)
    F = U * np.sqrt(values) @ V.T
    solve = np.linalg.solve(F.T @ F + ridge * law.mean * np.eye(width), F.T)
    variance = noise * width * law.mean / tokens
    return float((((solve @ F - np.eye(width)) ** 2).sum() + variance * (solve**2).sum()) / width)


@pytest.mark.slow
def test_the_error_is_that_of_regression_on_a_matrix_of_this_spectrum() -> None:
    law = MultiHeadLaw(1.0, 8, 1.5, 1.5, 1.25)
    coarse, fine = (explicit(law, n, 0.05, 0.3) for n in (120, 240))
    expected = readout(law, 0.05, 0.3).coefficient_error
    assert fine == pytest.approx(expected, abs=abs(fine - coarse))
    assert abs(fine - coarse) < 0.02 * expected


@pytest.mark.slow
def test_the_loss_is_that_of_small_steps() -> None:
    """Gradient descent on `|F theta - target|^2/2`: what is left of a target in each direction."""
    law = MultiHeadLaw(1.0, 8, 1.5, 1.5, 1.25)
    x = law.quantile((np.arange(4000) + 0.5) / 4000) / law.mean
    step, time = 2e-3, 3.0
    left = np.ones_like(x)
    for _ in range(round(time / step)):
        left -= step * x * left
    # Euler's steps are off by `t x^2 step` in the exponent, most at the upper edge, where little is left.
    assert training_loss(law, time) == pytest.approx((left**2).mean(), rel=10 * step)


@pytest.mark.slow
def test_what_features_cannot_reach_is_never_learned() -> None:
    law = MultiHeadLaw(0.5, 8, 0.5, 0.5, 2.0)
    assert arrival_time(law, 0.4) is None
    assert training_loss(law, 1e9) == pytest.approx(0.5)
    assert arrival_time(law, 0.6) > 0


def test_a_law_without_an_output_is_refused() -> None:
    with pytest.raises(InputError, match="output_ratio"):
        readout(MultiHeadLaw(1.0, 4, 1.0), 0.1)
    with pytest.raises(InputError, match="ridge"):
        readout(MultiHeadLaw(1.0, 4, 1.0, 1.0, 1.0), 0.0)
