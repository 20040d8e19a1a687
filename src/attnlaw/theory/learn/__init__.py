"""Theory and training of a single attention head that learns from n samples.

Importing any module of this package fills the table of students.
"""

from attnlaw.theory.learn.students import STUDENTS

__all__ = ["STUDENTS"]
