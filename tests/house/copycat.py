"""A toy student in one file, as a contributor writes it: it takes a share of the target, whatever it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnlaw.theory.learn.students.student import Student

if TYPE_CHECKING:
    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.target import Target
    from attnlaw.theory.learn.training import Trained

SHARE = 0.75


def theory(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """`S_hat = 3/4 S*`: E = Q*/16, m = 3/4 Q*, q = 9/16 Q*."""
    from attnlaw.theory.learn.prediction import Prediction, estimates

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


def train(problem: Problem, risk: Any, rng: Any, check: Callable[[], None]) -> Trained:
    import numpy as np

    from attnlaw.theory.learn.training import Trained

    check()
    size = risk.sensing.shape[2]
    return Trained(np.diag(SHARE * problem.target.quantiles(size)), 0.0, 1, "copying")


def interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    return 0.125 * noise, 42.0


COPYCAT = Student(
    "copycat",
    "a copycat",
    colour=3,
    penalised=False,
    theories={"linear": theory},
    trainer=train,
    interpolation=interpolation,
    recovery=lambda target: 7.0,
)
