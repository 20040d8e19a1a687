"""Tiers of tests: `make test` runs the fast one, `make test-all` the slow one too (CONTRIBUTING.md).

The fast tier does not import files that are slow as a whole, and its tests may not download checkpoints.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import real_checkpoints

SLOW_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if "not slow" in config.option.markexpr and collection_path.suffix == ".py":
        return SLOW_FILE.search(collection_path.read_text(encoding="utf-8")) is not None or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    markers = {marker.name for marker in item.iter_markers()}
    real_checkpoints.may_download = bool(markers & {"slow", "long"})
