"""A pytest plugin: the quickest tests first, as timed by an earlier run (`DURATIONS`, a JSON file).

The first run writes the file. Most mutants are noticed by many tests, so they are noticed by a quick one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = Path(os.environ["DURATIONS"])
seconds: dict[str, float] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    items.sort(key=lambda item: known.get(item.nodeid, 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    if not FILE.exists():
        FILE.write_text(json.dumps(seconds))
