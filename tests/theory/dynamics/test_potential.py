"""Potentials by quadrature, in closed form and by draws; gains as derivatives of the potential."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, qmc

from attnlaw.theory.dynamics.potential import RowSoftmaxPotential, SoftmaxPotential, potential_of
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.risk import Softmax

TARGET = Target.marchenko_pastur(0.5)
CASES: dict[str, dict[str, Any]] = {
    "linear": {"tokens": 3},
    "softmax": {"output": "softmax", "tokens": 2},
    "softmax, cold": {"output": "softmax", "tokens": 2, "beta": 4.0},
    "softmax, three tokens": {"output": "softmax", "tokens": 3},
    "hermite2": {"output": "hermite2"},
    "hermite3": {"output": "hermite3"},
}
PLACES = [(0.9, 0.4), (1.4, 1.4), (0.3, -0.5), (6.0, 2.0)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("place", PLACES)
def test_gains_are_the_derivatives_of_the_potential(case: str, place: tuple[float, float]) -> None:
    potential = potential_of(Problem(target=TARGET, **CASES[case]))
    q, m = place
    h = 1e-4
    G, H = potential.gains(q, m)
    value = potential.value
    # Central differences err by h^2 times a third derivative; a rule of quadrature by its own error, over h.
    # Differences of a Sobol average are its own derivative only where the draws move smoothly: wider steps.
    wide = 0.05 if case == "softmax, three tokens" else h
    allowed = 0.02 if case == "softmax, three tokens" else 3e-4
    assert (value(q + wide, m) - value(q - wide, m)) / (2 * wide) == pytest.approx(
        G, rel=allowed, abs=allowed
    )
    assert (value(q, m + wide) - value(q, m - wide)) / (4 * wide) == pytest.approx(
        H, rel=allowed, abs=allowed
    )


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_softmax_of_two_tokens_against_a_sobol_sequence(beta: float) -> None:
    """The two-token rule of trapezoids and the many-token sum over rows are independent routes."""
    rows = [RowSoftmaxPotential(2, beta, 0.5, 1.5, scramble, draws=2**14) for scramble in range(8)]
    for q, m in ((0.9, 0.4), (1.4, 1.39)):
        drawn = np.array(
            [
                [*row_potential.gains(q, m), row_potential.value(q, m), row_potential.noise_power(q, m)]
                for row_potential in rows
            ]
        )
        potential = SoftmaxPotential(beta, 0.5, 1.5)
        rule = np.array([*potential.gains(q, m), potential.value(q, m), potential.noise_power(q, m)])
        error = drawn.std(axis=0, ddof=1) / np.sqrt(len(rows))
        assert np.abs((drawn.mean(axis=0) - rule) / error).max() < 5  # 4 scores of 7 degrees of freedom each
        assert (error / np.abs(rule)).max() < 0.03


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_gains_of_the_softmax_by_its_loss_and_steins_lemma(beta: float) -> None:
    """`[[q, m], [m, V]] (G, H) = (1/2)(E sum h c, E sum h* c)`, c the gradient that training uses."""
    q, m, V = 0.9, 0.5, 1.75
    G, H = SoftmaxPotential(beta, 0.5, 1.5).gains(q, m)
    scale = np.array([np.sqrt(2.0), 1.0, np.sqrt(2.0)])
    sides = []
    for scramble in range(8):
        draws = qmc.Sobol(6, scramble=True, rng=np.random.default_rng(scramble)).random(2**14)
        z, y = np.split(norm.ppf(draws) * np.tile(scale, 2), 2, axis=1)
        student, star = m / np.sqrt(V) * z + np.sqrt(q - m * m / V) * y, np.sqrt(V) * z
        loss = Softmax(beta)
        _, c = loss.loss(student, loss.labels(star, 2), 2)  # packed: h_12 has both orders
        sides.append([0.5 * np.mean(np.sum(h * c, axis=1)) for h in (student, star)])
    sides = np.array(sides)
    expected = np.array([[q, m], [m, V]]) @ [G, H]
    error = sides.std(axis=0, ddof=1) / np.sqrt(len(sides))
    assert np.abs(sides.mean(axis=0) - expected).max() < 4 * error.max()
    assert error.max() < 2e-3 * abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_noise_power_by_draws(case: str) -> None:
    """`sum_ab E (c_ab + c_ba)^2` of fields drawn and differentiated by hand."""
    given = CASES[case]
    tokens, beta = given.get("tokens", 1), given.get("beta", 1.0)
    problem = Problem(target=TARGET, **given)
    q, m, Q = 0.9, 0.4, TARGET.second_moment
    first, second = np.triu_indices(tokens)
    rng = np.random.default_rng(3)
    z, y = rng.standard_normal((2, 200_000, first.size)) * np.where(first == second, np.sqrt(2.0), 1.0)
    student, star = m / np.sqrt(Q) * z + np.sqrt(q - m * m / Q) * y, np.sqrt(Q) * z
    counts = np.where(first == second, 1.0, 2.0)
    if problem.output == "linear":
        packed = 2 * counts * (student - star)
    elif problem.output == "softmax":
        _, packed = Softmax(beta).loss(student, Softmax(beta).labels(star, tokens), tokens)
    else:
        h, slope = {
            "hermite2": (lambda x: (x**2 - 1) / np.sqrt(2), lambda x: np.sqrt(2) * x),
            "hermite3": (lambda x: (x**3 - 3 * x) / np.sqrt(6), lambda x: np.sqrt(1.5) * (x**2 - 1)),
        }[problem.output]
        packed = 2 * (h(student) - h(star)) * slope(student)
    # A packed pair a < b is c_ab + c_ba, which stands at (a, b) and at (b, a); a diagonal one is doubled.
    values = np.sum(np.where(first == second, 4 * packed**2, 2 * packed**2), axis=1)
    error = values.std(ddof=1) / np.sqrt(values.size)
    power = potential_of(problem).noise_power(q, m)
    assert abs(power - values.mean()) < 4 * error + 5e-3 * power * (tokens == 3)


def test_label_noise_moves_a_softmax_and_not_the_mean_of_scores() -> None:
    for output, tokens in (("linear", 1), ("softmax", 2)):
        clean, noisy = (
            potential_of(Problem(target=TARGET, output=output, tokens=tokens, noise=noise))
            for noise in (0, 1)
        )
        assert clean.value(1.0, 0.5) == noisy.value(1.0, 0.5)
        assert (clean.gains(1.0, 0.5) == noisy.gains(1.0, 0.5)) == (output == "linear")
        assert noisy.noise_power(1.0, 0.5) > clean.noise_power(1.0, 0.5)
