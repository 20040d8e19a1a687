"""A finite learning rate: the ensemble without noise is the flow, SGD is the ensemble with it; its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from command.in_process import invoke

from attnlaw.core.errors import InputError
from attnlaw.theory.dynamics import tied as ensemble
from attnlaw.theory.dynamics.potential import potential_of
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.sgd import simulate_dynamics, trajectory_agreement
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.learn.problem import Problem, Target

TIMES = [0.02, 0.05, 0.1, 0.2]


def test_shifts_are_those_of_another_program() -> None:
    """q of SGD less q of the flow, linear, eta = 0.02: .0269(4) .0193(4) -.0024(2) -.0032(1)."""
    added = ensemble.noise_shifts(Problem(), Schedule(TIMES, learning_rate=0.02))[:, 1:, 0]
    error = added.std(axis=0, ddof=1) / np.sqrt(len(added))
    known, known_error = [0.0269, 0.0193, -0.0024, -0.0032], [4e-4, 4e-4, 2e-4, 1e-4]
    assert np.abs((added.mean(axis=0) - known) / np.hypot(error, known_error)).max() < 4
    assert error.max() < 0.002


def test_without_noise_the_ensemble_is_the_flow() -> None:
    """Complex matrices at d = 24 from matched starts against the closed solver of the same eigenvalues."""
    target = Target.discrete(ensemble.representative_eigenvalues(Target.marchenko_pastur(0.5), ensemble.SIZE))
    problem, schedule = Problem(target=target, tokens=2, output="softmax"), Schedule([0.3, 1.2], decay=0.05)
    start = ensemble.draw_starts(schedule, 24, ensemble.SIZE, np.random.default_rng(0))
    quiet = ensemble._path(potential_of(problem), np.array(target.eigenvalues), start, schedule, None)
    path = trajectory(problem, schedule)
    ours = np.stack([path.norm, path.overlap, path.trace], axis=1)
    error = quiet.std(axis=0, ddof=1) / np.sqrt(len(quiet))
    # 4 standard errors, and what is left of order 1/d^2.
    assert np.abs(quiet.mean(axis=0) - ours).max() < 4 * error.max() + 3 / ensemble.SIZE**2


def test_a_vanishing_rate_adds_nothing() -> None:
    added = ensemble.noise_shifts(Problem(), Schedule([0.05], learning_rate=1e-12))
    assert np.abs(added.mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize(
    ("given", "eta", "times"),
    [
        ({"noise": 0.5}, 0.05, TIMES),
        pytest.param({"tokens": 2, "output": "softmax"}, 0.1, [0.2, 0.6], marks=pytest.mark.long),
        ({"student": "direct", "noise": 0.5}, 0.2, TIMES),
    ],
)
def test_sgd_with_gaussian_sensing_agrees(given: dict[str, object], eta: float, times: list[float]) -> None:
    """Seeds 0 to K-1 at two sizes, paired with the flow of the same starts, extrapolated in 1/d."""
    problem, schedule = Problem(**given), Schedule(times, learning_rate=eta)  # type: ignore[arg-type]
    runs = [
        simulate_dynamics(problem, schedule, size, seeds, batch=8) for size, seeds in ((10, 16), (16, 10))
    ]
    comparisons = trajectory_agreement(trajectory(problem, schedule), runs)
    scores = np.array([comparison.z for comparison in comparisons])
    assert np.abs(scores).max() < 4
    assert np.sqrt(np.mean(scores**2)) < 2  # scores of one run are correlated: fewer than they look


@pytest.mark.long
def test_sgd_up_to_72_agrees() -> None:
    """eta = 0.05, d = 24, 40, 72, Gaussian sensing: rms z below 1.3."""
    problem, schedule = Problem(), Schedule(TIMES, learning_rate=0.05)
    runs = [simulate_dynamics(problem, schedule, d, k, batch=8) for d, k in ((24, 24), (40, 12), (72, 6))]
    scores = np.array(
        [comparison.z for comparison in trajectory_agreement(trajectory(problem, schedule), runs)]
    )
    assert np.sqrt(np.mean(scores**2)) < 1.3
    assert np.abs(scores).max() < 4


def test_where_sgd_ends() -> None:
    """S* = I: E = (Delta/2) z/(1 - z) less eps^2, eps = 2 eta (E + Delta/2), by the SDE."""
    problem = Problem(target=Target.discrete([1.0]), noise=0.5)
    path = trajectory(problem, Schedule([0.5, 1.0], learning_rate=0.03))
    leading = path.plateau_error
    assert leading == pytest.approx(0.25 * 0.12 / 0.88)
    E = path.estimation_error[-1]
    eps = 2 * 0.03 * (E + 0.25)
    assert pytest.approx(2 * eps - eps**2, abs=4 * path.error["estimation_error"][-1] + 1e-3) == E
    assert path.largest_rate == 0.25


@pytest.mark.parametrize(
    ("rank", "eta", "known"), [(0.5, 0.02, 0.0150), (0.5, 0.05, 0.0412), (1.0, 0.03, 0.0341)]
)
def test_plateaus_of_another_program(rank: float, eta: float, known: float) -> None:
    problem = Problem(target=Target.marchenko_pastur(rank), noise=0.5)
    path = trajectory(problem, Schedule([0.01], learning_rate=eta))
    assert path.plateau_error == pytest.approx(known, abs=5.1e-5)


@pytest.mark.long
def test_a_plateau_beyond_leading_order() -> None:
    """S* = I, eta = .15, Delta = .5: .309(1) by simulation elsewhere, .3056 with -eps^2, .375 without.

    Matrices of d = 24 end at their own E; complex ones are a little off in 1/d^2.
    """
    problem = Problem(target=Target.discrete([1.0]), noise=0.5)
    path = trajectory(problem, Schedule([0.5, 1.0, 2.0], learning_rate=0.15))
    assert path.plateau_error == pytest.approx(0.375)
    error = float(np.hypot(path.error["estimation_error"][-1], 0.001))
    assert abs(path.estimation_error[-1] - 0.309) < 4 * error


def test_beyond_the_limit_the_target_is_not_stable() -> None:
    problem = Problem(target=Target.discrete([1.0]))
    path = trajectory(problem, Schedule([0.01], learning_rate=0.3))
    assert str(path.outcome) == "unstable"
    assert "above 0.25, so training cannot settle at the target" in (path.remark or "")
    assert str(trajectory(problem, Schedule([0.01], learning_rate=0.2)).outcome) == "done"


def test_at_the_limit_the_error_of_the_direct_student_grows_with_the_noise_of_labels() -> None:
    """dE/dtau = 4 T(T+1) ((eta - 1) E + eta Delta/2): a line at eta = 1, which only decay bends."""
    problem = Problem(student="direct", noise=0.5)
    path = trajectory(problem, Schedule([0.5, 1.0], learning_rate=1.0))
    assert np.diff(path.estimation_error) == pytest.approx([1.0, 1.0], rel=1e-6)
    assert (str(path.outcome), path.divergence_time) == ("unstable", None)
    assert "learning rate is at 1, so training cannot settle at the target" in (path.remark or "")
    held = trajectory(problem, Schedule([0.5, 1.0], learning_rate=1.0, decay=1.0))
    assert str(held.outcome) == "done"


@pytest.mark.slow
@pytest.mark.parametrize("output", ["linear", "hermite2"])
def test_a_student_that_runs_away_is_told_so_and_not_of_its_target(output: str) -> None:
    run = invoke("dynamics", "--learning-rate", "1", "--output", output, "--times", "0.01:1:4")
    assert "ERROR    Training diverges before time " in run.stdout
    assert "identity" not in run.stdout
    assert "Warning" not in run.stderr


def test_samples_and_steps() -> None:
    path = trajectory(Problem(student="direct"), Schedule([0.1, 0.2], learning_rate=0.05))
    assert path.samples is not None
    assert path.samples[1:] == pytest.approx([2.0, 4.0])
    assert path.steps(size=40, batch=8)[2] == pytest.approx(4.0 * 1600 / 8)
    runs = simulate_dynamics(path.problem, path.schedule, size=12, seeds=2, batch=4)
    assert runs.steps == round(4.0 * 144 / 4)
    flow = trajectory(Problem(), Schedule([0.1]))
    assert flow.samples is None
    with pytest.raises(InputError, match="learning_rate"):
        flow.steps(40, 8)


def test_refusals_of_a_simulation() -> None:
    schedule = Schedule([0.1], learning_rate=0.1)
    with pytest.raises(InputError, match="learning_rate"):
        simulate_dynamics(Problem(), replace(schedule, learning_rate=0.0), 12)
    with pytest.raises(InputError, match="ginibre with attention untied"):
        simulate_dynamics(Problem(attention="untied"), schedule, 12, sensing="goe")
    with pytest.raises(InputError, match="scale_key"):
        simulate_dynamics(Problem(), replace(schedule, scale_key=0.5), 12)
    with pytest.raises(InputError, match="whole number"):
        simulate_dynamics(Problem(), schedule, 13)
    # All 2 x 2 ordered pairs of 100 samples: 400 squares of 1000 x 1000, 3 GB.
    with pytest.raises(InputError, match="a dense 400 x 1000000 matrix, more than 2 GiB"):
        simulate_dynamics(Problem(attention="untied", tokens=2), schedule, 1000, batch=100)
    schedule = Schedule([0.01], learning_rate=0.1)
    single_run = simulate_dynamics(Problem(), schedule, 8, seeds=1)
    assert single_run.error == {}
    with pytest.raises(InputError, match="single seed"):
        trajectory_agreement(trajectory(Problem(), schedule), [single_run])
    with pytest.raises(InputError, match="do not all have the same problem and schedule"):
        trajectory_agreement(trajectory(Problem(noise=1.0), schedule), [single_run])


def test_a_run_that_diverges_says_so() -> None:
    runs = simulate_dynamics(Problem(), Schedule([0.5], learning_rate=5.0), 12, seeds=2, batch=1)
    assert str(runs.outcome) == "unstable"
    assert "diverged" in (runs.remark or "")


@pytest.mark.parametrize("output", ["hermite2", "hermite3"])
def test_sgd_of_polynomials_moves_as_the_flow(output: str) -> None:
    """At a small rate the first steps of SGD are those of the flow from the same start."""
    schedule = Schedule([0.001], learning_rate=0.001)
    runs = simulate_dynamics(Problem(output=output), schedule, 12, seeds=6, batch=8)
    for name in ("norm", "overlap"):
        added = runs.added[name][:, 1]
        moved = abs(getattr(runs, name)[1] - getattr(runs, name)[0])
        error = added.std(ddof=1) / np.sqrt(len(added))
        assert abs(added.mean()) < 4 * error + 0.1 * moved
