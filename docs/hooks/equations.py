"""Equations as MathML, which browsers draw by themselves: `$...$` in a line, `$$...$$` on lines of its own.

pymdownx.arithmatex finds them (not in code), latex2mathml translates them while the site is built, so that a
page needs neither a script nor a network. What is not understood ends the build. In a table write `\\vert`
for a bar.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FOUND = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
LETTER = re.compile(r"<mi>(&#x[0-9A-F]+;|[^<&])</mi>")
FENCE = re.compile(r"<mo>(&#x02016;|&#x0007C;)</mo>")  # bars of norms grow where they are told to
UNKNOWN = re.compile(r"<m[io]>(\\[A-Za-z]*|&amp;|&)</m[io]>")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """The page with its equations drawn."""

    def drawn(match: re.Match[str]) -> str:
        try:
            return mathml(html.unescape(html.unescape(match["latex"])).strip(), match["tag"] == "div")
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from None

    return FOUND.sub(drawn, content)


def mathml(latex: str, display: bool) -> str:
    r"""The equation as a `math` element.

    >>> mathml(r"E = 1", False)
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>E</mi><mo>&#x0003D;</mo><mn>1</mn></mrow></math>'
    >>> mathml(r"\foo", False)
    Traceback (most recent call last):
    ValueError: $\foo$: \foo is not known to latex2mathml
    """  # noqa: E501
    if len(re.findall(r"(?<!\\)\{", latex)) != len(re.findall(r"(?<!\\)\}", latex)):
        raise ValueError(f"${latex}$: braces do not match")
    try:
        drawn = convert(latex, display="block" if display else "inline")
    except Exception as error:  # its errors have no base of their own
        raise ValueError(f"${latex}$: {type(error).__name__}") from error
    unknown = UNKNOWN.search(drawn)
    if unknown:
        raise ValueError(f"${latex}$: {unknown[1]} is not known to latex2mathml")
    return FENCE.sub(r'<mo stretchy="false">\1</mo>', LETTER.sub(_relation, drawn))


def _relation(letter: re.Match[str]) -> str:
    """A sign that latex2mathml takes for a letter (~, for one) with the space that relations have."""
    sign = unicodedata.category(html.unescape(letter[1])) == "Sm"
    return f"<mo>{letter[1]}</mo>" if sign else letter[0]
