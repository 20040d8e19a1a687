"""`make release` tries every verb and every extra (tools/shipping/tried.py).

The version is written in one place; the citation and the changelog name a release.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING

import pytest
from house.shipping import ROOT, load

from attnlaw import __version__
from attnlaw.command.commands import OTHER_COMMANDS
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.verbs import VERBS, find_verb

pytestmark = pytest.mark.slow

TOOLS = ("docs", "test", "bench")  # extras of those who work on attnlaw, not of those who use it


def test_every_verb_that_needs_words_and_every_extra_is_tried_before_a_release() -> None:
    tried = load("tried")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*OTHER_COMMANDS} <= set(tried.COMMANDS)
    for name in set(VERBS) - set(tried.COMMANDS):
        assert all(known.default is not MISSING for known in _settings(name)), name
    assert set(tried.EXTRAS) == set(extras) - set(TOOLS)


def _settings(name: str) -> Iterable[SettingField]:
    return setting_fields(find_verb(name).settings).values()


def test_citation_and_changelog_begin_with_the_released_version() -> None:
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
    if ".dev" in __version__:
        return
    for name, pattern in (("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\S+)$")):
        versions = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert versions[:1] == [__version__], name
