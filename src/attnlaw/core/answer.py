"""The answer to a user's question in words: what a terminal, a page and a notebook show first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class AnswerStatus(StrEnum):
    """A word that rates the news of a line. Lines that only report a number have no such word."""

    OK = "OK"
    UNUSUAL = "UNUSUAL"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Line:
    """One or two sentences that a person can act on.

    `status` rates the news, or is None if no rating applies. A short version of the answer includes the line
    if it has a status or `is_main`. Each of the `details` is shown on a separate line.
    """

    text: str
    status: AnswerStatus | None = None
    details: tuple[str, ...] = ()
    is_main: bool = False


@dataclass(frozen=True)
class Answer:
    """The lines that answer the question, most important first, and the commands to try next.

    `next_commands` maps each command to a description of its result.
    """

    lines: tuple[Line, ...]
    next_commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> AnswerStatus | None:
        """The worst status of all lines, or None if no line has one."""
        known = [line.status for line in self.lines if line.status is not None]
        return max(known, key=list(AnswerStatus).index, default=None)
