"""State evolution of the factorized and the direct student: reference values, equations, limits, groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.plain_convolution import integral
from scipy.integrate import quad
from scipy.optimize import brentq, fsolve, minimize_scalar

from attnlaw.core.estimate import Outcome
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution, state_evolutions

MP = Target.marchenko_pastur(0.5)
FIRST = Problem(alpha=0.2, tokens=1, target=MP, noise=0.5, weight_decay=0.1)
SECOND = Problem(alpha=0.1, tokens=2, target=MP, noise=0.5, weight_decay=0.1)
THIRD = Problem(alpha=0.3, tokens=1, target=MP, noise=0.5, weight_decay=0.6)
DIRECT = replace(FIRST, student="direct")

# Independently solved and confirmed by simulation; as many digits as are known, each right to half its last
# one.
REFERENCE = [
    (FIRST, "noise_level", "1.62175"),
    (FIRST, "estimation_error", ".802029"),
    (FIRST, "training_loss", ".020540"),
    (FIRST, "rank_fraction", ".385931"),
    (FIRST, "norm", "1.182419"),
    (FIRST, "trace", ".557928"),
    (SECOND, "noise_level", "1.185504"),
    (SECOND, "estimation_error", ".593252"),
    (SECOND, "training_loss", ".109642"),
    (SECOND, "rank_fraction", ".496637"),
    (THIRD, "noise_level", "1.156969"),
    (THIRD, "estimation_error", ".553147"),
    (THIRD, "training_loss", ".296004"),
    (THIRD, "rank_fraction", ".363681"),
    (DIRECT, "estimation_error", "1.022695"),
    (DIRECT, "training_loss", ".044878"),
    (DIRECT, "norm", ".563357"),
]


@pytest.mark.parametrize(("problem", "name", "digits"), REFERENCE)
def test_reference_values(problem: Problem, name: str, digits: str) -> None:
    tolerance = 0.5 * 10.0 ** -len(digits.split(".")[1])
    prediction = state_evolution(problem)
    assert prediction.converged
    assert getattr(prediction, name).value == pytest.approx(float(digits), abs=1.001 * tolerance)


@pytest.mark.parametrize(("problem", "eps"), [(FIRST, 12.6515), (SECOND, 5.660877)])
def test_reference_thresholds(problem: Problem, eps: float) -> None:
    assert state_evolution(problem).threshold.value == pytest.approx(problem.weight_decay * eps, rel=1e-5)


def test_reference_top_edge() -> None:
    law = state_evolution(THIRD).spectrum
    assert law.support[1] == pytest.approx(3.498, abs=5e-4)


@pytest.mark.parametrize("problem", [FIRST, SECOND, THIRD])
def test_the_two_equations_hold_by_adaptive_quadrature(problem: Problem) -> None:
    prediction = state_evolution(problem)
    delta, b, alpha = prediction.noise_level.value, prediction.threshold.value, problem.observations
    eps = b / problem.weight_decay
    J = integral(0.5, delta, lambda x, g: (x - b) ** 2, above=b)
    M1 = integral(0.5, delta, lambda x, g: x - b, above=b)
    chi = 2 * integral(0.5, delta, lambda x, g: (x - b) * g.real, above=b)
    # quad's own error is about 1e-9.
    assert 4 * alpha == pytest.approx(1 / eps + 2 * chi, abs=1e-8)
    left = 1.5 + 0.25 + 2 * alpha * delta**2 - delta**2 / eps
    assert left == pytest.approx(J + 2 * b * M1, abs=1e-8)
    assert prediction.overlap.value == pytest.approx(J + b * M1 - delta**2 * chi, abs=1e-8)
    assert prediction.norm.value == pytest.approx(J, abs=1e-8)


def test_direct_student_against_its_equations() -> None:
    lam, alpha, Q, noise = 0.1, 0.2, 1.5, 0.5

    def miss(state: np.ndarray) -> list[float]:
        V, E = state
        Vhat = 8 * alpha / (1 + 4 * V)
        s = Vhat / (Vhat + 4 * lam)
        best = ((1 - s) ** 2 * Q + s**2 * noise / (4 * alpha)) / (1 - s**2 / (2 * alpha))
        return [V - 1 / (Vhat + 4 * lam), E - best]

    V, E = fsolve(miss, [1.0, 1.0], xtol=1e-13)
    prediction = state_evolution(DIRECT)
    assert prediction.estimation_error.value == pytest.approx(E, rel=1e-9)
    assert prediction.training_loss.value == pytest.approx(2 * (E + noise / 2) / (1 + 4 * V) ** 2, rel=1e-9)
    assert prediction.estimation_error.value == pytest.approx(
        Q - 2 * prediction.overlap.value + prediction.norm.value, rel=1e-12
    )


def test_direct_student_is_best_at_the_known_penalty() -> None:
    errors = [
        state_evolution(replace(DIRECT, weight_decay=0.5 / (2 * 1.5) * factor)).estimation_error.value
        for factor in (0.97, 1.0, 1.03)
    ]
    assert errors[1] < min(errors[0], errors[2])


def test_spectrum_carries_the_norm_the_trace_and_the_rank() -> None:
    for problem in (FIRST, DIRECT):
        prediction = state_evolution(problem)
        assert prediction.spectrum.moment(1) == pytest.approx(prediction.trace.value, abs=1e-9)
        assert prediction.spectrum.moment(2) == pytest.approx(prediction.norm.value, abs=1e-9)
    assert 1 - state_evolution(FIRST).spectrum.atoms[0][1] == pytest.approx(
        state_evolution(FIRST).rank_fraction.value, abs=1e-12
    )
    assert state_evolution(DIRECT).spectrum.support[0] < 0


def test_marchenko_pastur_against_a_fine_discrete_spectrum() -> None:
    points, weights = MP.law.nodes()
    fine = Target.discrete([0.0, *points], [0.5, *weights])
    prediction, other = state_evolution(THIRD), state_evolution(replace(THIRD, target=fine))
    for name in ("estimation_error", "noise_level", "rank_fraction", "training_loss", "trace"):
        # Quadrature points stand for the law to rounding at a distance delta > 1 from the line.
        assert getattr(other, name).value == pytest.approx(getattr(prediction, name).value, abs=1e-9)


def test_splitting_a_group_changes_nothing() -> None:
    halves = (ObservationGroup(noise=0.5, share=0.4), ObservationGroup(noise=0.5, share=0.6))
    whole = state_evolution(FIRST)
    for student in ("factorized", "direct", "bayes"):
        problem = replace(FIRST, student=student)
        split = state_evolution(replace(problem, noise=0.0, groups=halves))
        assert split.estimation_error.value == pytest.approx(
            state_evolution(problem).estimation_error.value, rel=1e-11
        )
    assert state_evolution(replace(FIRST, noise=0.0, groups=halves)).training_loss.value == pytest.approx(
        whole.training_loss.value, rel=1e-10
    )


def test_weights_and_weight_decay_scale_together() -> None:
    doubled = replace(SECOND, noise=0.0, weight_decay=0.2, groups=(ObservationGroup(weight=2.0, noise=0.5),))
    prediction = state_evolution(doubled)
    assert prediction.estimation_error.value == pytest.approx(
        state_evolution(SECOND).estimation_error.value, rel=1e-11
    )
    assert prediction.training_loss.value == pytest.approx(
        2 * state_evolution(SECOND).training_loss.value, rel=1e-10
    )


def test_a_vanishing_weight_removes_its_observations() -> None:
    diagonal = ObservationGroup("diagonal", noise=0.5)
    forgotten = ObservationGroup("off-diagonal", weight=1e-9, noise=0.5)
    left = state_evolution(replace(SECOND, noise=0.0, groups=(diagonal, forgotten)))
    # Two tokens give two diagonal entries per sample: the problem of one token with twice the samples.
    alone = state_evolution(replace(FIRST, alpha=2 * SECOND.alpha))
    assert left.estimation_error.value == pytest.approx(alone.estimation_error.value, rel=1e-6)


def test_unequal_groups_satisfy_their_equations() -> None:
    groups = (ObservationGroup(noise=0.1, share=0.5), ObservationGroup(weight=0.2, noise=4.0, share=0.5))
    problem = Problem(0.4, target=MP, weight_decay=0.3, groups=groups)
    prediction = state_evolution(problem)
    delta, b, E = prediction.noise_level.value, prediction.threshold.value, prediction.estimation_error.value
    alpha, weight, noise = np.array([[0.2, 2.0, 0.05], [0.2, 0.4, 2.0]]).T
    J = integral(0.5, delta, lambda x, g: (x - b) ** 2, above=b)
    M1 = integral(0.5, delta, lambda x, g: x - b, above=b)
    chi = 2 * integral(0.5, delta, lambda x, g: (x - b) * g.real, above=b)
    Vhat = 2 * problem.weight_decay / b
    V = chi / Vhat
    c = 2 * weight / (1 + 2 * weight * V)
    # quad's own error is about 1e-9.
    assert Vhat == pytest.approx((2 * alpha * c).sum(), rel=1e-7)
    assert delta == pytest.approx(np.sqrt((2 * alpha * c**2 * (E + noise)).sum()) / Vhat, rel=1e-7)
    assert pytest.approx(E, rel=1e-7) == 1.5 - 2 * (J + b * M1 - delta**2 * chi) + J
    loss = (alpha * weight * (E + noise) / (1 + 2 * weight * V) ** 2).sum() / 0.4
    assert prediction.training_loss.value == pytest.approx(loss, rel=1e-7)


def test_unequal_groups_of_the_direct_student() -> None:
    groups = (ObservationGroup(noise=0.1, share=0.5), ObservationGroup(weight=0.2, noise=4.0, share=0.5))
    prediction = state_evolution(Problem(0.4, target=MP, weight_decay=0.3, groups=groups, student="direct"))
    alpha, weight, noise = np.array([[0.2, 2.0, 0.05], [0.2, 0.4, 2.0]]).T
    s, delta, E = prediction.shrinkage, prediction.noise_level.value, prediction.estimation_error.value
    Vhat = 4 * 0.3 * s / (1 - s)
    c = 2 * weight / (1 + 2 * weight / (Vhat + 4 * 0.3))
    assert Vhat == pytest.approx((2 * alpha * c).sum(), rel=1e-10)
    assert delta == pytest.approx(np.sqrt((2 * alpha * c**2 * (E + noise)).sum()) / Vhat, rel=1e-10)
    assert pytest.approx(E, rel=1e-10) == (1 - s) ** 2 * 1.5 + s**2 * delta**2


def test_downweighting_noisy_samples_helps() -> None:
    def error(weight: float) -> float:
        groups = (
            ObservationGroup(noise=0.1, share=0.5),
            ObservationGroup(weight=weight, noise=4.0, share=0.5),
        )
        return state_evolution(
            Problem(0.4, target=MP, weight_decay=0.3, groups=groups)
        ).estimation_error.value

    assert error(0.2) < error(1.0)


def test_no_data_and_huge_penalty_learn_nothing() -> None:
    huge = state_evolution(replace(FIRST, weight_decay=1e4))
    assert huge.estimation_error.value == pytest.approx(1.5, abs=1e-12)
    assert huge.rank_fraction.value == 0.0
    assert huge.spectrum.atoms[0][1] == pytest.approx(1.0)
    assert state_evolution(replace(FIRST, alpha=1e-5)).estimation_error.value == pytest.approx(1.5, abs=5e-3)


@pytest.mark.parametrize("decay", [10.0, 1e4])
def test_a_student_that_is_cut_entirely_is_zero(decay: float) -> None:
    cut = state_evolution(replace(FIRST, weight_decay=decay))
    assert (cut.overlap.value, cut.norm.value, cut.trace.value, cut.rank_fraction.value) == (
        0.0,
        0.0,
        0.0,
        0.0,
    )
    assert (cut.estimation_error.value, cut.prediction_error.value) == (1.5, 3.0)


def scale_free_limit(k0: float, alpha: float) -> dict[str, float]:
    """Clean labels and lt -> 0 beyond recovery, in units of lt: b = t delta, and only k0 matters.

    The zeros of the target blur into a semicircle of radius 2 delta sqrt(1-k0), of which what is above b
    stays; the rest has E = delta^2 (1 - (1-k0)^2) + k0 b^2. `E = 2 alpha delta^2` fixes t.
    """
    rest = max(1 - k0, 0.0)

    def tail(power: int, tau: float) -> float:
        if tau >= 2:
            return 0.0
        return quad(lambda x: (x - tau) ** power * np.sqrt(4 - x * x) / (2 * np.pi), tau, 2, epsabs=1e-13)[0]

    def above(power: int, t: float) -> float:
        return rest ** (1 + power / 2) * tail(power, t / np.sqrt(rest)) if rest else 0.0

    def relative_error(t: float) -> float:
        return 1 - rest**2 + min(k0, 1) * t * t + above(2, t)

    # E/delta^2 is convex in t; the branch beyond its minimum is the stable one.
    least = minimize_scalar(relative_error, bounds=(0, 3), method="bounded").x
    t = brentq(lambda at: relative_error(at) - 2 * alpha, least, 1e3, xtol=1e-14)
    chi = 1 - rest**2 + above(2, t) + t * above(1, t)
    b = 1 / (4 * alpha - 2 * chi)
    E = 2 * alpha * (b / t) ** 2
    return {
        "estimation_error": E,
        "noise_level": b / t,
        "threshold": b,
        "rank_fraction": min(k0, 1) + above(0, t),
        "training_loss": 2 * E / (4 * alpha * b) ** 2,
    }


POWERS = {"estimation_error": 2, "training_loss": 2, "noise_level": 1, "threshold": 1, "rank_fraction": 0}


@pytest.mark.parametrize("decay", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("target", [MP, Target.marchenko_pastur(2.0), Target.discrete([0, 1, 2], [2, 1, 1])])
def test_beyond_recovery_all_quantities_scale_with_the_weight_decay(target: Target, decay: float) -> None:
    prediction = state_evolution(Problem(0.6, target=target, weight_decay=decay))
    assert prediction.converged
    for name, value in scale_free_limit(target.rank_fraction, 0.6).items():
        # The limit leaves out terms of relative order delta times the mean of 1/s, which is at most 3 here.
        scaled = getattr(prediction, name).value / decay ** POWERS[name]
        assert scaled == pytest.approx(value, rel=10 * prediction.noise_level.value + 1e-9), name
    assert prediction.spectrum.mass_of_atoms == pytest.approx(1 - prediction.rank_fraction.value, abs=1e-7)


@pytest.mark.parametrize("student", ["factorized", "direct"])
@pytest.mark.parametrize("target", [MP.with_spikes(8.0), Target.power_law(1.0, 40)])
def test_clean_labels_without_a_penalty_give_the_target(student: str, target: Target) -> None:
    prediction = state_evolution(Problem(0.6, target=target, weight_decay=0.0, student=student))
    assert prediction.outcome is Outcome.RECOVERED
    assert prediction.remark.startswith("labels without noise and no weight decay recover the target exactly")
    Q = target.second_moment
    assert (
        prediction.estimation_error.value,
        prediction.training_loss.value,
        prediction.noise_level.value,
    ) == (0, 0, 0)
    assert (prediction.overlap.value, prediction.norm.value, prediction.trace.value) == (Q, Q, target.mean)
    assert (prediction.rank_fraction.value, prediction.spectrum) == (target.rank_fraction, target.law)
    assert prediction.outliers[0].location == pytest.approx(prediction.outliers[0].target, rel=1e-12)
    assert prediction.atom_at_zero == pytest.approx(1 - target.rank_fraction)
    assert prediction.bulk == list(target.law.intervals)


def test_what_double_precision_does_not_resolve_is_missing() -> None:
    target = Target.discrete([0.0, 1.0])
    prediction = state_evolution(Problem(0.6, target=target, weight_decay=1e-14))
    assert prediction.outcome is Outcome.RECOVERED
    truth = scale_free_limit(0.5, 0.6)["estimation_error"] * 1e-28
    assert truth < prediction.estimation_error.value < 1e-18
    missing = (
        prediction.rank_fraction,
        prediction.training_loss,
        prediction.noise_level,
        prediction.threshold,
    )
    assert missing == (None, None, None, None)
    assert (prediction.overlap.value, prediction.norm.value, prediction.spectrum) == (0.5, 0.5, target.law)


def test_the_direct_student_beyond_recovery() -> None:
    """For lambda -> 0, Vhat = 8 alpha - 4, 1 - s = 4 lambda/Vhat and E (1 - 1/(2 alpha)) = (1-s)^2 Q*."""
    prediction = state_evolution(Problem(0.6, target=MP, weight_decay=1e-13, student="direct"))
    lost = 4e-13 / (8 * 0.6 - 4)
    assert prediction.estimation_error.value == pytest.approx(lost**2 * 1.5 / (1 - 1 / 1.2), rel=1e-10)


def test_no_weight_decay_beyond_interpolation() -> None:
    prediction = state_evolution(Problem(0.5, target=MP, noise=0.5, weight_decay=0.0))
    near = state_evolution(Problem(0.5, target=MP, noise=0.5, weight_decay=1e-7))
    assert prediction.threshold.value == 0.0
    assert prediction.estimation_error.value == pytest.approx(near.estimation_error.value, rel=1e-5)


@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
def test_a_batch_is_solved_as_its_members(student: str) -> None:
    problems = [replace(FIRST, student=student, alpha=alpha) for alpha in (0.05, 0.3, 0.8)]
    problems.append(replace(problems[0], target=Target.marchenko_pastur(2.0)))
    together = state_evolutions(problems)
    for problem, prediction in zip(problems, together, strict=True):
        assert prediction.problem == problem
        assert prediction.estimation_error.value == pytest.approx(
            state_evolution(problem).estimation_error.value, rel=1e-10
        )


def test_factorized_beats_direct_on_low_rank_targets() -> None:
    target = Target.marchenko_pastur(0.1)
    factorized = Problem(0.2, target=target, noise=0.2, weight_decay=0.3)
    assert (
        state_evolution(factorized).estimation_error.value
        < 0.5 * state_evolution(replace(factorized, student="direct")).estimation_error.value
    )


def test_outliers_against_a_random_matrix() -> None:
    d = 700
    spiked = replace(THIRD, target=MP.with_spikes(7.0))
    prediction = state_evolution(spiked)
    values = spiked.target.quantiles(d)
    Z = np.random.default_rng(11).normal(size=(d, d)) / np.sqrt(d)
    noisy = np.diag(values) + prediction.noise_level.value * (Z + Z.T) / np.sqrt(2)
    eigenvalues, vectors = np.linalg.eigh(noisy)
    (outlier,) = prediction.outliers
    # Fluctuations of an outlier and of its overlap are of order delta/sqrt(d): four of them.
    spread = 4 * prediction.noise_level.value / np.sqrt(d)
    assert eigenvalues[-1] - prediction.threshold.value == pytest.approx(outlier.location, abs=spread)
    assert vectors[-1, -1] ** 2 == pytest.approx(outlier.overlap, abs=spread)
    assert not state_evolution(replace(THIRD, target=MP.with_spikes(3.1))).outliers


def test_residuals_are_small_along_a_curve() -> None:
    problems = [replace(FIRST, alpha=alpha) for alpha in np.linspace(0.02, 1.0, 40).tolist()]
    assert max(prediction.residual for prediction in state_evolutions(problems)) < 1e-12


@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_prediction_error_counts_scores_of_two_tokens_once_and_of_one_twice(student, tokens):
    """With D = S - S*, Var x^T D y / sqrt(d) = Tr D^2 / d for two tokens, and twice that for one."""
    prediction = state_evolution(Problem(alpha=0.3, tokens=tokens, noise=0.5, student=student))
    pairs, singles = tokens * (tokens - 1), tokens
    assert prediction.prediction_error.value == pytest.approx(
        (pairs + 2 * singles) * prediction.estimation_error.value, rel=1e-12
    )


def test_the_bayes_students_moments_are_those_of_its_spectrum() -> None:
    """Tr S_hat^2/d and Tr S_hat/d by the law of the estimate; E = Q* - q, as of any posterior mean."""
    prediction = state_evolution(Problem(alpha=0.3, noise=0.5, student="bayes"))
    second, first = (prediction.spectrum.moment(k) for k in (2, 1))
    assert (prediction.norm.value, prediction.trace.value) == pytest.approx((second, first), rel=1e-6)
    assert prediction.overlap.value == pytest.approx(prediction.norm.value, rel=1e-12)
    assert prediction.estimation_error.value == pytest.approx(
        prediction.problem.target.second_moment - second, rel=1e-6
    )
