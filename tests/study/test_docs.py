"""The page on studies: its example expands, and its query runs on a real study."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from attnlaw.study import read_study, run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "commands" / "study.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    match = re.search(rf"```{language}\b[^\n]*\n(.*?)```", PAGE, flags=re.DOTALL)
    assert match is not None
    return match[1]


def test_the_example_expands(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(block("toml"))
    assert len(read_study(file).tasks) == 6


@pytest.mark.slow
def test_the_query_runs_on_checkpoints(tmp_path: Path) -> None:
    run(read_study(ROOT / "examples" / "checkpoints.toml"), tmp_path)
    rows = duckdb.sql(block("sql").replace("DIR", str(tmp_path))).fetchall()
    assert [(kind, count) for _, kind, count, _ in rows] == [
        ("ffn_in", 4),
        ("ffn_out", 4),
        ("qk", 16),
        ("vo", 16),
    ]
