"""Fence the examples of docstrings, which Markdown would take for quotations."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Put every run of `>>>` lines with its output between fences."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with each example in a fence.

    >>> fenced("One.\\n\\n>>> 1 + 1\\n2")
    'One.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)
