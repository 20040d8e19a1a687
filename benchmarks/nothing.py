"""The smallest verb: what a study adds to it is all that it costs."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Quantity
from attnlaw.base.settings import Settings, setting, settings


@settings
class Nothing(Settings):
    """Square a number."""

    x: float = setting(1.0, "The number.", many=True)


@dataclass(frozen=True)
class Found:
    square: float


def work(case: Nothing, progress: Progress) -> Found:
    return Found(case.x * case.x)


VERB = Verb("nothing", "Nothing", Nothing, (Quantity("square"),), each(work))
