"""Hardmax labels: the published value and ours by one quadrature, and message passing with noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from oracles.plain_convolution import integral
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm
from theory.learn.sign_messages import K, estimation_error

from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.target import Target

pytestmark = pytest.mark.slow
RANK, ALPHA = 0.5, 0.3122216  # one row of SE_hardmax_rho=0.5.csv, published with arXiv 2506.01582
SECOND_MOMENT = 1 + RANK


def theory(noise: float) -> float:
    problem = Problem(
        alpha=ALPHA,
        tokens=2,
        noise=noise,
        output="hardmax",
        student="bayes",
        target=Target.marchenko_pastur(RANK),
    )
    return state_evolution(problem).estimation_error.value


def left_over(a: float) -> float:
    """Return the error of the Bayes denoiser for noise of width a."""
    return SECOND_MOMENT - integral(RANK, a, lambda x, g: (x - 2 * a * a * g.real) ** 2)


def information(E: float, bivariate: bool, order: int = 36) -> float:
    """Return qhat at the error E without noise, by Gauss-Hermite quadrature over the two known fields.

    `bivariate` puts the density of both fields where the derivative of their distribution function belongs.
    """
    nodes, weights = hermegauss(order)
    x, y = np.meshgrid(nodes, nodes)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    omega = np.sqrt(SECOND_MOMENT - E) * np.linalg.cholesky(K) @ np.stack([x.ravel(), y.ravel()])
    spread, total = np.sqrt(3 * E), 0.0
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        r = signs[0] * signs[1] / 3
        k = np.array(signs)[:, None] * omega / spread
        law = multivariate_normal([0, 0], [[1, r], [r, 1]])
        chance = np.maximum(law.cdf(k.T), 1e-13)
        root = np.sqrt(1 - r * r)
        slopes = [norm.pdf(k[a]) * ndtr((k[1 - a] - r * k[a]) / root) for a in (0, 1)]
        if bivariate:
            slopes = [law.pdf(k.T)] * 2
        g = np.array(signs)[:, None] * np.array(slopes) / chance / spread
        total += float(weight @ (chance * np.einsum("an,ab,bn->n", g, K, g)))
    return 2 * ALPHA * total


def fixed_point(bivariate: bool) -> float:
    E = 0.5
    for _ in range(12):
        E = 0.25 * E + 0.75 * left_over(1 / np.sqrt(information(E, bivariate)))
    return E


def test_the_published_value_has_the_density_where_the_derivative_belongs() -> None:
    """The same quadrature gives our value with the derivative, and the published one with the density."""
    assert fixed_point(bivariate=False) == pytest.approx(theory(0.0), abs=3e-4)
    assert fixed_point(bivariate=True) == pytest.approx(0.617, abs=1e-3)  # published to three digits here


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_message_passing_reaches_the_error_of_hardmax_with_noise(noise: float) -> None:
    """A line in 1/d through two sizes ends at the theory, within four standard errors."""
    means, errors = [], []
    for d, seeds in ((30, 16), (60, 10)):
        errors_at_d = [estimation_error(ALPHA, RANK, noise, d, seed)[0] for seed in range(seeds)]
        means.append(np.mean(errors_at_d))
        errors.append(np.std(errors_at_d, ddof=1) / np.sqrt(seeds))
    end, error = 2 * means[1] - means[0], np.hypot(2 * errors[1], errors[0])
    assert abs(end - theory(noise)) < 4 * error
    assert error < 0.05
