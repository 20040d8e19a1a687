"""Studies: a verb over many arguments, on one machine or a cluster, into a store that loses no row."""

from attnlaw.study.file import Study, read_study
from attnlaw.study.places import Place
from attnlaw.study.run import Report, resume, run, status
from attnlaw.study.task import Outcome, Result, Task
from attnlaw.study.verb import Verb

__all__ = [
    "Outcome",
    "Place",
    "Report",
    "Result",
    "Study",
    "Task",
    "Verb",
    "read_study",
    "resume",
    "run",
    "status",
]
