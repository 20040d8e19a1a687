"""A whole Transformer before training: its exact law at its own width, and three limits of infinite width.

The names below are imported when first used: what a model may be made of is known without mathematics.
"""

from __future__ import annotations

from typing import Any

from attnlaw.base.public import public

_PUBLIC: dict[str, str] = {
    "Architecture": "attnlaw.initial.architecture",
    "Deviations": "attnlaw.initial.architecture",
    "InitialLaw": "attnlaw.initial.records",
    "Tokens": "attnlaw.initial.tokens",
    "initial_law": "attnlaw.initial.law",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    return public(__name__, _PUBLIC, name)
