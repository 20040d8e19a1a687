"""Train a student on one data set and measure what it has learned.

Solvers (`attnlaw.theory.learn.solvers`) return a `Trained`. `train_once` draws the data, trains the student
and computes the quantities of `attnlaw.theory.learn.simulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.theory.learn.data import TEST_SEQUENCES, draw_risk, fresh_fields, hidden_target
from attnlaw.theory.learn.prediction import trace_or_nuclear_norm
from attnlaw.theory.learn.problem import Problem

Check = Callable[[], None]  # called in every step of a solver; raises to end the training
RESIDUAL = 1e-4  # a training run with a larger residual is reported as not converged
TOLERANCE = 1e-10
MEMORY = 20
MOST_STEPS = 20_000


def never_stop() -> None: ...


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained matrix S of shape (d, d). Its residual is 0 at the exact solution."""

    matrix: Reals
    residual: float
    steps: int
    solver: str

    @property
    def converged(self) -> bool:
        return self.residual <= RESIDUAL


def relative_move(after: Reals, before: Reals) -> float:
    """Return |after - before|_F divided by the larger of the two norms, or 0 if both are zero."""
    scale = max(float(np.linalg.norm(after)), float(np.linalg.norm(before)))
    return float(np.linalg.norm(after - before)) / scale if scale else 0.0


def descend(
    objective: Callable[[Reals], tuple[float, Reals]], start: Reals, tolerance: float, check: Check
) -> tuple[Reals, int]:
    """Run L-BFGS until all entries of the gradient are at most `tolerance`."""

    def checked(w: Reals) -> tuple[float, Reals]:
        check()
        return objective(w)

    result = scipy.optimize.minimize(
        checked,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": MEMORY,
            "maxiter": MOST_STEPS,
            "maxfun": 2 * MOST_STEPS,
            "ftol": 0.0,
            "gtol": tolerance,
        },
    )
    return np.asarray(result.x), int(result.nit)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A trained student with its measured quantities and its eigenvalues or singular values."""

    trained: Trained
    values: dict[str, float]
    eigenvalues: Reals


def train_once(
    problem: Problem,
    target: Reals,
    samples: int,
    sensing: str,
    rng: np.random.Generator,
    check: Check,
) -> TrainingRun:
    """Draw data for a target with these eigenvalues, train a student, and measure what it learned."""
    teacher = np.diag(target) if problem.sides == 1 else hidden_target(target, rng)
    risk = draw_risk(problem, teacher, samples, sensing, rng)
    trainer = problem.student_spec.trainer
    assert trainer is not None  # `check_simulation` ensures it
    trained = trainer(problem, risk, rng, check)
    matrix, size = trained.matrix, target.size
    spectrum = np.linalg.eigvalsh(matrix) if problem.sides == 1 else np.linalg.svd(matrix)[1][::-1]
    eigenvalues = np.array(spectrum, dtype=float)
    error = matrix - teacher
    # Round-off turns zero eigenvalues of a positive semidefinite matrix into about 1e-16 of the largest.
    eigenvalues[np.abs(eigenvalues) <= 1e-12 * np.abs(eigenvalues).max()] = 0.0
    values = {
        "estimation_error": float(np.vdot(error, error)) / size,
        "training_loss": risk(matrix)[0] / samples,
        "overlap": float(np.vdot(matrix, teacher)) / size,
        "norm": float(np.vdot(matrix, matrix)) / size,
        **trace_or_nuclear_norm(problem, float(eigenvalues.sum()) / size),
        "rank_fraction": float(np.mean(eigenvalues != 0.0)),
    }
    prediction_error = problem.prediction_error(values["estimation_error"])
    queries, tokens = problem.observed_output.queries, problem.tokens
    if prediction_error is None:
        student, clean = fresh_fields(problem, sensing, matrix, teacher, rng)
        prediction_error = (
            risk.output.loss(student, risk.output.labels(clean, tokens), tokens)[0] / TEST_SEQUENCES
        )
        if queries is not None:
            wrong = (student[:, 0] > student[:, 1]) != (clean[:, 0] > clean[:, 1])
            values["wrong_keys"] = float(wrong.mean())
    values["prediction_error"] = prediction_error
    if queries is not None and values["norm"] > 0:
        cosine = values["overlap"] / np.sqrt(values["norm"] * np.vdot(teacher, teacher) / size)
        values["angle"] = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return TrainingRun(trained, values, eigenvalues)
