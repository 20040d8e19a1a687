"""The direct student: its closed form, SGD sample by sample, traps and false ends."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.theory.dynamics.potential import potential_of
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.laws.transformed import Mirrored
from attnlaw.theory.learn.agreement import spectrum_distance
from attnlaw.theory.learn.problem import Problem, Target


def test_plain_scores_have_a_closed_form() -> None:
    problem = Problem(student="direct", tokens=2, noise=0.5)
    times = np.array([0.01, 0.05, 0.3])
    eta, q0, Q = 0.3, 0.49, 1.5
    path = trajectory(problem, Schedule(times, learning_rate=eta))
    last = eta * 0.25 / (1 - eta)
    expected = last + (Q + q0 - last) * np.exp(-4 * 6 * (1 - eta) * times)
    assert path.estimation_error[1:] == pytest.approx(expected, abs=1e-8)
    assert str(path.outcome) == "done"
    assert str(trajectory(problem, Schedule([0.01], learning_rate=1.2)).outcome) == "unstable"


def sgd(size: int, eta: float, noise: float, times: list[float], rng: np.random.Generator) -> np.ndarray:
    """E of SGD on S itself, one Gaussian sensing matrix a step, in coordinates: S_ii and sqrt(2) S_ij."""
    count = size * (size + 1) // 2
    first, second = np.triu_indices(size)
    weight = np.where(first == second, 1.0, np.sqrt(2.0))
    eigenvalues = Target.marchenko_pastur(0.5).quantiles(size)
    target = np.where(first == second, eigenvalues[first], 0.0)
    Z = rng.standard_normal((size, size))
    start = (Z + Z.T) / np.sqrt(2 * size)
    S = start[first, second] * weight
    S *= np.sqrt(size / (S @ S))
    lr, errors, done = eta / size, [], 0
    for time in times:
        steps = round(time * size / lr) - done
        done += steps
        for _ in range(steps):
            A = np.sqrt(2.0 / size) * rng.standard_normal(count)
            S = S - 2 * lr * (A @ (S - target) - np.sqrt(noise) * rng.standard_normal()) * A
        errors.append(np.sum((S - target) ** 2) / size - np.sum(target**2) / size)
    return np.array(errors)


def test_sgd_with_gaussian_sensing_agrees() -> None:
    """One sample a step, eta = 0.3: E at d = 12 and 24, extrapolated in 1/d, within 4 standard errors."""
    times, eta, noise = [0.05, 0.2, 0.8], 0.3, 0.5
    runs = {
        size: np.array([sgd(size, eta, noise, times, np.random.default_rng([size, k])) for k in range(seeds)])
        for size, seeds in ((12, 24), (24, 10))
    }
    small, large = runs[12], runs[24]
    value = 2 * large.mean(axis=0) - small.mean(axis=0)
    error = np.sqrt(4 * large.var(axis=0, ddof=1) / len(large) + small.var(axis=0, ddof=1) / len(small))
    schedule = Schedule(times, learning_rate=eta, scale=1.0)
    path = trajectory(Problem(student="direct", noise=noise), schedule)
    expected = path.estimation_error[1:] - 1.5
    assert np.abs((value - expected) / error).max() < 4
    assert error.max() < 0.1


def test_an_even_output_keeps_a_direct_student_at_no_overlap() -> None:
    """m = 0 is invariant (arXiv 2609.03858, corollary 7); q = Q*/3, loss 16 Q*^2/3."""
    path = trajectory(
        Problem(student="direct", output="hermite2"), Schedule(np.geomspace(1e-3, 2, 60), scale=1.0)
    )
    assert path.norm[-1] == pytest.approx(0.5, abs=1e-9)
    assert path.prediction_error[-1] == pytest.approx(12.0, abs=1e-8)
    assert np.abs(path.alignment).max() == 0
    assert path.plateaus[-1][1] == 2.0
    assert path.recovery_time() is None
    # There an overlap grows at the rate 16 Q*: dm/dtau = -2 (G m + H Q*), G = 0, H = -8 m.
    G, H = potential_of(path.problem).gains(path.norm[-1], 1e-3)
    assert pytest.approx(16 * 1.5, abs=1e-6) == -2 * (G * 1e-3 + H * 1.5) / 1e-3


@pytest.mark.parametrize("q0", [0.1, 1.0, 2.0])
def test_a_cubic_output_ends_at_a_false_minimum(q0: float) -> None:
    problem = Problem(student="direct", output="hermite3")
    path = trajectory(problem, Schedule([3.0], scale=np.sqrt(q0)))
    assert (path.norm[-1], path.overlap[-1]) == pytest.approx((0.0786, -0.3434), abs=5e-5)
    law = path.spectrum(0.2)
    assert isinstance(law, Mirrored)
    assert law.moment(2) == pytest.approx(trajectory(problem, Schedule([0.2], scale=np.sqrt(q0))).norm[1])


def test_the_spectrum_is_that_of_a_matrix() -> None:
    """Eigenvalues of the flow of a matrix at d = 400: c0 S0 + c1 S*, c = 1 - exp(-2 G tau)."""
    problem, time, size = Problem(student="direct"), 0.2, 400
    path = trajectory(problem, Schedule([time], scale=0.7))
    Z = np.random.default_rng(0).standard_normal((size, size))
    kept = np.exp(-4 * time)
    S = kept * 0.7 * (Z + Z.T) / np.sqrt(2 * size) + (1 - kept) * np.diag(problem.target.quantiles(size))
    law = path.spectrum(time)
    assert law.moment(2) == pytest.approx(path.norm[1], abs=1e-9)
    assert spectrum_distance(np.linalg.eigvalsh(S), law) < 0.02
    assert path.spectrum(0.0).moment(2) == pytest.approx(0.49)


def test_a_spike_stands_out_of_a_direct_student() -> None:
    problem = Problem(student="direct", target=Target.marchenko_pastur(0.5).with_spikes(6.0))
    path = trajectory(problem, Schedule([0.3]))
    (late,) = path.outliers(0.3)
    c1 = 1 - np.exp(-4 * 0.3)
    assert late.location == pytest.approx(6 * c1, rel=0.02)
    assert path.outliers(0.001) == ()
    assert path.outliers(0.0) == ()
