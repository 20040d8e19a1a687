"""The gallery: every picture is there, and its page shows it with its caption."""

from __future__ import annotations

import importlib.util
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


def test_the_page_shows_every_picture(gallery: Any) -> None:
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "hooks" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = hook.on_page_markdown((ROOT / "docs" / "start" / "gallery.md").read_text(encoding="utf-8"))
    pictures = {path.stem for path in gallery.PICTURES.glob("*.png")}
    assert pictures == {entry.name for entry in (*gallery.VERBS, *gallery.studies())}
    for name in pictures:
        caption = (gallery.PICTURES / f"{name}.txt").read_text(encoding="utf-8").strip()
        assert f"](../gallery/{name}.png){{" in page
        assert caption.partition(". ")[2] in page
