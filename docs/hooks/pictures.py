"""The pictures of the gallery with their captions and commands, in the place of a mark in the page.

`<!-- pictures of verbs -->` and `<!-- pictures of papers -->` are those of docs/scripts/gallery.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
import gallery


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its pictures."""
    lists = (
        ("<!-- pictures of verbs -->", gallery.VERBS),
        ("<!-- pictures of papers -->", gallery.studies()),
    )
    for mark, pictures in lists:
        markdown = markdown.replace(mark, "\n".join(map(gallery.entry, pictures)))
    return markdown
