"""How long tasks take, as measured so far, and so how many are handed over at once.

Tasks of a group (`Verb.batch_key`) share most of their work: alone each pays all of it. Their batches are
larger, and grow as their share of the time falls. They have `LEAST` members even where one alone takes longer
than a chunk should (on a busy machine any does), up to `LONG` seconds: else nobody learns what they share.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnlaw.study.task import Ending, Task

BATCH, CHUNK = 0.25, 1.0  # seconds of tasks that are computed one after the other, and at once
LEAST, LONG = 32, 3.0
MOST_IN_BATCH = 500


def pace_key(task: Task) -> tuple[str, bool]:
    """What tasks that take about as long have in common: their verb, and whether they are in groups."""
    return task.verb.name, task.group is not None


class Pace:
    """Seconds of a task of each kind, a mean over what was measured last."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, bool], float] = {}

    def add_times(self, task: Task, endings: Iterable[Ending]) -> None:
        """Endings of tasks of this kind: as many measurements, beside one of all before.

        >>> from attnlaw.verbs import find_verb
        >>> task, pace = Task(find_verb("learn"), find_verb("learn").settings(alpha=0.1)), Pace()
        >>> for seconds in ([0.1], [0.01] * 8):
        ...     pace.add_times(task, [Ending("", one) for one in seconds])
        >>> round(pace.seconds[pace_key(task)], 6)
        0.02
        """
        seconds = [ending.seconds for ending in endings]
        before = self.seconds.get(pace_key(task))
        known = seconds if before is None else [before, *seconds]
        if known:
            self.seconds[pace_key(task)] = sum(known) / len(known)

    def batch_size(self, task: Task, time_limit: float | None) -> int:
        """How many tasks like this one make a batch; one where none was measured.

        A group has the time limit of one task: it should need no more than half of it.
        """
        pace = self.seconds.get(pace_key(task))
        if pace is None:
            return 1
        pace = max(pace, 1e-6)
        if task.group is None:
            return max(1, min(MOST_IN_BATCH, int(BATCH / pace)))
        size = max(int(CHUNK / pace), LEAST if pace <= LONG else 1)
        allowed = MOST_IN_BATCH if time_limit is None else int(time_limit / 2 / pace)
        return max(1, min(MOST_IN_BATCH, size, allowed))
