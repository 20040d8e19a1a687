"""Prepare docstrings for the site: examples become code, letters keep their stars, and defaults with a
colon leave the types.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

DEFAULT = re.compile(r"^( +\w+ \([^()\n]*?); default [^\n]*?\): ", re.MULTILINE)
CODE = re.compile(r"(`[^`]*`|^ *(?:>>>|\.\.\. ).*$)", re.MULTILINE)
STAR = re.compile(r"(?<=\w)\*(?![*\w])")


class Doctests(griffe.Extension):
    """Make every run of `>>>` lines with its output an example that the site shows as code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(starred(parsable(obj.docstring.value)))


def parsable(text: str) -> str:
    """Return the docstring of a verb as Google's style has it. The signature next to it has the defaults.

    >>> parsable('Args:\\n    times (str; default "0.1:1:9"): Times.\\n\\nExample:\\n    >>> 1')
    'Args:\\n    times (str): Times.\\n\\nExamples:\\n    >>> 1'
    """
    return DEFAULT.sub(r"\1): ", text).replace("\n\nExample:\n", "\n\nExamples:\n")


def starred(text: str) -> str:
    """Return the text with a backslash before the star of a letter outside of code, which Markdown would eat.

    >>> print(starred("|S - S*|/|S*|, `S*`"))
    |S - S\\*|/|S\\*|, `S*`
    """
    parts = CODE.split(text)
    return "".join(part if place % 2 else STAR.sub(r"\*", part) for place, part in enumerate(parts))


def fenced(text: str) -> str:
    """Return the text with each example outside of a section in a fence.

    >>> fenced("One.\\n\\n>>> 1 + 1\\n2")
    'One.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)
