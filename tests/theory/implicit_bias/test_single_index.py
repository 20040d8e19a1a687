"""A single-index model: risk by quadrature, by another quadrature, by gradient descent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from theory.regression.agree import holds

from attnlaw.core.errors import BadSetting
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.implicit_bias.early_stopping import flow_at_threshold, flow_at_time
from attnlaw.theory.implicit_bias.single_index import SingleIndex, moments, predict_index, simulate_index

# p = 2000, s = 10, noise 0.25: link, samples, init, risk, kept.
REFERENCE = [
    ("tanh:2", 1000, 1e-6, 0.010904, 10.19),
    ("relu", 1000, 1e-6, 0.01760, 9.82),
    ("wave", 2000, 1e-4, 0.00943, 10.19),
    ("sin", 500, 1e-6, 0.0453, 9.23),
]


@pytest.mark.parametrize(("link", "samples", "init", "risk", "kept"), REFERENCE)
def test_reference_values(link: str, samples: int, init: float, risk: float, kept: float) -> None:
    prediction = predict_index(SingleIndex(link=link, samples=samples, init=init))
    assert prediction.risk == pytest.approx(risk, rel=6e-4)  # three to five digits
    assert prediction.kept == pytest.approx(kept, abs=5.1e-3)
    assert prediction.false_positives == pytest.approx(0.192, abs=5.1e-4)


def test_a_smaller_start_of_the_wave() -> None:
    assert predict_index(SingleIndex(link="wave", samples=2000)).risk == pytest.approx(0.00920, abs=5.1e-6)


@pytest.mark.parametrize(
    ("samples", "scaled"), [(250, 7.71), (500, 2.55), (1000, 1.233), (4000, 1.230), (16000, 1.230)]
)
def test_the_rate_starts_once_signals_pass_the_threshold(samples: int, scaled: float) -> None:
    problem = SingleIndex(samples=samples, init=1e-8)
    power = moments(problem)[1]
    assert samples * predict_index(problem).risk / (10 * power) == pytest.approx(scaled, abs=5.1e-3)


@pytest.mark.parametrize(("dimension", "risk"), [(200, 0.01055), (200_000, 0.01258)])
def test_the_dimension_enters_by_its_logarithm(dimension: int, risk: float) -> None:
    prediction = predict_index(SingleIndex(dimension=dimension, init=1e-8))
    assert prediction.risk == pytest.approx(risk, abs=5.1e-6)


def test_the_risk_by_adaptive_quadrature() -> None:
    """Moments of tanh(2 g) and the risk with the stated flow, all by quad."""
    problem = SingleIndex(samples=700, dimension=300, signals=4)
    prediction = predict_index(problem)

    def mean(f, m: float = 0.0, sd: float = 1.0) -> float:
        ends = (m - 9 * sd, m + 9 * sd)
        return quad(lambda x: f(x) * norm.pdf(x, m, sd), *ends, limit=400, epsabs=1e-13, epsrel=1e-11)[0]

    mu = mean(lambda g: 2 / np.cosh(2 * g) ** 2)  # E f', not E g f
    power = mean(lambda g: np.tanh(2 * g) ** 2) + 0.25
    squared = mean(lambda g: g * g * np.tanh(2 * g) ** 2) + 0.25
    tau = np.sqrt(2 * np.log(300) * power / 700)
    time = np.log(tau / 1e-12) / (8 * tau)
    on = np.sqrt((power + (squared - power - mu**2) / 4) / 700)
    risk = 4 * mean(lambda x: (float(flow_at_time(x, 1e-6, time)) - mu / 2) ** 2, mu / 2, on)
    risk += 296 * mean(lambda x: float(flow_at_time(x, 1e-6, time)) ** 2, 0.0, np.sqrt(power / 700))
    assert (prediction.slope, prediction.tau, prediction.time) == pytest.approx((mu, tau, time), rel=1e-9)
    assert prediction.risk == pytest.approx(risk, rel=1e-7)


@pytest.mark.slow
def test_gradient_descent_agrees() -> None:
    """60 draws of each reference problem, seeds 0 to 3: risks, and coefficients kept."""
    risks, counts = [], []
    for place, (link, samples, init, _, _) in enumerate(REFERENCE):
        problem = SingleIndex(link=link, samples=samples, init=init)
        theory, measured = predict_index(problem), simulate_index(problem, 60, place)
        risks.append((measured.risk.value - theory.risk) / measured.risk.error)
        counts.append((measured.kept.value - theory.kept) / measured.kept.error)
    assert holds(risks), risks
    assert holds(counts), counts


@pytest.mark.parametrize("rule", ["hard", "soft"])
def test_thresholds_agree(rule: str) -> None:
    family = []
    for place, c in enumerate((0.6, 1.0, 1.6)):
        problem = SingleIndex(rule=rule, threshold=c)
        theory, measured = predict_index(problem), simulate_index(problem, 100, place)
        family.append((measured.risk.value - theory.risk) / measured.risk.error)
        assert theory.time is None
    assert holds(family), family


@pytest.mark.slow
def test_false_positives_do_not_see_the_noise() -> None:
    """All of X drawn, heavy tails among the noises: the count is that of normal coefficients given |y|."""
    n, p, s, family = 60, 1000, 10, []
    expected = predict_index(SingleIndex(samples=n, dimension=p)).false_positives
    for place, degrees in enumerate((2.2, 3.0, np.inf)):
        rng, counts = np.random.default_rng(place), []
        for _ in range(150):
            X = rng.standard_normal((n, p))
            noise = rng.standard_normal(n) if np.isinf(degrees) else rng.standard_t(degrees, n)
            y = np.tanh(2 * X[:, :s].sum(axis=1) / np.sqrt(s)) + 0.5 * noise
            tau = np.sqrt(2 * np.log(p)) * np.linalg.norm(y) / n
            counts.append(float((np.abs(X[:, s:].T @ y / n) > tau).sum()))
        mean = mean_of(counts)
        family.append((mean.value - expected) / np.sqrt(expected / 150))  # counts are Poisson
    assert holds(family), family


@pytest.mark.slow
def test_a_threshold_that_moves_with_the_labels_costs_less() -> None:
    """ReLU: at the mean threshold .01731(23), by theory .01760; at |y| of the draw .01632(22)."""
    problem = SingleIndex(link="relu")
    theory, rng = predict_index(problem), np.random.default_rng(0)
    mu, p = theory.slope, problem.dimension
    truth = np.append(np.full(10, mu / np.sqrt(10)), np.zeros(p - 10))
    fixed, moving = [], []
    for _ in range(2000):
        X = rng.standard_normal((1000, 10))
        y = np.maximum(X.sum(axis=1) / np.sqrt(10), 0) + 0.5 * rng.standard_normal(1000)
        length = float(np.linalg.norm(y))
        phi = np.append(X.T @ y / 1000, length / 1000 * rng.standard_normal(p - 10))
        for tau, costs in ((theory.tau, fixed), (np.sqrt(2 * np.log(p)) * length / 1000, moving)):
            costs.append(float(((flow_at_threshold(phi, tau, problem.init) - truth) ** 2).sum()))
    fixed_risk, other = mean_of(fixed), mean_of(moving)
    assert fixed_risk.value == pytest.approx(0.01731, abs=4 * np.hypot(fixed_risk.error, 0.00023))
    assert other.value == pytest.approx(0.01632, abs=4 * np.hypot(other.error, 0.00022))
    assert fixed_risk.value == pytest.approx(theory.risk, abs=4 * fixed_risk.error)
    assert other.value < fixed_risk.value


def test_more_signals_than_dimensions_is_one_line() -> None:
    with pytest.raises(BadSetting, match="signals: found 20, expected at most dimension"):
        SingleIndex(dimension=10, signals=20)
