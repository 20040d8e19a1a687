"""The gallery: every picture is there, and its page is the one that docs/scripts/gallery.py writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "scripts"))
    import gallery

    yield gallery
    del sys.modules["gallery"]


def test_the_page_is_that_of_its_pictures(gallery: Any) -> None:
    assert (ROOT / "docs" / "start" / "gallery.md").read_text(encoding="utf-8") == gallery.page()
    named = {entry.name for entry in (*gallery.VERBS, *gallery.studies())}
    assert {path.stem for path in gallery.PICTURES.glob("*.png")} == named
