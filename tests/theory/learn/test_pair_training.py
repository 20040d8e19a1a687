"""Untied students that are trained: sensing against loops, two solvers, theory beside training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from theory.learn.untied_cases import UNTIED

from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.attention import PAIRS
from attnlaw.theory.learn.data import SENSINGS, draw_pairs, draw_risk, draw_squares, hidden_target
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.solvers import (
    PAIR_FACTORS,
    nuclear_gap,
    pair_objective,
    shrink_singular_values,
    train_factors,
    train_splitting,
)
from attnlaw.theory.learn.state_evolution import state_evolution


def untied(k0: float, alpha: float, noise: float, decay: float, **more) -> Problem:
    return Problem(
        alpha, target=Target.product(k0), noise=noise, weight_decay=decay, attention="untied", **more
    )


def data(problem: Problem, size: int, seed: int = 0, sensing: str = "ginibre") -> Risk:
    rng = np.random.default_rng(seed)
    teacher = hidden_target(problem.target.quantiles(size), rng)
    return draw_risk(problem, teacher, round(problem.alpha * size**2), sensing, rng)


@pytest.mark.parametrize("pairs", ["distinct", "causal", "cross"])
def test_fields_of_pairs_against_loops(pairs: str) -> None:
    rng = np.random.default_rng(1)
    sensing, matrix = draw_pairs(3, 3, pairs, 5, rng), rng.standard_normal((5, 5))
    expected = [
        [sensing.x[a, mu] @ matrix @ sensing.z[b, mu] / np.sqrt(5) for a, b in PAIRS[pairs].places(3)]
        for mu in range(3)
    ]
    np.testing.assert_allclose(sensing.fields(matrix), expected, rtol=0, atol=1e-13)
    assert (sensing.z is sensing.x) == (pairs != "cross")


@pytest.mark.parametrize("draw", [draw_pairs, draw_squares])
@pytest.mark.parametrize("pairs", ["distinct", "causal", "cross"])
def test_adjoint_and_gram_match_the_dense_map(draw, pairs: str) -> None:
    rng = np.random.default_rng(2)
    sensing = draw(4, 2, pairs, 3, rng)
    assert sensing.shape == (4, 2, 3)
    dense = np.array([sensing.fields(unit.reshape(3, 3)).reshape(-1) for unit in np.eye(9)]).T
    np.testing.assert_allclose(sensing.gram(), dense @ dense.T, rtol=0, atol=1e-12)
    weights = rng.standard_normal((4, PAIRS[pairs].count(2)))
    np.testing.assert_allclose(sensing.adjoint(weights).reshape(-1), weights.reshape(-1) @ dense, atol=1e-12)


@pytest.mark.parametrize("sensing", [name for name, sensing in SENSINGS.items() if "untied" in sensing.draws])
def test_fields_have_the_variance_of_the_theory(sensing: str) -> None:
    """Var h = |S|^2/d; 40000 draws of a field whose fourth cumulant is at most 6 give it to 3/sqrt(n)."""
    problem = untied(0.5, 0.5, 0.0, 0.1)
    rng = np.random.default_rng(3)
    teacher = hidden_target(problem.target.quantiles(8), rng)
    labels = draw_risk(problem, teacher, 40_000, sensing, rng).labels
    expected = float(np.vdot(teacher, teacher)) / 8
    assert np.var(labels) == pytest.approx(expected, rel=4 * 3 / np.sqrt(40_000))


def test_noise_is_half_of_delta_on_every_pair() -> None:
    quiet, loud = untied(0.5, 0.5, 0.0, 0.1, tokens=2), untied(0.5, 0.5, 3.0, 0.1, tokens=2)
    teacher = hidden_target(quiet.target.quantiles(4), np.random.default_rng(0))
    first, second = (
        draw_risk(problem, teacher, 5_000, "tokens", np.random.default_rng(5)) for problem in (quiet, loud)
    )
    noise = second.labels - first.labels
    assert noise.shape == (5_000, 4)
    assert np.var(noise) == pytest.approx(1.5, rel=4 * np.sqrt(2 / noise.size))


@pytest.mark.parametrize("width", [2, 6, 9])
def test_gradient_of_both_factors_against_finite_differences(width: int) -> None:
    """Central differences of a polynomial of degree four; the two steps bound the truncation."""
    risk = data(untied(0.5, 0.5, 0.5, 0.3), 6)
    rng = np.random.default_rng(width)
    w = rng.standard_normal(2 * 6 * width)
    _, gradient = pair_objective(risk, 0.3, w)
    for _ in range(4):
        direction = rng.standard_normal(w.size)
        slopes = [
            (
                pair_objective(risk, 0.3, w + h * direction)[0]
                - pair_objective(risk, 0.3, w - h * direction)[0]
            )
            / (2 * h)
            for h in (1e-4, 2e-4)
        ]
        bound = abs(slopes[1] - slopes[0]) + 1e-9 * abs(slopes[0]) + 1e-11
        assert gradient @ direction == pytest.approx(slopes[0], abs=bound)


def test_balanced_factors_pay_the_nuclear_norm() -> None:
    """`lambda (|W_Q|^2 + |W_K|^2) = lt d |S|_*` for balanced factors, lt = 2 sqrt(kappa) lambda."""
    risk, rng = data(untied(0.5, 0.5, 0.5, 0.3), 6), np.random.default_rng(0)
    left, values, right = np.linalg.svd(rng.standard_normal((6, 6)))
    matrix = (left * values) @ right
    root = np.sqrt(np.sqrt(6 * 6) * values)
    both = np.stack([left * root, right.T * root]).reshape(-1)
    plain = risk(matrix)[0] + 0.3 * 6 * values.sum()
    assert 36 * pair_objective(risk, 0.3, both)[0] == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("sensing", ["ginibre", "tokens"])
def test_two_solvers_find_the_same_minimum(sensing: str) -> None:
    """L-BFGS on factors and splitting on S: the residual bounds how far each is from the minimum."""
    problem = untied(0.3, 0.6, 0.5, 0.5)
    risk = data(problem, 20, sensing=sensing)
    factors = train_factors(risk, 0.5, np.random.default_rng(1), form=PAIR_FACTORS)
    convex = train_splitting(risk, 0.5, shrink=shrink_singular_values)
    assert factors.converged
    assert convex.converged

    def objective(matrix: np.ndarray) -> float:
        return risk(matrix)[0] + 0.5 * 20 * float(np.linalg.svd(matrix, compute_uv=False).sum())

    least = objective(convex.matrix)
    bound = nuclear_gap(risk, convex.matrix, 10.0) + factors.residual
    assert objective(factors.matrix) == pytest.approx(least, rel=bound + 1e-12)
    assert np.linalg.norm(factors.matrix - convex.matrix) < 1e-2 * np.linalg.norm(convex.matrix)


def test_the_gap_bounds_what_can_be_lost() -> None:
    problem = untied(0.3, 0.6, 0.5, 0.5)
    risk = data(problem, 10)
    best = train_factors(risk, 0.5, np.random.default_rng(1), form=PAIR_FACTORS).matrix

    def objective(matrix: np.ndarray) -> float:
        return risk(matrix)[0] + 5.0 * float(np.linalg.svd(matrix, compute_uv=False).sum())

    rng = np.random.default_rng(2)
    for size in (1e-3, 1e-1, 1.0):
        other = best + size * rng.standard_normal(best.shape)
        lost = (objective(other) - objective(best)) / objective(other)
        assert 0 < lost <= nuclear_gap(risk, other, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("student", ["factorized", "direct"])
def test_gaussian_sensing_agrees_at_a_small_size(student: str) -> None:
    """d = 20, twelve seeds: within four standard errors of the limit."""
    problem = untied(0.3, 0.6, 0.5, 0.5, student=student)
    measured = simulate(problem, size=20, seeds=12, sensing="ginibre")
    report = agreement(state_evolution(problem), [measured])
    assert measured.trace is None
    assert measured.nuclear_norm is not None
    assert report.worst < 4
    assert report["nuclear_norm"].value == pytest.approx(measured.eigenvalues.mean(), rel=1e-10)
    assert report.spectrum_distance < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "tokens"), [("cross", 2), ("causal", 3), ("distinct", 2)])
def test_pairs_of_tokens_agree(pairs: str, tokens: int) -> None:
    """Tokens lie above the limit by about 5.5/d of E (d = 24: a quarter): within that and four errors."""
    per = PAIRS[pairs].count(tokens)
    problem = untied(0.25, 0.75 / per, 0.5, 0.5, tokens=tokens, pairs=pairs)
    measured = simulate(problem, size=24, seeds=6)
    E = state_evolution(problem).estimation_error.value
    estimate = measured.estimation_error
    assert abs(estimate.value - E) < 4 * estimate.error + 5.5 / 24 * E


@pytest.mark.long
def test_gaussian_sensing_extrapolates_to_the_limit() -> None:
    """All rows, a line in 1/d through d = 40 and 60, seeds 0 to 7 each: root mean square of 42 scores."""
    scores = {}
    for row in UNTIED:
        problem = untied(*row)
        measured = [simulate(problem, size=size, seeds=8, sensing="ginibre") for size in (40, 60)]
        report = agreement(state_evolution(problem), measured)
        scores |= {
            (row, comparison.quantity): comparison.z
            for comparison in report.comparisons
            if comparison.quantity != "prediction_error"
        }
        assert report.spectrum_distance < 0.03
    assert np.sqrt(np.mean(np.square(list(scores.values())))) < 1.3, scores


@pytest.mark.long
@pytest.mark.parametrize(("pairs", "tokens"), [("cross", 1), ("causal", 3), ("distinct", 2)])
def test_tokens_extrapolate_to_the_limit(pairs: str, tokens: int) -> None:
    """A line in 1/d through d = 40 and 80; no score beyond 4."""
    problem = untied(0.3, 0.6 / PAIRS[pairs].count(tokens), 0.5, 0.5, tokens=tokens, pairs=pairs)
    measured = [simulate(problem, size=size, seeds=seeds) for size, seeds in ((40, 12), (80, 6))]
    report = agreement(state_evolution(problem), measured)
    scores = [comparison.z for comparison in report.comparisons if comparison.quantity != "prediction_error"]
    assert max(map(abs, scores)) < 4


@pytest.mark.long
@pytest.mark.parametrize("spike", [4.0, 6.0])
def test_outliers_are_seen_on_both_sides(spike: float) -> None:
    """Location, left and right squared overlap of the top singular vectors, d = 60, Gaussian sensing."""
    problem = untied(0.5, 1.2, 0.5, 0.6)
    problem = replace(problem, target=problem.target.with_spikes(spike))
    (seen,) = state_evolution(problem).outliers
    measurements = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        teacher = hidden_target(problem.target.quantiles(60), rng)
        risk = draw_risk(problem, teacher, round(problem.alpha * 3600), "ginibre", rng)
        left, values, right = np.linalg.svd(train_factors(risk, 0.6, rng, form=PAIR_FACTORS).matrix)
        u, _, v = np.linalg.svd(teacher)
        measurements.append((values[0], (left[:, 0] @ u[:, 0]) ** 2, (right[0] @ v[0]) ** 2))
    mean, error = (
        np.mean(measurements, axis=0),
        np.std(measurements, axis=0, ddof=1) / np.sqrt(len(measurements)),
    )
    expected = np.array([seen.location, seen.overlap, seen.overlap])
    assert np.all(np.abs(mean - expected) < 4 * error)
