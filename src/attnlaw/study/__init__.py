"""Studies: a verb over many settings, on one machine or a cluster, into a store that loses no row."""

from attnlaw.study.backends import Backend
from attnlaw.study.file import Study, read_study
from attnlaw.study.run import StudyStatus, resume, run, status
from attnlaw.study.split_case import run_split

__all__ = ["Backend", "Study", "StudyStatus", "read_study", "resume", "run", "run_split", "status"]
