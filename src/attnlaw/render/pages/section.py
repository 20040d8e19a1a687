"""A section of a page under its title, which the navigation and a screen reader find."""

from __future__ import annotations

from html import escape


def section_html(anchor: str, title: str, *html: str) -> str:
    """The HTML of a section with its heading."""
    head = f'<h2 id="{anchor}-title">{escape(title)}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{head}{"".join(html)}</section>'
