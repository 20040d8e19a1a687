"""The answer to a user's question in words: what a terminal, a page and a notebook show first.

A verb's folder has the answer in `answer.py`, as a function `answer(result) -> Answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class AnswerStatus(StrEnum):
    """A word that rates the news of a line. A line that only reports a number has none."""

    OK = "OK"
    UNUSUAL = "UNUSUAL"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Line:
    """One or two sentences that a person can act on.

    Args:
        text: the sentences.
        status: how good the news is, or None if no rating applies.
        details: additional sentences, each shown on a separate line.
        is_main: whether a short text of the answer includes the line even if the line has no status.
    """

    text: str
    status: AnswerStatus | None = None
    details: tuple[str, ...] = ()
    is_main: bool = False


@dataclass(frozen=True)
class Answer:
    """The lines that answer the question, and the commands to try next.

    Args:
        lines: the most important first.
        next_commands: a description of the result of each command, by command. The commands are complete and
            run as they are.
    """

    lines: tuple[Line, ...]
    next_commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> AnswerStatus | None:
        """The worst status of the lines. The status is None if no line has a status."""
        known = [line.status for line in self.lines if line.status is not None]
        return max(known, key=list(AnswerStatus).index, default=None)
