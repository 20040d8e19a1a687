"""Damaged rows and stores at the real command line: one line, status 1, no traceback, no end missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from trust.command import run

from attnlaw.verbs import find_verb

STUDY = 'verb = "learn"\n[grid]\nalpha = [0.1]\n'


def long_name(folder: Path) -> list[str]:
    return ["report", "a" * 5000]


def pipe(folder: Path) -> list[str]:
    (folder / "out").mkdir()
    os.mkfifo(folder / "out" / "summary.json")
    return ["report", "out"]


def nested(folder: Path) -> list[str]:
    (folder / "out").mkdir()
    (folder / "out" / "summary.json").write_text("[" * 100_000)
    return ["report", "out"]


def no_verb(folder: Path) -> list[str]:
    (folder / "out").mkdir()
    (folder / "out" / "attnlaw.json").write_text('{"verb": "learn", "version": "0.3.0"}')
    names = find_verb("learn").schema
    rows = pl.DataFrame({name: ["done" if name == "status" else None] for name in names})
    rows.write_parquet(folder / "out" / "rows.parquet")
    return ["report", "out"]


def lock_directory(folder: Path) -> list[str]:
    (folder / "out" / "lock").mkdir(parents=True)
    (folder / "study.toml").write_text(STUDY)
    return ["study", "run", "study.toml", "--out", "out"]


def huge_limit(folder: Path) -> list[str]:
    (folder / "study.toml").write_text(f"{STUDY}[run]\ntime_limit = 0x{'f' * 5000}\n")
    return ["study", "run", "study.toml", "--out", "out"]


@pytest.mark.parametrize("attack", [long_name, pipe, nested, no_verb, lock_directory, huge_limit])
def test_one_line(attack: Callable[[Path], list[str]], tmp_path: Path) -> None:
    outcome = run(*attack(tmp_path), folder=tmp_path, memory=None)
    (line,) = outcome.refusals()
    assert outcome.status == (2 if attack is huge_limit else 1)  # a mistake in a study file
    assert line.startswith("attnlaw: ")
    assert line.isprintable()
    assert "; " in line
