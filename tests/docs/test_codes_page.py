"""The tables on the page about checkpoints: measured again, and complete."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "scripts"))
import codes_page

from attnlaw.checkpoints.quantization.leftover import REASONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands" / "checkpoints.md"
MARKS = ("model types", "keys of a family", "exactness of codes", "codes without support")


@pytest.fixture(scope="module", name="hook")
def _hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "hooks" / "checkpoints.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_numbers_are_measured() -> None:
    measured = codes_page.rows()
    assert codes_page.MEASURED.read_text(encoding="utf-8") == codes_page.table(measured)
    assert {row.difference for row in measured} == {0}
    assert "attnlaw decodes exactly the same weights as this library" in PAGE.read_text(encoding="utf-8")


def test_the_page_has_each_table(hook: ModuleType) -> None:
    markdown = PAGE.read_text(encoding="utf-8")
    lines = markdown.splitlines()
    for mark in MARKS:
        assert lines.count(f"<!-- {mark} -->") == 1
    shown = hook.on_page_markdown(markdown)
    assert not any(f"<!-- {mark} -->" in shown for mark in MARKS)
    assert "| GPTQ 3-bit, groups of 32 | `gptq-3-asym` | gptqmodel 7.7.0 | 4.04 | 27.6% |" in shown


def test_every_code_that_is_not_read_is_listed_with_its_reason(hook: ModuleType) -> None:
    table = hook.reasons_table()
    assert "| EXL3 | It stores weights with a trellis code, in a rotated basis. |" in table
    assert len(table.splitlines()) == 2 + len(REASONS)
