"""The empirical risk: gradients by finite differences, the logistic form at T = 2, bounds of curvature."""

import numpy as np
import pytest
from scipy.special import expit

from attnlaw.theory.learn.data import draw_sensing
from attnlaw.theory.learn.risk import Linear, Risk, Softmax

SIZE, SAMPLES = 5, 12


def make_risk(output_name: str, tokens: int, seed: int = 0, sensing: str = "tokens") -> Risk:
    rng = np.random.default_rng(seed)
    data = draw_sensing(sensing, samples=SAMPLES, tokens=tokens, size=SIZE, rng=rng)
    pairs = tokens * (tokens + 1) // 2
    output = Linear(rng.uniform(0.5, 2.0, (SAMPLES, pairs))) if output_name == "linear" else Softmax(1.7)
    return Risk(data, output, output.labels(rng.standard_normal((SAMPLES, pairs)), tokens))


def symmetric(rng: np.random.Generator) -> np.ndarray:
    draw = rng.standard_normal((SIZE, SIZE))
    return draw + draw.T


@pytest.mark.parametrize("sensing", ["tokens", "goe"])
@pytest.mark.parametrize(("output", "tokens"), [("linear", 1), ("linear", 3), ("softmax", 2), ("softmax", 4)])
def test_gradient_against_finite_differences(output: str, tokens: int, sensing: str) -> None:
    """Central differences at two steps: their difference bounds the truncation, 1e-14 R/h the round-off."""
    risk = make_risk(output, tokens, sensing=sensing)
    rng = np.random.default_rng(1)
    matrix = 0.3 * symmetric(rng)
    _, gradient = risk(matrix)
    for _ in range(5):
        direction = symmetric(rng)
        fine, coarse = (
            (risk(matrix + step * direction)[0] - risk(matrix - step * direction)[0]) / (2 * step)
            for step in (1e-5, 2e-5)
        )
        tolerance = abs(fine - coarse) + 1e-14 * risk(matrix)[0] / 1e-5
        assert tolerance < 1e-5 * np.linalg.norm(gradient)
        assert np.vdot(gradient, direction) == pytest.approx(fine, abs=tolerance)


def test_linear_risk_counts_every_ordered_pair() -> None:
    risk = make_risk("linear", 3)
    assert isinstance(risk.output, Linear)
    matrix = symmetric(np.random.default_rng(2))
    h = risk.sensing.fields(matrix)
    place = {pair: p for p, pair in enumerate(zip(*np.triu_indices(3), strict=True))}
    total = 0.0
    for mu in range(SAMPLES):
        for a in range(3):
            for b in range(3):
                p = place[min(a, b), max(a, b)]
                total += risk.output.weights[mu, p] * (risk.labels[mu, p] - h[mu, p]) ** 2
    assert risk(matrix)[0] == pytest.approx(total, rel=1e-12)


def test_softmax_of_two_tokens_is_logistic() -> None:
    """l = 2 sum_a (y_a - s(beta v_a))^2 with v_a = h_aa - h_12."""
    risk = make_risk("softmax", 2)
    assert isinstance(risk.output, Softmax)
    matrix = symmetric(np.random.default_rng(4))
    h = risk.sensing.fields(matrix)
    v = h[:, [0, 2]] - h[:, [1]]
    y = np.stack([risk.labels[:, 0, 0], risk.labels[:, 1, 1]], axis=1)
    assert risk(matrix)[0] == pytest.approx(2 * np.sum((y - expit(risk.output.beta * v)) ** 2), rel=1e-12)


def test_softmax_survives_large_fields() -> None:
    output = Softmax(4.0)
    value, gradient = output.loss(np.array([[900.0, -900.0, 900.0]]), np.eye(2)[None], 2)
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize(("output", "tokens"), [("linear", 2), ("softmax", 2), ("softmax", 3)])
def test_curvature_bounds_the_second_derivative(output: str, tokens: int) -> None:
    """Second differences of R never exceed the bound (equality for the linear output), nor 1/step."""
    risk = make_risk(output, tokens)
    rng = np.random.default_rng(5)
    for _ in range(40):
        matrix, direction = rng.uniform(0, 1) * symmetric(rng), symmetric(rng)
        direction /= np.linalg.norm(direction)
        step = 1e-4
        second = np.vdot(risk(matrix + step * direction)[1] - risk(matrix - step * direction)[1], direction)
        second /= 2 * step
        bound = np.vdot(risk.curvature(direction), direction)
        assert second <= bound * (1 + 1e-6)
        assert bound <= 1 / risk.step()
        if output == "linear":
            assert second == pytest.approx(bound, rel=1e-6)


def test_step_is_close_to_the_largest_curvature() -> None:
    """Between 1/1.1 and 1 of the exact inverse, from the dense second derivative."""
    risk = make_risk("linear", 2)
    basis = np.eye(SIZE * SIZE).reshape(-1, SIZE, SIZE)
    basis = 0.5 * (basis + basis.transpose(0, 2, 1))
    images = np.array([risk.curvature(unit).reshape(-1) for unit in basis])
    largest = np.linalg.eigvalsh(0.5 * (images + images.T)).max()
    assert 0.9 <= risk.step() * largest <= 1.0
