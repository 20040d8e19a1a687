"""`make release` tries every verb and every extra: a new one must have a line in shipping/tried.py."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path

from attnlaw.command.app import OVER_VERBS
from attnlaw.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("docs", "test", "bench")  # extras of those who work on attnlaw, not of those who use it


def test_every_verb_and_every_extra_is_tried_before_a_release() -> None:
    spec = importlib.util.spec_from_file_location("tried", ROOT / "shipping" / "tried.py")
    tried = sys.modules["tried"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tried)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*VERBS, *OVER_VERBS} <= set(tried.COMMANDS)
    assert set(tried.EXTRAS) == set(extras) - set(TOOLS)
