"""Training of learners against other solvers, and ensembles of them against the theory."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from theory.regression.agree import holds, z_score

from attnlaw.core.errors import InputError
from attnlaw.numerics.prox import HINGE, LOGISTIC, SQUARE
from attnlaw.theory.regression.ensemble import Ensemble
from attnlaw.theory.regression.evolution import ensemble_evolution
from attnlaw.theory.regression.learners import minimise, simulate_ensemble


@pytest.fixture(name="data")
def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 30)) / 5, np.sign(rng.standard_normal(40))


def test_square_is_ridge_regression(data) -> None:
    A, y = data
    assert minimise(A, y, SQUARE, 0.3) == pytest.approx(
        np.linalg.solve(A.T @ A + 0.3 * np.eye(30), A.T @ y), abs=1e-7
    )


def test_logistic_against_a_quasi_newton_method(data) -> None:
    A, y = data
    other = minimize(
        lambda w: (
            float(LOGISTIC.value(y, A @ w).sum()) + 0.05 * w @ w,
            A.T @ LOGISTIC.slope(y, A @ w) + 0.1 * w,
        ),
        np.zeros(30),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9},
    )
    # Strong convexity: |w - w'| <= |gradient|/ridge.
    assert minimise(A, y, LOGISTIC, 0.1) == pytest.approx(other.x, abs=1e-6)


def test_hinge_against_its_dual(data) -> None:
    """max sum a - |A^T (y a)|^2/(2 ridge), 0 <= a <= 1, is the same; w differs by sqrt(2 gap/ridge)."""
    A, y = data
    signed = A * y[:, None]
    dual = minimize(
        lambda a: (0.5 * a @ signed @ signed.T @ a / 0.1 - a.sum(), signed @ (signed.T @ a) / 0.1 - 1),
        np.full(40, 0.5),
        jac=True,
        bounds=[(0, 1)] * 40,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    )
    w = minimise(A, y, HINGE, 0.1)
    primal = float(HINGE.value(y, A @ w).sum()) + 0.05 * w @ w
    assert -dual.fun <= primal + 1e-12
    assert primal == pytest.approx(-dual.fun, abs=1e-6)
    assert np.abs(w - signed.T @ dual.x / 0.1).max() < np.sqrt(2e-6 / 0.1)


def test_separable_samples_without_a_ridge_have_no_minimum() -> None:
    with pytest.raises(InputError, match="the loss of a learner has no minimum, because the classes"):
        minimise(np.eye(3), np.ones(3), LOGISTIC, 0.0)


def family(cases, sizes, seeds) -> list[float]:
    """z of m, q, q1 and of the errors of the mean and of the vote, extrapolated in 1/d."""
    scores = []
    for place, (loss, activation, per_input, width, ridge, learners) in enumerate(cases):
        problems = [
            Ensemble(
                samples=round(per_input * d),
                features=round(width * d),
                inputs=d,
                loss=loss,
                ridge=ridge,
                activation=activation,
            )
            for d in sizes
        ]
        theory = ensemble_evolution(problems[-1])
        runs = [
            simulate_ensemble(problem, learners, k, seed=place)
            for problem, k in zip(problems, seeds, strict=True)
        ]
        expected = {"m": theory.m, "q": theory.q, "q1": theory.q1, "mean_error": theory.error(learners)}
        if theory.vote_error(learners) is not None:
            expected["vote_error"] = theory.vote_error(learners)
        scores += [
            z_score(value, sizes, [getattr(run, name) for run in runs]) for name, value in expected.items()
        ]
    return scores


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [
        [("square", "sign", 2, 0.5, 0.01, 4), ("square", "tanh:2", 1.5, 2, 0.02, 4)],
        [("logistic", "sign", 2, 1.5, 0.01, 3), ("logistic", "sign", 2, 0.5, 1.0, 3)],
        [("hinge", "sign", 2, 1.5, 0.1, 3)],
    ],
    ids=["square", "logistic", "hinge"],
)
def test_trained_ensembles_tend_to_the_theory(cases) -> None:
    """From d = 40 on. The hinge family was first run at d = 20, 40, 80 with 64, 32, 16 draws and failed.

    Its rms was 1.58 (m +2.3, error of the mean -2.3), with 600, 300, 100 draws 1.29. That is chance: 600, 400
    and 150 other draws at these sizes have an rms of 0.48 and no sign of a bias (-0.5, 0.6, 0.2, 0.1, 0.7).
    The five z of one case are worth two, since m, q, q1 and both errors move together (eigenvalues of their
    correlation 3.0, 1.3, 0.4, 0.1, 0.1). Resampled without any bias, families of the first design are above
    1.3 in 20 of 100 and above 1.58 in 10; its standard errors are 6% too small, those of this one 3%.
    """
    scores = family(cases, (40, 80), (32, 24))
    assert holds(scores), scores


@pytest.mark.long
@pytest.mark.parametrize(
    "cases",
    [
        [("square", "sign", 2, w, r, 4) for w, r in ((0.5, 0.01), (1.5, 0.01), (3, 0.1))]
        + [("square", "tanh:2", 1.5, 2, 0.02, 4)],
        [("logistic", "sign", n, w, r, 3) for n, w, r in ((2, 1.5, 0.01), (2, 0.5, 1.0), (1, 2, 0.1))],
        [("hinge", "sign", 2, 1.5, 0.1, 3)],
    ],
    ids=["square", "logistic", "hinge"],
)
def test_larger_ensembles_tend_to_the_theory(cases) -> None:
    scores = family(cases, (40, 80, 160), (48, 32, 16))
    assert holds(scores), scores
