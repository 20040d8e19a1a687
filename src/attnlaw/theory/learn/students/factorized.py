"""The factorised student: weights W with weight decay, `S = W W^T / sqrt(m d)` (arXiv:2509.24914).

Untied it has two, `S = W_Q W_K^T / sqrt(m d)`.

Its equations are in `attnlaw.theory.learn.factorized` and `softmax`, its solvers in `factor_training`,
`untied_training` and `convex_training`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.theory.learn.students.student import Student

if TYPE_CHECKING:
    import numpy as np

    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.risk import Risk
    from attnlaw.theory.learn.target import Target
    from attnlaw.theory.learn.training import Check, Trained

SMALL_WEIGHT_DECAY = 0.02


def linear(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Rectified, blurred targets: a batch at once."""
    from attnlaw.theory.laws.free_convolution import FreeConvolution
    from attnlaw.theory.laws.transformed import Rectified
    from attnlaw.theory.learn.factorized import ProblemBatch, solve
    from attnlaw.theory.learn.outliers import find_outliers
    from attnlaw.theory.learn.prediction import (
        Prediction,
        estimates,
        outcome_of,
        recovered_prediction,
        trace_or_nuclear_norm,
    )
    from attnlaw.theory.learn.stability import instability

    batch = ProblemBatch.of(problems)
    point = solve(batch)
    train = batch.training_loss(problems, point.V, point.E)
    results = []
    for i, problem in enumerate(problems):
        if not point.resolved[i]:
            is_exact = problem.weight_decay == 0 and not batch.noise[i].any()
            bound, miss = (0.0, 0.0) if is_exact else (float(point.E[i]), float(point.residual[i]))
            results.append(recovered_prediction(problem, bound, miss, point.steps, threshold=0.0))
            continue
        delta, b, E = float(point.delta[i]), float(point.b[i]), float(max(point.E[i], 0.0))
        cut = float(point.cut[i]) if point.cut[i] > b else None
        J, M1, chi, mass = (float(getattr(point.integrals, name)[i]) for name in ("J", "M1", "chi", "mass"))
        blurred = FreeConvolution(problem.target.law, delta)
        residual, unstable = float(point.residual[i]), instability(batch, point, i)
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    training_loss=float(train[i]),
                    overlap=J + b * M1 - delta**2 * chi,
                    norm=J,
                    rank_fraction=mass,
                    **trace_or_nuclear_norm(problem, M1),
                    noise_level=delta,
                    threshold=b,
                    cut=cut,
                ),
                stability=unstable,
                shrinkage=1.0,
                spectrum=Rectified(blurred, b, sides=batch.sides, cut=cut, kept=mass),
                outliers=find_outliers(problem.target, delta, b, 1.0, cut),
                **outcome_of(residual, instability=unstable),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def through_softmax(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """One after the other, each from the one before."""
    from attnlaw.theory.learn.softmax import FACTORS, predictions

    return predictions(problems, FACTORS, report)


def attended_key(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """One after the other; the loss is convex, and every start leads to the same point."""
    from attnlaw.theory.learn.attended_key import solve
    from attnlaw.theory.learn.softmax import FACTORS, predictions

    return predictions(problems, FACTORS, report, lambda problem, answer, start: solve(problem, start))


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    """L-BFGS on the weights W; a small weight decay below interpolation in its convex form.

    Both have the same minimum. L-BFGS on W needs steps like 1/sqrt(lt), so the small weight decays that stand
    for the limit lt -> 0 are split. Where splitting does not converge, beyond interpolation, L-BFGS is fast
    again and takes over.
    """
    from attnlaw.theory.learn.solvers import factors_objective, train_factors, train_narrow, train_splitting

    size, decay = risk.sensing.shape[2], problem.weight_decay
    m = _columns(problem, size)
    if m < size:
        return train_narrow(
            lambda w: factors_objective(risk, decay, w.reshape(size, m)),
            lambda w: w.reshape(size, m) @ w.reshape(size, m).T / (size * m) ** 0.5,
            size * m,
            decay,
            size,
            rng,
            check,
        )
    split = _is_small(decay, risk, size * (size + 1) // 2) and train_splitting(risk, decay, check)
    return split if split and split.converged else train_factors(risk, decay, rng, check)


def interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    """Up to which a positive semidefinite S fits all labels."""
    from attnlaw.theory.learn.thresholds import feasibility, interpolation_peak

    return interpolation_peak(target, noise) if noise > 0 else (feasibility(target.rank_fraction), None)


def recovery(target: Target) -> float:
    """Beyond which the nuclear norm picks the target."""
    from attnlaw.theory.learn.thresholds import recovery as least

    return least(min(target.rank_fraction, 1.0))


def train_untied(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    """L-BFGS on W_Q and W_K; a small weight decay below interpolation in its convex form, as `train`."""
    from attnlaw.theory.learn.solvers import (
        pair_matrix,
        pair_objective,
        shrink_singular_values,
        train_narrow,
        train_pair_factors,
        train_splitting,
    )

    size, decay = risk.sensing.shape[2], problem.weight_decay
    m = _columns(problem, size)
    if m < size:
        return train_narrow(
            lambda w: pair_objective(risk, decay, w),
            lambda w: pair_matrix(w, size),
            2 * size * m,
            decay,
            size,
            rng,
            check,
        )
    split = _is_small(decay, risk, size * size) and train_splitting(
        risk, decay, check, shrink_singular_values
    )
    return split if split and split.converged else train_pair_factors(risk, decay, rng, check)


def _is_small(decay: float, risk: Risk, unknowns: int) -> bool:
    """Whether splitting is to be tried: a small decay, a quadratic loss, fewer observations than unknowns."""
    return 0 < decay < SMALL_WEIGHT_DECAY and risk.output.quadratic and risk.labels.size < unknowns


def _columns(problem: Problem, size: int) -> int:
    """m, the columns of the factors: d where their width is not limited."""
    return size if problem.width is None else min(round(problem.width * size), size)


def untied_interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    """Any matrix fits all labels up to 1; as the decay vanishes the error there grows without bound."""
    return 1.0, None


def untied_recovery(target: Target) -> float:
    """Beyond which the nuclear norm picks the target, in pairs per d^2."""
    from attnlaw.theory.learn.thresholds import untied_recovery as least

    return least(min(target.rank_fraction, 1.0))


def leading(gamma: float) -> float:
    """I of its scaling law (`attnlaw.theory.learn.scaling`)."""
    return 1 / (2 * gamma - 1) + 6 - 8 / (1 + gamma) + 3 / (1 + 2 * gamma)


UNTIED = Student(
    "factorized",
    "factorized",
    colour=0,
    penalised=True,
    has_factors=True,
    theories={"linear": linear, "cross-entropy": attended_key},
    trainer=train_untied,
    interpolation=untied_interpolation,
    recovery=untied_recovery,
    leading={"linear": leading},
)
FACTORIZED = replace(
    UNTIED,
    theories={"linear": linear, "softmax": through_softmax},
    batched_outputs=frozenset({"linear"}),
    trainer=train,
    interpolation=interpolation,
    recovery=recovery,
    memory_checks={"softmax": "attnlaw.theory.learn.softmax:check_size"},
    untied=UNTIED,
)
