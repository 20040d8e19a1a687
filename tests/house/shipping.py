"""The modules of tools/shipping, which are scripts next to each other and not a package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools" / "shipping"


def load(name: str) -> ModuleType:
    """Import a module of tools/shipping, and what it imports from there."""
    sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
