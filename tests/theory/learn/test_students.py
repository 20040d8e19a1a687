"""The students: gradients, equal minima by different solvers, optimality conditions, dense oracles."""

import numpy as np
import pytest
from oracles.proximal_gradient import train_proximal

from attnlaw.theory.learn.data import draw_risk
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.risk import Linear, Risk
from attnlaw.theory.learn.sensing import TokenSensing
from attnlaw.theory.learn.solvers import (
    factors_objective,
    optimality_gap,
    train_direct,
    train_factors,
    train_splitting,
)
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.theory.learn.training import Trained, never_stop

MP = Target.marchenko_pastur(0.5)
GROUPS = (
    ObservationGroup("diagonal", weight=0.5, noise=0.2),
    ObservationGroup("off-diagonal", weight=1.5, noise=0.8, share=0.5),
    ObservationGroup("off-diagonal", weight=1.0, noise=0.1, share=0.5),
)
LINEAR = {
    "one token": Problem(alpha=0.2, noise=0.5, weight_decay=0.1, target=MP),
    "strong decay": Problem(alpha=0.3, noise=0.5, weight_decay=0.6, target=MP),
    "two tokens, groups": Problem(alpha=0.1, tokens=2, weight_decay=0.2, target=MP, groups=GROUPS),
}


def data(problem: Problem, size: int = 24, seed: int = 0, sensing: str = "tokens") -> Risk:
    samples = round(problem.alpha * size**2)
    return draw_risk(problem, problem.target.quantiles(size), samples, sensing, np.random.default_rng(seed))


def train(problem: Problem, risk: Risk, seed: int) -> Trained:
    return STUDENTS[problem.student].trainer(problem, risk, np.random.default_rng(seed), never_stop)


def distance(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))


@pytest.mark.parametrize("width", [3, 10, 14])
@pytest.mark.parametrize("output", ["linear", "softmax"])
def test_gradient_of_factors_against_finite_differences(output: str, width: int) -> None:
    """Central differences at two steps: their difference bounds the truncation, 1e-14 F/h the round-off."""
    problem = Problem(alpha=0.3, tokens=3, output=output, noise=0.1, target=MP)
    risk = data(problem, size=10)
    rng = np.random.default_rng(width)
    w = rng.standard_normal((10, width))
    value, gradient = factors_objective(risk, 0.3, w)
    for _ in range(5):
        direction = rng.standard_normal(w.shape)
        slopes = []
        for step in (1e-5, 2e-5):
            up, _ = factors_objective(risk, 0.3, w + step * direction)
            down, _ = factors_objective(risk, 0.3, w - step * direction)
            slopes.append((up - down) / (2 * step))
        tolerance = abs(slopes[0] - slopes[1]) + 1e-14 * value / 1e-5
        assert tolerance < 1e-5 * np.linalg.norm(gradient)
        assert gradient @ direction.reshape(-1) == pytest.approx(slopes[0], abs=tolerance)


@pytest.mark.parametrize("sensing", ["tokens", "goe"])
@pytest.mark.parametrize("name", list(LINEAR))
def test_factorised_and_convex_students_agree(name: str, sensing: str) -> None:
    problem = LINEAR[name]
    risk = data(problem, sensing=sensing)
    factors = train_factors(risk, problem.weight_decay, np.random.default_rng(1))
    proximal = train_proximal(risk, problem.weight_decay)
    splitting = train_splitting(risk, problem.weight_decay)
    for trained in (factors, proximal, splitting):
        assert trained.converged
    assert distance(factors.matrix, proximal.matrix) < 1e-5
    assert distance(splitting.matrix, proximal.matrix) < 1e-5
    ranks = {np.linalg.matrix_rank(trained.matrix, tol=1e-9) for trained in (factors, proximal, splitting)}
    assert len(ranks) == 1


@pytest.mark.parametrize("weight_decay", [0.6, 1e-3])
def test_optimality_conditions_hold(weight_decay: float) -> None:
    """R'(S)/(lt d) + I is positive semidefinite and vanishes on the range of S (no solver's code is used)."""
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=weight_decay, target=MP)
    risk = data(problem)
    matrix = train(problem, risk, 1).matrix
    slack = risk(matrix)[1] / (weight_decay * len(matrix)) + np.eye(len(matrix))
    assert np.linalg.eigvalsh(matrix).min() > -1e-10
    assert np.linalg.eigvalsh(slack).min() > -1e-5
    assert np.linalg.norm(slack @ matrix) < 1e-5


def test_optimality_gap_by_hand() -> None:
    """x = e_1, y that of diag(0, 1): F = (1 - s)^2/2 + s/10 at S = diag(0, s), G = diag(1/10, s - 9/10)."""
    tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    risk = Risk(tokens, Linear(np.ones((1, 1))), tokens.fields(np.diag([0.0, 1.0])))
    # s = 1/2: Tr(G S) = -0.2, least eigenvalue -0.4 times 2 Tr S = 1. s = 3/2: Tr(G S) = 0.9, G >= 0.
    for s, gap in ((0.5, 0.2 + 0.4), (1.5, 0.9), (0.9, 0.0)):
        total = (1 - s) ** 2 / 2 + s / 10
        relative_gap = optimality_gap(risk, np.diag([0.0, s]), shift=0.1)
        assert relative_gap == pytest.approx(gap / total, abs=1e-12)


def test_optimality_gap_bounds_what_is_left() -> None:
    problem = LINEAR["one token"]
    risk = data(problem)
    shift = problem.weight_decay * 24
    best = train(problem, risk, 1).matrix

    def total(matrix: np.ndarray) -> float:
        return risk(matrix)[0] + shift * float(np.trace(matrix))

    values, vectors = np.linalg.eigh(best)
    top = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    for matrix in (1.2 * best, 0.7 * best, top, best + 0.1 * np.eye(24)):
        assert optimality_gap(risk, matrix, shift) * total(matrix) >= total(matrix) - total(best) > 0


def test_softmax_factors_and_proximal_reach_the_same_minimum() -> None:
    problem = Problem(alpha=0.2, tokens=3, output="softmax", noise=0.1, weight_decay=0.05, target=MP)
    risk = data(problem)
    factors = train(problem, risk, 1)
    proximal = train_proximal(risk, problem.weight_decay)
    assert (factors.solver, factors.converged, proximal.converged) == ("factors", True, True)
    assert distance(factors.matrix, proximal.matrix) < 1e-5


def test_splitting_reaches_the_interpolator_of_least_trace() -> None:
    """At lt = 1e-8 the data are fitted; the trace is that of a penalty 1e-3 up to its order, never more."""
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=1e-8, target=MP)
    risk = data(problem)
    trained = train(problem, risk, 0)
    assert (trained.solver, trained.converged) == ("splitting", True)
    assert risk(trained.matrix)[0] / risk.labels.size < 1e-10
    penalised = train_splitting(risk, 1e-3).matrix
    assert np.trace(penalised) <= np.trace(trained.matrix) <= np.trace(penalised) * 1.01


@pytest.mark.parametrize(("alpha", "solver"), [(0.2, "splitting"), (0.4, "factors")])
def test_small_decay_on_both_sides_of_interpolation(alpha: float, solver: str) -> None:
    """The threshold is near alpha = 0.307: splitting below, L-BFGS beyond, FISTA as independent route."""
    problem = Problem(alpha=alpha, noise=0.5, weight_decay=1e-5, target=MP)
    risk = data(problem, size=16, sensing="goe")
    trained = train(problem, risk, 0)
    assert (trained.solver, trained.converged) == (solver, True)
    if solver == "factors":
        assert distance(trained.matrix, train_proximal(risk, problem.weight_decay).matrix) < 1e-5


def test_a_tiny_decay_that_is_not_resolved_is_not_called_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    """FISTA after 2000 steps at lt = 1e-5: close to a fixed point in units of S, far from the minimiser."""
    monkeypatch.setattr("oracles.proximal_gradient.MOST_PROXIMAL_STEPS", 2000)
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=1e-5, target=MP)
    risk = data(problem, size=16, sensing="goe")
    exact = train(problem, risk, 0).matrix
    proximal = train_proximal(risk, problem.weight_decay)
    assert distance(proximal.matrix, exact) > 1e-3
    assert not proximal.converged


def test_one_negative_label_can_fix_the_trace() -> None:
    """With tokens h >= -Tr S/sqrt(d): as lt -> 0 the least label y gives Tr S = -sqrt(d) y and S x = 0."""
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=1e-6, target=MP)
    risk = data(problem, size=20)
    matrix = train(problem, risk, 0).matrix
    least = int(np.argmin(risk.labels))
    assert np.trace(matrix) == pytest.approx(-np.sqrt(20) * risk.labels[least, 0], rel=1e-3)
    x = risk.sensing.x[0, least]
    assert np.linalg.norm(matrix @ x) < 1e-2 * np.linalg.norm(matrix) * np.linalg.norm(x)


def test_heavy_decay_gives_the_zero_matrix() -> None:
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=50.0, target=MP)
    trained = train(problem, data(problem, size=12), 0)
    assert trained.converged
    assert not trained.matrix.any()


@pytest.mark.parametrize("tokens", [1, 2])
def test_direct_student_against_dense_least_squares(tokens: int) -> None:
    """Independent route: the stacked least-squares problem in all d(d+1)/2 coordinates, by SVD."""
    problem = Problem(alpha=0.2, tokens=tokens, noise=0.5, weight_decay=0.1, student="direct", target=MP)
    size = 10
    risk = data(problem, size=size)
    i, j = np.triu_indices(size)
    columns = []
    for a, b in zip(i, j, strict=True):
        unit = np.zeros((size, size))
        unit[a, b] = unit[b, a] = 1.0
        columns.append(risk.sensing.fields(unit))
    first, second = np.triu_indices(tokens)
    scale = np.where(first == second, 1.0, np.sqrt(2.0))
    rows = np.array([(scale * column).reshape(-1) for column in columns]).T
    ridge = np.diag(np.sqrt(problem.weight_decay * size * np.where(i == j, 1.0, 2.0)))
    stacked = np.vstack([rows, ridge])
    labels = np.concatenate([(scale * risk.labels).reshape(-1), np.zeros(i.size)])
    solution = np.linalg.lstsq(stacked, labels, rcond=None)[0]
    expected = np.zeros((size, size))
    expected[i, j] = expected[j, i] = solution
    trained = train(problem, risk, 0)
    assert trained.converged
    assert distance(trained.matrix, expected) < 1e-8


def test_direct_softmax_student_is_stationary() -> None:
    problem = Problem(
        alpha=0.3, tokens=2, output="softmax", noise=0.1, weight_decay=0.05, student="direct", target=MP
    )
    risk = data(problem)
    trained = train(problem, risk, 0)
    assert trained.converged
    np.testing.assert_array_equal(trained.matrix, trained.matrix.T)
    gradient = risk(trained.matrix)[1] / 24 + 2 * problem.weight_decay * trained.matrix
    assert np.abs(gradient).max() < 1e-7


def test_direct_student_without_ridge_is_the_least_norm_solution() -> None:
    """Below interpolation the limit lambda -> 0 has the least norm of all fits: A^T (A A^T)^-1 y."""
    problem = Problem(alpha=0.2, noise=0.5, weight_decay=1e-9, student="direct", target=MP)
    risk = data(problem, size=12)
    dual = np.linalg.solve(risk.sensing.gram(), risk.labels.reshape(-1))
    expected = risk.sensing.adjoint(dual.reshape(-1, 1))
    assert distance(train_direct(risk, 0.0).matrix, expected) < 1e-8
