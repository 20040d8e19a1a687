"""The students of the attention-indexed model: one file each, a line each in the one table."""

from attnlaw.core.variants import by_name
from attnlaw.theory.learn.students.bayes import BAYES
from attnlaw.theory.learn.students.direct import DIRECT
from attnlaw.theory.learn.students.factorized import FACTORIZED
from attnlaw.theory.learn.students.student import Student

__all__ = ["STUDENTS", "Student"]

STUDENTS = by_name(FACTORIZED, DIRECT, BAYES)
