"""Two linear layers: the closed form against the integrated flow, reference risks, simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from theory.regression.agree import holds

from attnlaw.core.errors import InputError
from attnlaw.theory.regression.problem import Group, Regression
from attnlaw.theory.regression.two_layer import simulate_two_layer, two_layer_limit, two_layer_risk

SPIKED = Regression(
    (Group(1.0, np.repeat([10.0, 0.02], [5, 2000]), noise=0.25),),
    np.repeat([5**-0.5, 0.0], [5, 2000]),
    100,
)
# Risk against the scale of a layer at the start.
RISKS = {0.03: 0.04151, 0.1: 0.04174, 0.3: 0.04383, 1.0: 0.07784, 3.0: 1.6103}


def flow(X: np.ndarray, y: np.ndarray, start: np.ndarray, time: float) -> np.ndarray:
    """From the balanced start W = v w_0^T/|w_0|, |v|^2 = |w_0|."""
    length = np.linalg.norm(start)
    v = np.full(3, np.sqrt(length / 3))
    return integrated(X, y, np.outer(v, start / length), v, time)


def integrated(X: np.ndarray, y: np.ndarray, W: np.ndarray, v: np.ndarray, time: float) -> np.ndarray:
    """w = W^T v at a time of W' = -v g^T, v' = -W g, g the gradient in w."""
    hidden, p = W.shape

    def slope(_: float, state: np.ndarray) -> np.ndarray:
        W, v = state[: hidden * p].reshape(hidden, p), state[hidden * p :]
        g = X.T @ (X @ (W.T @ v) - y)
        return np.append(-np.outer(v, g).ravel(), -W @ g)

    ended = solve_ivp(slope, (0, time), np.append(W.ravel(), v), method="LSODA", rtol=1e-11, atol=1e-13)
    state = ended.y[:, -1]
    return state[: hidden * p].reshape(hidden, p).T @ state[hidden * p :]


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 3.0])
def test_the_limit_of_the_integrated_flow(scale: float) -> None:
    """Balanced starts of three scales; least norm alone is off by 9%, 76%, 99% at such scales."""
    rng = np.random.default_rng(0)
    X, y, u = rng.standard_normal((4, 9)), rng.standard_normal(4), rng.standard_normal(9)
    start = scale**2 * u / np.linalg.norm(u)
    limit = two_layer_limit(X, y, start)
    ended = flow(X, y, start, 200.0)
    # rtol of the integration, over its steps.
    assert limit.weights == pytest.approx(ended, abs=1e-8 * limit.norm)
    assert X @ limit.weights == pytest.approx(y, abs=1e-12)
    assert np.linalg.norm(limit.weights) == pytest.approx(limit.norm, rel=1e-12)
    least = np.linalg.pinv(X) @ y
    assert np.linalg.norm(limit.weights - least) == pytest.approx(limit.distance_to_least_norm, rel=1e-9)
    assert limit.distance_to_least_norm > 0.01 * scale * limit.norm


def test_an_unbalanced_start_has_another_end() -> None:
    """Gaussian layers: the distance from the least norm falls with their scale, and is not the formula's."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 9)), rng.standard_normal(4)
    W, v, least = rng.standard_normal((3, 9)), rng.standard_normal(3), np.linalg.pinv(X) @ y
    away = []
    for scale in (1e-3, 1e-2, 0.1):
        ended = integrated(X, y, scale * W, scale * v, 200.0)
        assert X @ ended == pytest.approx(y, abs=1e-6)
        away.append(np.linalg.norm(ended - least) / np.linalg.norm(least))
        balanced = two_layer_limit(X, y, scale**2 * W.T @ v).distance_to_least_norm / np.linalg.norm(least)
        assert away[-1] > 1.3 * balanced
    # .007, .07 and .57 with other data.
    assert away[1] / away[0] == pytest.approx(10, rel=0.1)
    assert away[2] / away[1] == pytest.approx(10, rel=0.4)


@pytest.mark.parametrize(("scale", "risk"), RISKS.items())
def test_reference_risks(scale: float, risk: float) -> None:
    prediction = two_layer_risk(SPIKED, scale)
    assert prediction.excess == pytest.approx(risk, rel=1.3e-4)  # five digits, the first two of them few
    assert prediction.excess == prediction.bias + prediction.variance + prediction.start


def test_a_matrix_of_covariance_gives_the_same() -> None:
    small = Regression((Group(1.0, np.repeat([4.0, 0.1], [2, 38]), noise=0.2),), np.eye(40)[0], 10)
    full = Regression((Group(1.0, np.diag(small.groups[0].covariance), noise=0.2),), np.eye(40)[0], 10)
    assert two_layer_risk(full, 0.7).excess == pytest.approx(two_layer_risk(small, 0.7).excess, rel=1e-10)


def test_simulations_agree() -> None:
    """Independent draws for each scale, and the norms; a shorter tail, which is cheap to draw."""
    problem = Regression(
        (Group(1.0, np.repeat([10.0, 0.1], [5, 400]), noise=0.25),), np.repeat([5**-0.5, 0.0], [5, 400]), 100
    )
    family = []
    for place, scale in enumerate((0.1, 0.3, 1.0, 3.0)):
        theory, measured = two_layer_risk(problem, scale), simulate_two_layer(problem, scale, 32, place)
        for name in ("excess", "norm"):
            estimate = getattr(measured, name)
            family.append((estimate.value - getattr(theory, name)) / estimate.error)
    assert holds(family), family


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_layer_limit(np.eye(2), np.ones(2), np.zeros(2)), "the initial weights are zero"),
        (lambda: two_layer_limit(np.ones((2, 2)), [0.0, 1.0], np.ones(2)), "no map fits the labels"),
        (
            lambda: two_layer_limit(np.eye(2), np.ones(3), np.ones(2)),
            r"two layers: found .* labels of shape \(3,\)",
        ),
        (lambda: two_layer_risk(Regression(SPIKED.groups, SPIKED.signal, 100, 0.1), 1.0), "no ridge"),
        (lambda: two_layer_risk(SPIKED, 0.0), "scale: found 0, expected a number above 0"),
    ],
)
def test_bad_input_is_one_line(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
