"""What a single attention head learns from n samples: the theory of several students, and training them.

Importing any module of this package fills the table of students.
"""

from attnlaw.theory.learn.students import STUDENTS

__all__ = ["STUDENTS"]
