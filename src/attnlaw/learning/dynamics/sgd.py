"""The experiment beside the theory of trajectories: one-pass SGD at a finite dimension, batch after batch.

A step on a batch of B fresh samples, R their summed loss, with lr = eta B/d and time lr/d a step:

    tied    W <- W - (lr/B) 2 dR/dS W - (lr/d) gamma W         direct  S <- S - (lr/B) dR/dS - (lr/d) gamma S

From the same start the flow of the population loss is run, too: what SGD adds to it, start by start, has less
scatter and a smaller bias in 1/d than SGD alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import BadSetting
from attnlaw.base.estimate import Outcome
from attnlaw.base.settings import require
from attnlaw.learning.dynamics.ensemble import riccati
from attnlaw.learning.dynamics.potential import Potential, potential_of
from attnlaw.learning.dynamics.quantities import columns
from attnlaw.learning.dynamics.schedule import Schedule
from attnlaw.learning.dynamics.trajectory import check_motion
from attnlaw.learning.problem import Problem
from attnlaw.learning.sensing import check_sensing
from attnlaw.learning.simulate import draw_risk
from attnlaw.learning.target import Target
from attnlaw.numerics.draws import generators

Reals = NDArray[np.float64]
NAMES = ("alignment", "estimation_error", "prediction_error", "overlap", "norm", "trace")
STEP = 0.1  # of the flow, over its fastest rate


@dataclass(frozen=True)
class MeasuredTrajectory:
    """What `seeds` runs of SGD did, each array of shape (times,): means and, in `error`, standard errors.

    `added` has what SGD added to the flow from the same start, by quantity, shape (seeds, times);
    `eigenvalues` those of each run at each time, shape (seeds, times, d).
    """

    problem: Problem
    schedule: Schedule
    size: int
    seeds: int
    batch: int
    sensing: str
    steps: int
    norm: Reals
    overlap: Reals
    trace: Reals
    estimation_error: Reals
    prediction_error: Reals
    alignment: Reals
    error: dict[str, Reals | None] = field(repr=False)
    added: dict[str, Reals] = field(repr=False)
    eigenvalues: Reals = field(repr=False)
    outcome: Outcome = Outcome.DONE
    remark: str | None = None

    @property
    def time(self) -> Reals:
        return np.array(self.schedule.times)

    @property
    def samples(self) -> Reals:
        """Samples seen over d^2."""
        return self.time / self.schedule.learning_rate


def simulate_dynamics(
    problem: Problem,
    schedule: Schedule,
    size: int,
    seeds: int = 8,
    seed: int = 0,
    sensing: str = "goe",
    batch: int = 8,
    progress: Progress | None = None,
) -> MeasuredTrajectory:
    """Train students by one-pass SGD at dimension d, each from its own start on its own samples.

    Cost about 2 T(T+1) d^4 tau/eta operations a seed with Gaussian matrices ("goe"), 8 T d^4 tau/eta with
    tokens. A loss that is not even in h - h* (softmax, hermite) reaches the limit slowly with tokens: their
    fields are skewed. Fails with an `InputError` for a learning rate of 0, untied factors, and a size times
    the target's rank that is not whole.

    >>> found = simulate_dynamics(Problem(), Schedule([0.02], learning_rate=0.1), size=16, seeds=2)
    >>> found.steps, found.eigenvalues.shape
    (6, (2, 2, 16))
    """
    check_sgd(problem, schedule, size, sensing, batch)
    tell, runs = progress or silent, []
    for done, rng in enumerate(generators(seed, seeds)):
        tell(done, seeds)
        runs.append(_run(problem, schedule, size, sensing, batch, rng))
    found = {name: np.array([run.sgd[name] for run in runs]) for name in NAMES}
    added = {name: found[name] - np.array([run.flow[name] for run in runs]) for name in NAMES}
    few = seeds < 2
    return MeasuredTrajectory(
        problem,
        schedule,
        size,
        seeds,
        batch,
        sensing,
        steps=runs[0].steps,
        **{name: values.mean(axis=0) for name, values in found.items()},
        error={name: None if few else v.std(axis=0, ddof=1) / seeds**0.5 for name, v in found.items()},
        added=added,
        eigenvalues=np.array([run.eigenvalues for run in runs]),
        **_ending(found["norm"]),
    )


def check_sgd(problem: Problem, schedule: Schedule, size: int, sensing: str, batch: int) -> None:
    """An `InputError` for a run that cannot be made."""
    check_motion(problem, schedule)
    if schedule.attention != "tied":
        raise BadSetting(
            "attention", "expected tied: SGD of untied factors is not simulated", schedule.attention
        )
    if schedule.learning_rate == 0:
        raise BadSetting("learning_rate", "expected above 0: a gradient flow has no samples", 0.0)
    require("batch", batch, int, least=1)
    require("size", size, int, least=2)
    problem.target.quantiles(size)
    entries = problem.tokens * (problem.tokens + 1) // 2
    check_sensing(sensing, attention="tied", samples=batch, tokens=problem.tokens, entries=entries, size=size)


def _ending(norms: Reals) -> dict[str, Any]:
    lost = int(np.sum(~np.isfinite(norms[:, -1])))
    if not lost:
        return {}
    told = f"{lost} of {len(norms)} runs diverged; lower the learning rate or the batch"
    return {"outcome": Outcome.UNSTABLE, "remark": told}


@dataclass(frozen=True)
class _Run:
    sgd: dict[str, Reals]
    flow: dict[str, Reals]
    eigenvalues: Reals
    steps: int


def _run(
    problem: Problem, schedule: Schedule, size: int, sensing: str, batch: int, rng: np.random.Generator
) -> _Run:
    target = problem.target.quantiles(size)
    here = replace(problem, target=Target.discrete(target.tolist()))
    factor = _start(problem, schedule, size, rng)
    tied = problem.student == "factorized"
    quiet = _flow(here, potential_of(here), factor, target, schedule)
    eta, lr = schedule.learning_rate, schedule.learning_rate * batch / size
    found, done = [factor], 0
    for time in schedule.times[1:]:
        wanted = round(time * size * size / (eta * batch))
        for _ in range(wanted - done):
            S = factor @ factor.T if tied else factor
            if not np.isfinite(S[0, 0]) or abs(S[0, 0]) > 1e6:
                factor = np.full_like(factor, math.nan)
                break
            _, gradient = draw_risk(problem, target, batch, sensing, rng)(S)
            step = 2 * gradient @ factor if tied else gradient
            factor = factor - (lr / batch) * step - (lr / size * schedule.decay) * factor
        done = wanted
        found.append(factor)
    matrices = [one @ one.T if tied else one for one in found]
    lost = [not np.isfinite(S).all() for S in matrices]
    spectra = [
        np.full(size, math.nan) if bad else np.linalg.eigvalsh(S)
        for S, bad in zip(matrices, lost, strict=True)
    ]
    return _Run(_told(here, matrices, target), _told(here, quiet, target), np.array(spectra), done)


def _start(problem: Problem, schedule: Schedule, size: int, rng: np.random.Generator) -> Reals:
    """W0 with S0 = W0 W0^T, its trace that of the limit; or a symmetric Gaussian S0."""
    if problem.student == "direct":
        Z = rng.standard_normal((size, size))
        S = Z + Z.T
        return np.asarray(S * (schedule.scale * math.sqrt(size) / np.linalg.norm(S)))
    if schedule.width == math.inf:
        return np.asarray(math.sqrt(schedule.scale) * np.eye(size))
    W = rng.standard_normal((size, max(round(schedule.width * size), 1)))
    return np.asarray(W * math.sqrt(schedule.scale * size) / np.linalg.norm(W))


def _flow(
    problem: Problem, potential: Potential, factor: Reals, target: Reals, schedule: Schedule
) -> list[Reals]:
    """The matrices of the population's flow from the same start at each time."""
    advance: Callable[[Reals, float, float, float], Reals]
    if problem.student == "direct":
        S = factor

        def advance(S: Reals, G: float, H: float, h: float) -> Reals:
            k = 2 * G + schedule.decay
            kept, gone = math.exp(-k * h), -math.expm1(-k * h) / k if k else h
            return kept * S - 2 * H * gone * np.diag(target)
    else:
        S = factor @ factor.T

        def advance(S: Reals, G: float, H: float, h: float) -> Reals:
            return np.asarray(riccati(S[None], target, G, H, schedule.decay, h)[0])

    found, now = [S], 0.0
    for time in schedule.times[1:]:
        while now < time * (1 - 1e-12):
            q, m = float(np.vdot(S, S)) / target.size, float(S.diagonal() @ target) / target.size
            G, H = potential.gains(q, m)
            h = min(STEP / (8 * max(abs(G), abs(H)) * max(target[-1], math.sqrt(q))), time - now)
            # Gains of the middle of the step, so that its error is of second order.
            half = advance(S, G, H, h / 2)
            q, m = float(np.vdot(half, half)) / target.size, float(half.diagonal() @ target) / target.size
            S = advance(S, *potential.gains(q, m), h)
            now += h
        found.append(S)
    return found


def _told(problem: Problem, matrices: list[Reals], target: Reals) -> dict[str, Reals]:
    size = target.size
    q = np.array([float(np.vdot(S, S)) for S in matrices]) / size
    m = np.array([float(S.diagonal() @ target) for S in matrices]) / size
    t = np.array([float(np.trace(S)) for S in matrices]) / size
    E = np.array([float(np.sum((S - np.diag(target)) ** 2)) for S in matrices]) / size
    return columns(problem, potential_of(problem), q, m, t, E)
