"""The pictures of the gallery in the place of a mark in the page, and dark copies of light pictures.

`<!-- pictures of verbs -->` and `<!-- pictures of papers -->` are those of docs/scripts/gallery.py, with
their captions and commands. After the line of a picture `NAME-light.svg#only-light` comes the same line with
`NAME-dark.svg#only-dark`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
import gallery

LIGHT = re.compile(r"^(!\[.*\]\(.*)-light\.(svg|png)#only-light(\).*)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its pictures."""
    markdown = LIGHT.sub(r"\g<0>\n\1-dark.\2#only-dark\3", markdown)
    lists = (
        ("<!-- pictures of verbs -->", gallery.VERBS),
        ("<!-- pictures of papers -->", gallery.studies()),
    )
    for mark, pictures in lists:
        markdown = markdown.replace(mark, "\n".join(map(gallery.entry, pictures)))
    return markdown
