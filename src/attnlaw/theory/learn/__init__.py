"""Theory and training of a single attention head that learns from n samples.

Several kinds of students are known. Importing any module of this package fills their table.
"""

from attnlaw.theory.learn.students import STUDENTS

__all__ = ["STUDENTS"]
