"""attnlaw: the spectral theory of attention, executable on real models.

The public names below are imported when first used, so that `attnlaw --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "Audit": "attnlaw.auditing",
    "InputError": "attnlaw.errors",
    "audit": "attnlaw.auditing",
    "open_model": "attnlaw.checkpoints",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'attnlaw' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
