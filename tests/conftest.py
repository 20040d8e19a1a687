"""Tiers of tests: the fast tier does not import files that are slow as a whole, which saves their imports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SLOW_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if "not slow" in config.option.markexpr and collection_path.suffix == ".py":
        return SLOW_FILE.search(collection_path.read_text(encoding="utf-8")) is not None or None
    return None
