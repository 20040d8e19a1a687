"""The student of docs/contribute/add-a-student.md, with thresholds: it takes a share of the target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlaw.theory.learn.prediction import Prediction, estimates
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.students import Student
from attnlaw.theory.learn.training import Check, Trained

SHARE = 0.75


def theory(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """`S_hat = 3/4 S*`: E = Q*/16, m = 3/4 Q*, q = 9/16 Q*."""
    return [
        Prediction(
            problem=problem,
            **estimates(
                problem,
                (1 - SHARE) ** 2 * problem.target.second_moment,
                overlap=SHARE * problem.target.second_moment,
                norm=SHARE**2 * problem.target.second_moment,
                trace=SHARE * problem.target.mean,
            ),
            shrinkage=SHARE,
            spectrum=problem.target.law.scaled(SHARE),
            outliers=(),
            residual=0.0,
            steps=0,
        )
        for problem in problems
    ]


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    check()
    size = risk.sensing.shape[2]
    return Trained(np.diag(SHARE * problem.target.quantiles(size)), 0.0, 1, "copying")


COPYCAT = Student(
    "copycat",
    "a copycat",
    colour=3,
    penalised=False,
    theories={"linear": theory},
    trainer=train,
    interpolation=lambda target, noise: (0.125 * noise, 42.0),
    recovery=lambda target: 7.0,
)
