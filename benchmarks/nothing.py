"""The smallest verb: what a study adds to it is all that it costs."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case


@settings_dataclass
class Nothing(Settings):
    """Square a number."""

    x: float = setting(1.0, "The number.", sweepable=True)


@dataclass(frozen=True)
class Found:
    square: float


def work(case: Nothing, progress: Progress) -> Found:
    return Found(case.x * case.x)


VERB = Verb("nothing", "Nothing", Nothing, (Quantity("square"),), run_each_case(work))
