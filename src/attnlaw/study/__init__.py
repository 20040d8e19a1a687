"""Studies run a verb over many settings, on one machine or on a cluster, and keep every finished row."""

from attnlaw.study.backends import Backend
from attnlaw.study.run import StudyStatus, resume, run, status
from attnlaw.study.split_case import run_split
from attnlaw.study.study_file import Study, read_study

__all__ = ["Backend", "Study", "StudyStatus", "read_study", "resume", "run", "run_split", "status"]
