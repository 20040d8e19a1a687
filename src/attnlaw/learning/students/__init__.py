"""The students of the attention-indexed model: one file each, a line each in the one table."""

from attnlaw.base.declare import table
from attnlaw.learning.students.bayes import BAYES
from attnlaw.learning.students.direct import DIRECT
from attnlaw.learning.students.factorized import FACTORIZED
from attnlaw.learning.students.student import Student

__all__ = ["STUDENTS", "Student"]

STUDENTS = table(FACTORIZED, DIRECT, BAYES)
