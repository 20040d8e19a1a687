"""A whole Transformer before training: its exact law at its own width, and three limits of infinite width.

The names below are imported when first used: what a model may be made of is known without mathematics.
"""

from __future__ import annotations

from typing import Any

from attnlaw.core.lazy import lazy_attribute

_PUBLIC: dict[str, str] = {
    "Architecture": "attnlaw.theory.init.architecture",
    "Deviations": "attnlaw.theory.init.architecture",
    "InitialLaw": "attnlaw.theory.init.records",
    "Tokens": "attnlaw.theory.init.tokens",
    "initial_law": "attnlaw.theory.init.law",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, _PUBLIC, name)
