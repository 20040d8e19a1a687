"""Names that parts of the theme's pages lack: axe-core would find them."""

from __future__ import annotations

import re
from html import escape
from typing import Any

SEARCH = 'data-md-component="search" role="dialog"'
EMPTY = re.compile(r"<th( [^>]*)?></th>")
SECTION = re.compile(r'data-md-level="1" aria-labelledby="__nav_(\d+)_label"')


def on_post_page(output: str, config: Any, **_: Any) -> str:
    """Name the search and the sections of the navigation; an empty corner of a table is an ordinary cell."""
    sections = [next(iter(section)) for section in config.nav]
    named = SECTION.sub(
        lambda match: f'data-md-level="1" aria-label="{escape(sections[int(match[1]) - 1])}"', output
    )
    cornered = EMPTY.sub(r"<td\1></td>", named)
    return cornered.replace(SEARCH, f'{SEARCH} aria-label="Search"')
