"""How much a rule or a finding matters, from least to most; what is `off` is not looked at."""

from __future__ import annotations

LEVELS = ("note", "warning", "error")
OFF = "off"
FAIL_ON = LEVELS[1:]  # the levels that a gate can fail at


def is_at_least(level: str, least: str) -> bool:
    """Whether a level matters at least as much as another.

    >>> is_at_least("warning", "error"), is_at_least("error", "warning")
    (False, True)
    """
    return LEVELS.index(level) >= LEVELS.index(least)
