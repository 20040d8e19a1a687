"""Softmax output: reference values, derivatives, proximal points, and the limit of small beta for any T."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from oracles.dense_softmax import DenseChannel
from scipy.optimize import minimize
from scipy.special import expit

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.numerics.small_systems import factor, inverse, solve
from attnlaw.theory.learn import softmax
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.softmax import errors
from attnlaw.theory.learn.softmax_channel import (
    covariance,
    derivatives,
    gauss_newton,
    label_response,
    local_minimum,
    loss,
    softmax_rows,
)
from attnlaw.theory.learn.stability import mean_square_slope
from attnlaw.theory.learn.state_evolution import state_evolution, state_evolutions
from attnlaw.theory.learn.students import direct, factorized

MP = Target.marchenko_pastur(0.5)
ANSWERS = {"factorized": factorized.FACTORS, "direct": direct.RIDGE}
REFERENCE = Problem(0.2, tokens=2, output="softmax", beta=1.0, target=MP, weight_decay=0.02)


@pytest.fixture(scope="module")
def reference() -> Prediction:
    return state_evolution(REFERENCE)


def test_reference_values(reference: Prediction) -> None:
    # Value, half its last digit, and the standard deviation over six scrambles of 2^13 draws, as measured.
    known = {
        "estimation_error": (0.3129, 0.5e-4, 9.1e-5),
        "norm": (0.6704, 0.5e-4, 8.0e-5),
        "training_loss": (0.00774, 0.5e-5, 2.4e-6),
        "prediction_error": (0.0727, 0.5e-4, 5.5e-5),
        "rank_fraction": (0.451, 0.5e-3, 2.5e-5),
    }
    for name, (value, rounding, deviation) in known.items():
        assert getattr(reference, name).value == pytest.approx(value, abs=rounding + 3 * deviation)
    assert reference.converged


def test_spectrum_carries_norm_and_trace(reference: Prediction) -> None:
    prediction = reference
    assert prediction.spectrum.moment(2) == pytest.approx(prediction.norm.value, rel=1e-5)
    assert prediction.spectrum.moment(1) == pytest.approx(prediction.trace.value, rel=1e-5)


@pytest.mark.long
def test_error_covers_the_scatter_of_scrambles(
    reference: Prediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Solutions of six scrambles of 2^9 draws against one of 2^13, whose own error is an order smaller."""
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 9)
    predictions = []
    for seed in range(6):
        monkeypatch.setattr(softmax, "SOBOL_SEED", 1000 * (seed + 1))
        predictions.append(state_evolution(REFERENCE))
    for name in ("estimation_error", "prediction_error", "training_loss", "norm", "rank_fraction"):
        away = [
            getattr(prediction, name).value - getattr(reference, name).value for prediction in predictions
        ]
        stated_errors = [getattr(prediction, name).error for prediction in predictions]
        ratio = np.sqrt(np.mean(np.square(away)) / np.mean(np.square(stated_errors)))
        # A rule of N draws errs as 1/N to N^(-3/2) here: four quarters tell 2 to 4 times as much.
        # Six values fix the ratio to a third; twice that is allowed.
        assert 0.25 / 1.67 < ratio < 1.0
        assert getattr(reference, name).error < 0.5 * np.mean(stated_errors)


def test_the_direct_student_has_no_threshold_to_err_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 7)
    prediction = state_evolution(replace(REFERENCE, student="direct"))
    assert prediction.threshold is None
    assert prediction.norm.error > 0
    assert state_evolution(replace(REFERENCE, student="bayes")).norm.error is None


def test_too_many_tokens_are_refused_before_memory_is_asked_for() -> None:
    with pytest.raises(InputError, match="tokens: 40 through a softmax need 4"):
        softmax.solve(replace(REFERENCE, tokens=40), factorized.FACTORS)
    softmax.check_size(replace(REFERENCE, tokens=14))
    with pytest.raises(InputError, match="at most 10 tokens"):
        softmax.check_size(replace(REFERENCE, tokens=15, beta=4.0))


def test_two_tokens_are_logistic() -> None:
    """Coordinates v_a = h_aa - h_12, loss 2 sum (y_a - s(beta v_a))^2 and B = diag(4 beta^2 s' y(1-y))."""
    rng = np.random.default_rng(0)
    v, shown, beta = rng.normal(size=(2, 5)), rng.normal(size=(2, 5)), 1.7
    sigma, y = softmax_rows(v, beta, 2), softmax_rows(shown, beta, 2)
    ya, s = expit(beta * shown), expit(beta * v)
    assert y[[0, 1], [0, 1]] == pytest.approx(ya)
    assert loss(sigma, y) == pytest.approx(2 * ((ya - s) ** 2).sum(axis=0))
    B = label_response(sigma, y, beta)
    expected = 4 * beta**2 * s * (1 - s) * ya * (1 - ya)
    assert B[[0, 1], [0, 1]] == pytest.approx(expected)
    assert np.abs(B[0, 1]).max() < 1e-15


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_derivatives_by_differences(tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    size, beta, step = covariance(tokens).shape[0], 1.3, 1e-5
    v, shown = rng.normal(size=(size, 3)), rng.normal(size=(size, 3))
    rows = partial(softmax_rows, beta=beta, tokens=tokens)
    sigma, y = rows(v), rows(shown)
    gradient, hessian = derivatives(sigma, y, beta)
    response = np.empty_like(hessian)
    for i in range(size):
        e = step * np.eye(size)[i][:, None]
        slope = (loss(rows(v + e), y) - loss(rows(v - e), y)) / (2 * step)
        assert gradient[i] == pytest.approx(slope, abs=1e-8)
        curved = (derivatives(rows(v + e), y, beta)[0] - derivatives(rows(v - e), y, beta)[0]) / (2 * step)
        assert hessian[i] == pytest.approx(curved, abs=1e-8)
        ahead, behind = (derivatives(sigma, rows(shown + sign * e), beta)[0] for sign in (1, -1))
        response[:, i] = -(ahead - behind) / (2 * step)
    symmetric = (response + response.swapaxes(0, 1)) / 2
    assert label_response(sigma, y, beta) == pytest.approx(symmetric, abs=1e-8)
    convex = gauss_newton(sigma, beta)
    assert np.linalg.eigvalsh(np.moveaxis(convex, -1, 0)).min() > -1e-12
    assert gauss_newton(y, beta) == pytest.approx(derivatives(y, y, beta)[1], abs=1e-12)


@pytest.mark.parametrize(("tokens", "draws"), [(2, 1), (4, 200), (6, 3)])
def test_systems_of_all_draws_are_those_of_each(tokens: int, draws: int) -> None:
    """Condition numbers are some hundreds: what the two routes may differ by is that times the round-off."""
    rng = np.random.default_rng(tokens)
    v, shown = rng.normal(size=(2, covariance(tokens).shape[0], draws))
    hessian = gauss_newton(softmax_rows(v, 2.0, tokens), 2.0) + np.linalg.inv(covariance(tokens))[..., None]
    dense = np.moveaxis(hessian, -1, 0).copy()
    tolerance = 10 * float(np.linalg.cond(dense).max()) * np.finfo(float).eps
    factors = factor(hessian)
    wanted = np.linalg.solve(dense, shown.T[..., None])[..., 0].T
    assert np.abs(solve(factors, shown) - wanted).max() < tolerance * np.abs(wanted).max()
    inverses = np.moveaxis(np.linalg.inv(dense), 0, -1)
    assert np.abs(inverse(factors) - inverses).max() < tolerance * np.abs(inverses).max()


@pytest.mark.parametrize(("tokens", "beta"), [(2, 1.0), (3, 1.0), (4, 0.5), (2, 3.0)])
def test_averages_are_those_of_dense_matrices(tokens: int, beta: float) -> None:
    """Both routes stop Newton's method at steps of 1e-9, where its error is their square times a constant."""
    problem = replace(REFERENCE, tokens=tokens, beta=beta, noise=0.3)
    fast, dense = (kind(problem, 8) for kind in (softmax._Channel, DenseChannel))
    for V in (0.5, 20.0):
        averages, wanted = (vars(channel.average(0.4, 0.7, V)) for channel in (fast, dense))
        assert averages == pytest.approx(wanted, rel=1e-12)
        assert fast.response(0.4, 0.7, V) == pytest.approx(dense.response(0.4, 0.7, V), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [2, 3])
def test_coordinates_are_what_the_softmax_sees(tokens: int) -> None:
    """Draw symmetric fields with Var h_aa = 2, Var h_ab = 1: same rows from v, and the stated covariance."""
    rng = np.random.default_rng(1)
    G = rng.normal(size=(20000, tokens, tokens))
    h = (G + G.transpose(0, 2, 1)) / np.sqrt(2)
    pairs = [(a, b) for a in range(tokens) for b in range(a, tokens) if (a, b) != (0, 1)]
    v = np.stack([h[:, a, b] - h[:, 0, 1] for a, b in pairs], axis=1)
    direct = np.exp(0.8 * h)
    rows = np.moveaxis(softmax_rows(v.T, 0.8, tokens), -1, 0)
    assert rows == pytest.approx(direct / direct.sum(axis=2, keepdims=True))
    # Standard error of a covariance entry of at most 3 from 20000 draws is below 0.03 * sqrt(2).
    assert np.cov(v.T) == pytest.approx(covariance(tokens), abs=5 * 0.03 * np.sqrt(2))


@pytest.mark.parametrize(("tokens", "beta"), [(2, 4.0), (3, 2.0)])
def test_two_starts_find_the_least_minimum(tokens: int, beta: float) -> None:
    """Draws as at a fixed point (m = .95, q = .7, V = 4): no start of BFGS finds a lower value."""
    rng = np.random.default_rng(3)
    K = covariance(tokens)
    root = np.linalg.cholesky(K)
    shown, free = ((rng.normal(size=(25, K.shape[0])) @ root.T).T for _ in range(2))
    omega = np.sqrt(1.5) * shown * 0.95 / 1.5 + np.sqrt(0.7 - 0.95**2 / 1.5) * free
    shown = np.sqrt(1.5) * shown
    y, precision = softmax_rows(shown, beta, tokens), np.linalg.inv(K) / 4.0
    minima = [local_minimum(start, omega, y, precision, beta) for start in (omega, shown)]
    best = np.minimum(minima[0][1], minima[1][1])
    for i in range(25):

        def objective(v: np.ndarray, i: int = i) -> float:
            offset, sigma = v - omega[:, i], softmax_rows(v[:, None], beta, tokens)
            return float(loss(sigma, y[..., i : i + 1])[0] + offset @ precision @ offset / 2)

        for start in (
            omega[:, i],
            shown[:, i],
            0.5 * (omega[:, i] + shown[:, i]),
            shown[:, i] + rng.normal(size=K.shape[0]),
        ):
            assert best[i] <= minimize(objective, start, method="BFGS").fun + 1e-9
    for v, _ in minima:
        gradient, _ = derivatives(softmax_rows(v, beta, tokens), y, beta)
        assert np.abs(gradient + precision @ (v - omega)).max() < 1e-7


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_small_beta_is_a_linear_problem(tokens: int) -> None:
    """As beta -> 0 the loss is quadratic: groups of weights eig(K H/2), each with noise Delta/2."""
    beta, noise, alpha = 0.02, 0.5, 0.3 / tokens
    K = covariance(tokens)
    size = K.shape[0]
    H = gauss_newton(np.full((tokens, tokens, 1), 1 / tokens), beta)[..., 0]
    weights = np.sort(np.linalg.eigvals(K @ H / 2).real)
    lt = 0.4 * float(weights.mean())
    problem = Problem(
        alpha, tokens=tokens, output="softmax", beta=beta, target=MP, noise=noise, weight_decay=lt
    )
    solution = softmax.solve(problem, factorized.FACTORS, log2_draws=11)
    batch = factorized.ProblemBatch(
        MP, np.full((1, size), alpha), weights[None], np.full((1, size), noise / 2), np.array([lt])
    )
    expected = factorized.solve(batch)
    # Corrections are of relative order beta^2 Q* times a few; the rest is quasi-Monte-Carlo with 2^11 draws.
    assert solution.q == pytest.approx(expected.integrals.J[0], rel=1e-2)
    assert MP.second_moment - 2 * solution.m + solution.q == pytest.approx(expected.E[0], rel=1e-2)
    assert solution.rank == pytest.approx(expected.integrals.mass[0], rel=1e-2)
    c = 2 * weights / (1 + 2 * weights * expected.V[0])
    response = (2 * alpha * c * c).sum() / (2 * alpha * c).sum() ** 2
    slope = mean_square_slope(MP.law, float(expected.delta[0]), float(expected.b[0]))
    assert solution.stability == pytest.approx(slope * response, rel=2e-2)


@pytest.mark.parametrize("tokens", [2, 3])
def test_the_response_of_a_channel_by_differences(tokens: int) -> None:
    """`g = -l'` at the proximal point of a shifted omega, `tr[(K dg/domega)^2]` draw by draw."""
    problem = replace(REFERENCE, tokens=tokens, noise=0.3)
    channel = softmax._Channel(problem, 6)
    E, theta, V, step = 0.4, 0.7, 3.0, 1e-5
    omega, y, K = channel.student(E, theta), channel.labels, channel.K

    def g(at: np.ndarray) -> np.ndarray:
        p, _ = local_minimum(at, at, y, channel.inverse / V, problem.beta)
        return -derivatives(softmax_rows(p, problem.beta, tokens), y, problem.beta)[0]

    slopes = np.array(
        [
            (g(omega + step * direction[:, None]) - g(omega - step * direction[:, None])) / (2 * step)
            for direction in np.eye(len(K))
        ]
    )  # (omega, g, draw)
    products = np.einsum("pq,oqn->pon", K, slopes)
    expected = 2 * problem.alpha * np.einsum("pqn,qpn->n", products, products).mean()
    # Newton's method stops at steps of 1e-9: a part in 1e4 of a difference over 2e-5.
    assert channel.response(E, theta, V) == pytest.approx(expected, rel=1e-3)


def test_what_is_unstable_says_so(reference: Prediction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference.stability == pytest.approx(0.551, abs=2e-3)
    monkeypatch.setattr("attnlaw.theory.learn.softmax.UNSTABLE", 0.1)
    prediction = state_evolution(replace(REFERENCE, student="direct"))
    assert prediction.outcome is Outcome.UNSTABLE
    assert (
        prediction.remark
        == f"unstable (stability {prediction.stability:.3g} is above 1), so training runs may end at "
        "different students"
    )


def test_direct_student_at_small_beta() -> None:
    beta, alpha = 0.02, 0.2
    weights = np.array([[beta**2 / 4, beta**2 / 2]])
    lam = 0.2 * beta**2
    problem = Problem(
        alpha, tokens=2, output="softmax", beta=beta, target=MP, noise=0.5, weight_decay=lam, student="direct"
    )
    batch = factorized.ProblemBatch(
        MP, np.full((1, 2), alpha), weights, np.full((1, 2), 0.25), np.array([lam])
    )
    expected = direct.solve(batch)
    solution = softmax.solve(problem, direct.RIDGE, log2_draws=12)
    assert solution.r == pytest.approx(expected.s[0], rel=5e-3)
    assert MP.second_moment - 2 * solution.m + solution.q == pytest.approx(expected.E[0], rel=1e-2)


def test_more_samples_help_along_a_warm_started_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 9)
    problems = [replace(REFERENCE, alpha=alpha) for alpha in (0.3, 0.1)]
    many, few = state_evolutions(problems)
    assert many.problem.alpha == 0.3
    assert many.estimation_error.value < few.estimation_error.value
    assert many.prediction_error.value < few.prediction_error.value


@pytest.mark.parametrize(
    ("student", "alpha", "decay"),
    [("direct", 0.245, 1e-11), ("direct", 0.1, 1e-9), ("factorized", 0.15, 1e-8)],
)
def test_without_a_penalty_softmax_and_linear_output_learn_the_same(
    student: str, alpha: float, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below interpolation both fit all labels, each of which tells its score: only their number matters."""
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 10)
    prediction = state_evolution(replace(REFERENCE, alpha=alpha, weight_decay=decay, student=student))
    linear = state_evolution(Problem(2 * alpha, target=MP, weight_decay=decay, student=student))
    assert prediction.converged
    for name in ("estimation_error", "overlap", "norm", "rank_fraction", "trace"):
        away = abs(getattr(prediction, name).value - getattr(linear, name).value)
        # What the weight decay still changes is of relative order decay times V/H: below 1e-3 here.
        assert away < 4 * getattr(prediction, name).error + 1e-3 * getattr(linear, name).value, name


def test_clean_labels_without_a_penalty_give_the_target() -> None:
    prediction = state_evolution(replace(REFERENCE, alpha=0.6, weight_decay=0.0, student="direct"))
    assert (
        prediction.estimation_error.value,
        prediction.prediction_error.value,
        prediction.overlap.value,
    ) == (
        0.0,
        0.0,
        1.5,
    )
    assert prediction.outcome is Outcome.RECOVERED
    assert prediction.remark.startswith("labels without noise and no weight decay recover the target exactly")


def test_what_the_iteration_does_not_resolve_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 8)
    prediction = state_evolution(replace(REFERENCE, alpha=0.6, weight_decay=1e-14, student="direct"))
    assert prediction.outcome is Outcome.RECOVERED
    assert prediction.remark.startswith("the error is too small to compute")
    assert 0 < prediction.estimation_error.value < 1e-18
    assert (prediction.rank_fraction, prediction.training_loss, prediction.prediction_error) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("student", ["factorized", "direct"])
def test_beyond_recovery_the_error_falls_as_the_square_of_the_weight_decay(student: str) -> None:
    """Near the target the loss is quadratic, and the equations have no scale but the weight decay."""
    problem, answer = replace(REFERENCE, alpha=0.6, student=student), ANSWERS[student]
    near, far = (
        softmax.solve(replace(problem, weight_decay=lt), answer, log2_draws=8) for lt in (1e-9, 1e-6)
    )
    # Terms of relative order sqrt(E) = 5e-5 times a few are left out, and 1e-6 of the iteration.
    assert pytest.approx(far.E / 1e-12, rel=1e-3) == near.E / 1e-18
    assert near.train / 1e-18 == pytest.approx(far.train / 1e-12, rel=1e-3)
    assert (near.rank, near.V) == pytest.approx((far.rank, far.V), rel=1e-3)
    for point in (near, far):
        assert MP.second_moment - 2 * point.m + point.q == pytest.approx(point.E, abs=1e-14)


def test_what_the_iteration_leaves_is_part_of_the_error() -> None:
    point = softmax.solve(REFERENCE, factorized.FACTORS, log2_draws=7)
    exact = replace(point, iteration=replace(point.iteration, error=0.0))
    rough = replace(point, iteration=replace(point.iteration, error=0.01))
    scatter, error = (errors(REFERENCE, factorized.FACTORS, variant) for variant in (exact, rough))
    assert error["estimation_error"] == pytest.approx(np.hypot(scatter["estimation_error"], 0.01 * point.E))
    assert error["rank_fraction"] == pytest.approx(np.hypot(scatter["rank_fraction"], 0.01 * point.rank))


def test_what_did_not_converge_has_no_error_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "default_draws", lambda problem: 7)
    monkeypatch.setattr(softmax, "accelerated_iteration", partial(_two_steps, softmax.accelerated_iteration))
    prediction = state_evolution(REFERENCE)
    assert prediction.outcome is Outcome.NOT_CONVERGED
    assert "steps, so these values may be wrong; lower beta or raise the" in prediction.remark
    assert prediction.norm.error is None


def _two_steps(iteration: Any, *arguments: Any, **options: Any) -> Any:
    return iteration(*arguments, **(options | {"max_steps": 2}))


def test_sharp_softmax_ends_with_a_status() -> None:
    """At beta = 4 some draws have two minima; the solver must end and say how well it did."""
    solution = softmax.solve(replace(REFERENCE, beta=4.0), factorized.FACTORS, log2_draws=9)
    assert solution.iteration.steps <= 200
    assert solution.iteration.converged or solution.iteration.residual < 0.05
