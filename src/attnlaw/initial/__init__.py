"""A whole Transformer before training: its exact law at its own width, and three limits of infinite width.

The names below are imported when first used: what a model may be made of is known without mathematics.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC: dict[str, str] = {
    "Architecture": "architecture",
    "Deviations": "architecture",
    "InitialLaw": "records",
    "Tokens": "tokens",
    "initial_law": "law",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
