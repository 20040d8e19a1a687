"""One data set, the student trained on it, and what it has learned (the quantities of `simulate`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.core.lazy import resolve
from attnlaw.theory.learn.choices import SENSINGS
from attnlaw.theory.learn.prediction import trace_or_nuclear_norm
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.sensing import TEST_SEQUENCES, Array
from attnlaw.theory.learn.training import Check, Trained
from attnlaw.theory.learn.training_data import draw_risk
from attnlaw.theory.learn.untied_sensing import hidden_target


@dataclass(frozen=True)
class TrainingRun:
    """A trained student, its quantities, and its eigenvalues (untied: singular values), ascending."""

    trained: Trained
    values: dict[str, float]
    eigenvalues: Array


def train_once(
    problem: Problem,
    target: Array,
    samples: int,
    sensing: str,
    rng: np.random.Generator,
    check: Check,
) -> TrainingRun:
    """Draw data of a target with these eigenvalues (d,), train the student, measure what it has learned."""
    teacher = np.diag(target) if problem.sides == 1 else hidden_target(target, rng)
    risk = draw_risk(problem, teacher, samples, sensing, rng)
    trained = problem.student_spec.train(problem, risk, rng, check)
    matrix, size = trained.matrix, target.size
    spectrum = np.linalg.eigvalsh(matrix) if problem.sides == 1 else np.linalg.svd(matrix)[1][::-1]
    eigenvalues = np.array(spectrum, dtype=float)
    error = matrix - teacher
    # Round-off leaves the zero eigenvalues of a positive semidefinite matrix at about 1e-16 of the largest.
    eigenvalues[np.abs(eigenvalues) <= 1e-12 * np.abs(eigenvalues).max()] = 0.0
    values = {
        "estimation_error": float(np.vdot(error, error)) / size,
        "training_loss": risk(matrix)[0] / samples,
        "overlap": float(np.vdot(matrix, teacher)) / size,
        "norm": float(np.vdot(matrix, matrix)) / size,
        **trace_or_nuclear_norm(problem, float(eigenvalues.sum()) / size),
        "rank_fraction": float(np.mean(eigenvalues != 0.0)),
    }
    error_on_fresh = problem.prediction_error(values["estimation_error"])
    if error_on_fresh is None:
        values |= _on_fresh_sequences(problem, risk, sensing, (target, teacher), matrix, rng)
    else:
        values["prediction_error"] = error_on_fresh
    if problem.observed_output.queries is not None and values["norm"] > 0:
        cosine = values["overlap"] / np.sqrt(values["norm"] * np.vdot(teacher, teacher) / size)
        values["angle"] = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return TrainingRun(trained, values, eigenvalues)


def _on_fresh_sequences(
    problem: Problem,
    risk: Risk,
    sensing: str,
    target: tuple[Array, Array],
    matrix: Array,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The mean loss of a student over 8192 fresh sequences with clean labels, and how often it errs.

    `target` are its eigenvalues (singular values) and its matrix.
    """
    fresh, queries, tokens = (
        resolve(SENSINGS[sensing].fresh[problem.attention]),
        problem.observed_output.queries,
        problem.tokens,
    )
    if problem.sides == 1:
        student, teacher = fresh(sensing, matrix, target[0], tokens, rng)
    else:
        student, teacher = fresh(matrix, target[1], tokens, problem.pairs, rng, queries)
    loss, _ = risk.output.loss(student, risk.output.labels(teacher, tokens), tokens)
    errors = {"prediction_error": loss / TEST_SEQUENCES}
    if queries is not None:
        wrong = (student[:, 0] > student[:, 1]) != (teacher[:, 0] > teacher[:, 1])
        errors["wrong_keys"] = float(wrong.mean())
    return errors
