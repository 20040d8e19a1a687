"""Untied factors: reference values with their errors, an invariant, a closed form, SGD, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from attnlaw.core.errors import InputError
from attnlaw.theory.dynamics import untied
from attnlaw.theory.dynamics.learners import Untied
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.sgd import simulate_dynamics, trajectory_agreement
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.learn.data import draw_pairs, draw_risk, draw_squares
from attnlaw.theory.learn.problem import Problem, Target

SCHEDULE = {"scale": 0.8, "scale_key": 0.6}


@pytest.mark.slow
def test_reference_values() -> None:
    """q1, m1, q2, m2 of linear T = 2, computed by other programs to +- 0.002 (real and complex starts)."""
    rows = {
        0.02: (0.297, 0.177, -0.022, 0.080),
        0.06: (0.392, 0.443, 0.063, 0.154),
        0.15: (0.727, 0.780, 0.158, 0.144),
        0.4: (0.942, 0.959, 0.063, 0.042),
    }
    path = trajectory(Problem(tokens=2, attention="untied"), Schedule(list(rows), **SCHEDULE))
    for i, known in enumerate(rows.values(), start=1):
        for name, value in zip(
            ("norm", "overlap", "transposed_norm", "transposed_overlap"), known, strict=True
        ):
            error = np.hypot(path.error[name][i], 0.002)
            assert abs(getattr(path, name)[i] - value) < 3 * error
            assert path.error[name][i] < 0.004
    assert np.isnan(path.trace).all()
    assert path.estimation_error == pytest.approx(path.norm - 2 * path.overlap + 1, abs=1e-12)


def test_what_factors_differ_by_only_decays() -> None:
    """`U^H U - V^H V` falls as e^(-2 gamma tau) whatever the loss is."""
    schedule = Schedule([0.1], decay=3.0, **SCHEDULE)
    for given in ({"tokens": 2}, {"tokens": 2, "output": "softmax"}, {"output": "hermite2"}):
        problem = Problem(**given, attention="untied")
        start = untied.draw(problem, schedule, 8, 3, np.random.default_rng(0))
        *_, end = untied.states(untied.observed_pairs(problem), start, schedule, problem.tokens, None)
        before, after = (
            state.U.conj().swapaxes(1, 2) @ state.U - state.V.conj().swapaxes(1, 2) @ state.V
            for state in (start, end)
        )
        # RK4 with a step of 0.5 over the fastest rate: relative error below 0.5^5/120 a step.
        assert after == pytest.approx(np.exp(-2 * 3.0 * 0.1) * before, abs=2e-3)


def test_an_orthogonal_start_has_a_closed_form() -> None:
    """T = 1: modes y of M + M^H obey `dy/dtau = -4 (y - x) sqrt(y^2 + (sU + sV)^2)`, x of the target."""
    problem = Problem(attention="untied")
    schedule = Schedule([0.05, 0.2], width=np.inf, **SCHEDULE)
    start = untied.draw(problem, schedule, 8, 2, np.random.default_rng(0))
    paths = untied.path(untied.observed_pairs(problem), start, schedule, 1, None)
    for path, target in zip(paths, start.target, strict=True):
        x = np.linalg.eigvalsh(target + target.conj().T)
        y = solve_ivp(
            lambda _, y, x=x: -4 * (y - x) * np.sqrt(y**2 + 1.4**2),
            (0.0, 0.2),
            np.zeros(x.size),
            t_eval=schedule.times,
            rtol=1e-9,
            atol=1e-12,
        ).y
        # Tr (M + M^H)^2/d = 2 (q1 + q2), and with the target's 2 (m1 + m2); RK4 steps of 0.5 over the rate.
        assert path[:, :2].sum(axis=1) == pytest.approx(np.mean(y**2, axis=0) / 2, abs=5e-4)
        assert path[:, 2:].sum(axis=1) == pytest.approx(x @ y / x.size / 2, abs=5e-4)


@pytest.mark.slow
def test_wide_factors_approach_the_orthogonal_start() -> None:
    wide, orthogonal = (
        trajectory(Problem(attention="untied"), Schedule([0.1], width=width, **SCHEDULE))
        for width in (8.0, np.inf)
    )
    for name in ("norm", "overlap"):
        error = np.hypot(wide.error[name][1], orthogonal.error[name][1])
        # What is left of the start's norm, sU sV/kappa = .06, and as much of what it does.
        assert abs(getattr(wide, name)[1] - getattr(orthogonal, name)[1]) < 0.06 + 4 * error


def test_pairs_of_a_sequence_are_seen_as_tokens_show_them() -> None:
    """Fields of all ordered pairs of two tokens: covariances by Gaussian matrices and by tokens."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((6, 6)) / np.sqrt(6)
    q1, q2 = np.sum(M * M) / 6, np.sum(M * M.T) / 6
    expected = np.diag([q1 + q2, q1, q1, q1 + q2])
    expected[1, 2] = expected[2, 1] = q2
    for draw in (draw_squares, draw_pairs):
        data = draw(20_000, 2, "all", 6, rng)
        h = data.fields(M)
        assert np.abs(h.mean(axis=0)).max() < 4 * np.sqrt((q1 + q2) / 20_000)
        # Fourth moments of products of tokens are at most some five times those of normals.
        assert np.cov(h.T) == pytest.approx(expected, abs=4 * np.sqrt(10 / 20_000) * (q1 + q2))
        weights = rng.standard_normal(h.shape)
        assert np.vdot(h, weights) == pytest.approx(np.vdot(M, data.adjoint(weights)))


SGD = (
    (((10, 12), (16, 8)), [0.02, 0.15]),
    pytest.param(((16, 24), (24, 16), (40, 8)), [0.02, 0.06, 0.15, 0.4], marks=pytest.mark.long),
)


@pytest.mark.parametrize(("sizes", "times"), SGD)
def test_sgd_of_both_factors_agrees(sizes: tuple[tuple[int, int], ...], times: list[float]) -> None:
    """Linear T = 2, eta = 0.05, seeds 0 to K-1, paired with the flow of the same starts, in 1/d."""
    problem = Problem(tokens=2, attention="untied")
    schedule = Schedule(times, learning_rate=0.05, **SCHEDULE)
    runs = [simulate_dynamics(problem, schedule, d, seeds, batch=8) for d, seeds in sizes]
    assert {run.sensing for run in runs} == {"ginibre"}
    comparisons = trajectory_agreement(trajectory(problem, schedule), runs)
    assert {comparison.quantity for comparison in comparisons} == {"norm", "overlap", "estimation_error"}
    scores = np.array([comparison.z for comparison in comparisons])
    assert np.abs(scores).max() < 4
    assert np.sqrt(np.mean(scores**2)) < 2  # scores of one run are correlated: fewer than they look
    # Without the noise of the gradient the two would not agree: it adds .03 to the norm at tau = .02.
    assert runs[-1].added["norm"][:, 1].mean() > 0


def test_a_step_of_sgd_is_that_of_the_loss() -> None:
    """U and V after a step against differences of the batch's loss, tokens and Gaussian matrices."""
    problem, schedule = Problem(tokens=2, attention="untied"), Schedule([0.1], **SCHEDULE)
    student = Untied.from_problem(problem, schedule, 4, np.random.default_rng(0))
    for sensing in ("tokens", "ginibre"):
        risk = draw_risk(problem, student.target, 3, sensing, np.random.default_rng(1))
        moved = student.after_gradient_step(risk(student.matrix)[1], 1.0, 0.0)
        for name in ("U", "V"):
            nudge = np.zeros((4, 4))
            nudge[1, 2] = 1e-5
            ends = [replace(student, **{name: getattr(student, name) + e * nudge}) for e in (1, -1)]
            slope = (risk(ends[0].matrix)[0] - risk(ends[1].matrix)[0]) / 2e-5
            step = getattr(student, name) - getattr(moved, name)
            assert step[1, 2] == pytest.approx(slope, rel=1e-6)


def test_moments_of_starts_are_matched() -> None:
    start = untied.draw(
        Problem(attention="untied"), Schedule([1.0], **SCHEDULE), 16, 5, np.random.default_rng(1)
    )
    M, target = start.U @ start.V.conj().swapaxes(1, 2), start.target
    traces = {
        "M": np.einsum("kii->k", M),
        "M M*^H": np.einsum("kij,kij->k", M, target.conj()),
        "M M*": np.einsum("kij,kji->k", M, target),
        "M*": np.einsum("kii->k", target),
        "M*^2": np.einsum("kij,kji->k", target, target),
    }
    assert max(np.abs(trace).max() for trace in traces.values()) < 1e-6
    assert np.einsum("kij,kij->k", target, target.conj()).real == pytest.approx(16 * np.ones(5))
    assert np.einsum("kij,kij->k", start.V, start.V.conj()).real == pytest.approx(0.6 * 16 * np.ones(5))


def test_the_slope_at_the_start_is_the_papers() -> None:
    """`dm1/dtau = -2 (tA + tB)(H1 Q1* + H2 Q2*)` (arXiv 2609.03858, equation 42), Q1* = 1, Q2* = 0."""
    step = 1e-4
    for given, H1 in (({"tokens": 2}, -4.0), ({"tokens": 1}, -1.0)):
        path = trajectory(Problem(**given, attention="untied"), Schedule([step, 2 * step], **SCHEDULE))
        slope = (4 * path.overlap[1] - path.overlap[2]) / (2 * step)
        assert slope == pytest.approx(-2 * 1.4 * H1, rel=0.01)


def test_what_labels_see_of_untied_scores() -> None:
    """Fields x_a^T M x_b of a drawn M have the covariance behind q_eff, and its loss is the potential's."""
    rng = np.random.default_rng(2)
    M, target = rng.standard_normal((2, 40, 40)) / np.sqrt(40)
    problem = Problem(tokens=2, output="softmax", attention="untied")
    sight = untied.observed_pairs(problem)
    numbers = np.array([np.sum(M * M), np.sum(M * M.T), np.sum(M * target), np.sum(M * target.T)]) / 40
    x = rng.standard_normal((2, 40_000, 40))
    v = []
    for matrix in (M, target):
        z = x @ matrix
        v.append((np.sum(z[0] * x[0], axis=1) - np.trace(matrix) - np.sum(z[0] * x[1], axis=1)) / np.sqrt(40))
    q, m, _ = sight.observed_numbers(numbers)
    assert np.var(v[0]) == pytest.approx(3 * q, rel=0.05)
    assert np.mean(v[0] * v[1]) == pytest.approx(3 * m, abs=0.05 * 3 * q)


def test_a_finer_step_changes_less_than_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, schedule = Problem(tokens=2, attention="untied"), Schedule([0.06], **SCHEDULE)
    monkeypatch.setattr(untied, "SIZES", ((8, 12), (16, 12)))
    coarse = trajectory(problem, schedule)
    monkeypatch.setattr(untied, "STEP", 0.1)
    fine = trajectory(problem, schedule)
    assert abs(coarse.norm[1] - fine.norm[1]) < 0.2 * fine.error["norm"][1]


def test_noise_adds_to_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGD of linear T = 2 at eta = 0.02 differs from the flow by at most some 0.015 (SGD elsewhere)."""
    monkeypatch.setattr(untied, "SIZES", ((8, 12), (16, 12)))
    calm, noisy = (
        trajectory(
            Problem(tokens=2, attention="untied"), Schedule([0.02, 0.15], learning_rate=eta, **SCHEDULE)
        )
        for eta in (0.0, 0.02)
    )
    shift = noisy.estimation_error - calm.estimation_error
    assert 0 < shift[1] < 0.03
    assert 0 < shift[2] < 0.03


@pytest.mark.slow
def test_finer_noise_shifts_the_norm_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """What noise adds to q1 at tau = .02, eta = .05: by Euler it was .039, .029, .028 at .5, .1, .05."""
    monkeypatch.setattr(untied, "SIZES", ((8, 48), (16, 48)))
    problem, shifts = Problem(tokens=2, attention="untied"), {}
    calm = trajectory(problem, Schedule([0.02], **SCHEDULE)).norm[1]
    for step in (0.5, 0.1):
        monkeypatch.setattr(untied, "NOISY_STEP", step)
        shifts[step] = trajectory(problem, Schedule([0.02], learning_rate=0.05, **SCHEDULE)).norm[1] - calm
    assert shifts[0.1] == pytest.approx(0.0267, abs=0.003)  # one standard error
    assert shifts[0.5] == pytest.approx(shifts[0.1], abs=0.003)


@pytest.mark.parametrize(
    ("problem", "schedule", "message"),
    [
        ({"noise": 0.5}, {}, "noise"),
        ({"student": "direct"}, {}, "student"),
        ({"tokens": 3, "output": "softmax"}, {}, "tokens"),
        ({"target": Target.discrete([1.0])}, {}, "target"),
        ({"pairs": "causal", "tokens": 2}, {}, "pairs"),
        ({"tokens": 2, "output": "softmax"}, {"learning_rate": 0.1}, "learning_rate"),
    ],
)
def test_refusals(problem: dict[str, Any], schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trajectory(Problem(**problem, attention="untied"), Schedule([0.1], **schedule))


def test_untied_factors_have_no_law() -> None:
    path = trajectory(Problem(attention="untied"), Schedule([0.01]))
    with pytest.raises(InputError, match="spectrum"):
        path.spectrum(0.01)
