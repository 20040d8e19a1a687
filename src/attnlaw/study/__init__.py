"""Studies: a verb over many settings, on one machine or a cluster, into a store that loses no row."""

from typing import TYPE_CHECKING

from attnlaw.base.public import missing
from attnlaw.study.file import Study, read_study
from attnlaw.study.places import Place
from attnlaw.study.run import Standing, resume, run, status
from attnlaw.study.spread import spread

__all__ = ["Place", "Standing", "Study", "read_study", "resume", "run", "spread", "status"]

if not TYPE_CHECKING:  # a checker knows the names that are here

    def __getattr__(name: str) -> object:
        raise missing(__name__, name)
