"""All students, one file each. To add a student, enter it in the table here."""

from attnlaw.core.variants import by_name
from attnlaw.theory.learn.student import STUDENTS, Student
from attnlaw.theory.learn.students.bayes import BAYES
from attnlaw.theory.learn.students.direct import DIRECT
from attnlaw.theory.learn.students.factorized import FACTORIZED

__all__ = ["STUDENTS", "Student"]

STUDENTS.update(by_name(FACTORIZED, DIRECT, BAYES))
