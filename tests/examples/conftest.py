from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENT = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "ranking"
PARTS = ("tasks", "model", "measures", "table", "pilot", "figure", "study")


@pytest.fixture(scope="module")
def study():
    """The modules of the ranking study as attributes of one object."""
    names = (*(f"ranking_{part}" for part in PARTS), "train_ranking")
    sys.path.insert(0, str(EXPERIMENT))
    yield type("Study", (), {name: importlib.import_module(name) for name in names})
    sys.path.remove(str(EXPERIMENT))
    for name in names:
        sys.modules.pop(name, None)
