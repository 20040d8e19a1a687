"""Simulate the theory's problem: draw data, train students, and measure what they have learned.

Sensings (ways in which samples show the target) are invariant under rotations, so at size d the target S* can
be diagonal, with quantiles as entries; for untied attention every seed rotates it. S_hat is the trained
matrix. Every seed draws its own n = round(alpha d^2) samples.

| quantity | definition |
|---|---|
| estimation_error | E = |S_hat - S*|_F^2 / d |
| prediction_error | loss on a fresh clean sequence: squared errors summed over (a, b), or cross-entropy |
| training_loss | the risk without its penalty, per sample |
| overlap, norm | m = Tr(S_hat^T S*)/d, q = |S_hat|_F^2/d |
| trace, nuclear_norm | Tr S_hat/d if tied, |S_hat|_*/d if untied |
| rank_fraction | share of eigenvalues (untied: singular values) of S_hat that are not zero |
| angle | angle between S_hat and S* (cross-entropy) |
| wrong_keys | share of fresh queries for which S_hat and S* prefer different keys (cross-entropy) |
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import BriefRepr, Estimate, Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import mean_of
from attnlaw.numerics.threads import usable_cores
from attnlaw.theory.learn.data import check_sensing
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.student import STUDENTS
from attnlaw.theory.learn.target import whole_share
from attnlaw.theory.learn.training import Trained, train_once

QUANTITIES = (
    "estimation_error",
    "prediction_error",
    "training_loss",
    "overlap",
    "norm",
    "trace",
    "nuclear_norm",
    "rank_fraction",
    "angle",
    "wrong_keys",
)
WAIT = 0.2  # seconds between two checks for Ctrl-C
NEAR = 0.01  # relative difference from alpha that a whole number of samples may cause


@dataclass(frozen=True, repr=False)
class Measurement(BriefRepr):
    """The measured quantities of trained students at one size d. The module's table defines them."""

    problem: Problem
    size: int
    samples: int  # number of samples, n
    seeds: int  # number of students
    seed: int
    sensing: str
    estimation_error: Estimate
    prediction_error: Estimate
    training_loss: Estimate
    overlap: Estimate
    norm: Estimate
    trace: Estimate | None
    nuclear_norm: Estimate | None
    rank_fraction: Estimate
    angle: Estimate | None
    wrong_keys: Estimate | None
    solver: str
    residual: float  # largest residual of the training runs
    eigenvalues: Reals = field(repr=False, compare=False)  # (seeds, d), ascending; untied: singular values
    outcome: Outcome = Outcome.DONE
    unsolved: str | None = None  # a sentence about runs that did not converge

    @property
    def rounding(self) -> str | None:
        """A remark if rounding the number of samples changed alpha by more than 1%, or None."""
        alpha, actual_alpha = self.problem.alpha, self.samples / self.size**2
        if abs(actual_alpha - alpha) <= NEAR * alpha:
            return None
        return f"at d = {self.size}, n = {self.samples} gives alpha {actual_alpha:.3g} instead of {alpha:.3g}"

    @property
    def remark(self) -> str | None:
        """A remark about runs that did not converge and about a rounded alpha, or None."""
        rounding = self.rounding
        other = None if rounding is None else f"{rounding}; choose a larger dimension, or use that alpha"
        return "; ".join(filter(None, (self.unsolved, other))) or None


def simulate(
    problem: Problem,
    size: int,
    seeds: int = 8,
    seed: int = 0,
    sensing: str = "tokens",
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> Measurement:
    """Train the problem's student at size d on independent data sets, in threads.

    The cost of a gradient is 4 n T d^2 operations with tokens and n T(T+1) d^2 with Gaussian matrices.

    With tokens, a positive semidefinite S gives every token at least the score -Tr S/sqrt(d) with itself. So
    at T = 1, small d and a vanishing weight decay, the most negative noisy label determines Tr S, and the
    result depends on the solver. Compare such cases with Gaussian matrices.

    Args:
        size: the dimension d. If the target has a rank ratio, d times this ratio must be a whole number.
        sensing: the kind of training inputs: "tokens", "signed", "goe" or "ginibre".
        jobs: number of threads, by default the number of cores. The results do not depend on it.

    Raises an `InputError` if the student is not trained but computed, or if the size does not fit the target
    or the memory.

    >>> from attnlaw.theory.learn.problem import Target
    >>> problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=0.6)
    >>> measured = simulate(problem, size=20, seeds=2, seed=1)
    >>> measured.samples, str(measured.outcome), measured.eigenvalues.shape
    (120, 'done', (2, 20))
    """
    seeds, seed = check_value("seeds", seeds, int, minimum=1), check_value("seed", seed, int, minimum=0)
    jobs = usable_cores() if jobs is None else check_value("jobs", jobs, int, minimum=1)
    samples = check_simulation(problem, size, sensing)
    target = problem.target.quantiles(size)
    children = np.random.SeedSequence(seed).spawn(seeds)
    ended = Event()

    def check() -> None:
        if ended.is_set():
            raise CancelledError

    progress(0, seeds)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(jobs, seeds)) as pool,
    ):
        try:
            futures = [
                pool.submit(
                    train_once, problem, target, samples, sensing, np.random.default_rng(child), check
                )
                for child in children
            ]
            pending = set(futures)
            while pending:
                # Polars' signal handler restarts a wait without a timeout, so Ctrl-C would not end it.
                done, pending = wait(pending, timeout=WAIT, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                progress(seeds - len(pending), seeds)  # also if none has finished: the caller may stop here
        finally:
            ended.set()
            pool.shutdown(cancel_futures=True)
    finished = [future.result() for future in futures]
    estimates: dict[str, Any] = {
        name: mean_of([run.values[name] for run in finished]) if name in finished[0].values else None
        for name in QUANTITIES
    }
    return Measurement(
        problem=problem,
        size=size,
        samples=samples,
        seeds=seeds,
        seed=seed,
        sensing=sensing,
        solver=", ".join(sorted({run.trained.solver for run in finished})),
        residual=max(run.trained.residual for run in finished),
        eigenvalues=np.array([run.eigenvalues for run in finished]),
        **_outcome_and_remark([run.trained for run in finished]),
        **estimates,
    )


def check_simulation(problem: Problem, size: int, sensing: str = "tokens") -> int:
    """Return the number of samples at size d, or raise an `InputError` if training is not possible."""
    if problem.student_spec.trainer is None:
        able = [name for name, student in STUDENTS.items() if student.trainer is not None]
        raise BadSetting(
            "student",
            f"this student is computed and cannot be trained; simulate {' or '.join(able)}",
            problem.student,
        )
    problem.student_spec.theory(problem.observed_output.name)
    size = check_value("size", size, int, minimum=2)
    problem.target.quantiles(size)
    if problem.width is not None:
        whole_share(size, problem.width, "width")
    samples = round(problem.sample_ratio * size * size)
    if samples < 1:
        raise InputError(
            f"dimension {size}: alpha {problem.alpha:g} gives no sample; choose a larger dimension"
        )
    check_sensing(sensing, problem, samples, size)
    return samples


def _outcome_and_remark(trained: list[Trained]) -> dict[str, Any]:
    failed = [run for run in trained if not run.converged]
    if not failed:
        return {}
    worst = max(run.residual for run in failed)
    return {
        "outcome": Outcome.NOT_CONVERGED,
        "unsolved": f"{len(failed)} of {len(trained)} runs did not converge: they stopped with a residual "
        f"of up to {worst:.1e} after {max(run.steps for run in failed)} steps; raise the "
        "weight decay or choose an alpha that is further from the interpolation threshold",
    }
