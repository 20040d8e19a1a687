"""What fuzzing found, replayed: every case is read, or refused in one printable line."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from trust.targets import TARGETS, attempt

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*/*"))


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_findings_stay_fixed(case: Path, tmp_path: Path) -> None:
    target = TARGETS[case.parent.name]
    target.prepare(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        assert attempt(target, tmp_path, case.read_bytes()) in ("read", "refused")


@pytest.mark.parametrize("reader", TARGETS)
def test_the_examples_that_fuzzing_starts_from_are_good(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = TARGETS[reader]
    target.prepare(tmp_path)
    for data in target.seeds():
        assert attempt(target, tmp_path, data) == "read"
