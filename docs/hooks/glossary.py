"""The glossary: its page, and a tooltip with a link at the first use of each of its words on every page.

`docs/concepts/glossary.toml` has the words. On the page of the glossary, `<!-- glossary -->` becomes the
list.
"""

from __future__ import annotations

import html
import re
import tomllib
from functools import cache
from html.parser import HTMLParser
from os.path import relpath
from pathlib import Path
from typing import Any

WORDS = Path(__file__).parents[1] / "concepts" / "glossary.toml"
PAGE = "concepts/glossary.md"
PLACE = "<!-- glossary -->"
# Text inside these elements is left as it is.
CLOSED = {
    "a",
    "code",
    "pre",
    "h1",
    "h2",
    "h3",
    "h4",
    "math",
    "script",
    "style",
    "svg",
    "button",
    "th",
    "figcaption",
}
# Neighbours with which an ordinary word has its ordinary meaning: "runs code", "an open gate".
BEFORE = re.compile(r"\b(?:runs?|running|open|opens|your|own|foreign|source)\s+$", re.IGNORECASE)
AFTER = re.compile(r"\s+(?:scanning|hosts?)\b", re.IGNORECASE)
VOID = {"img", "br", "hr", "input", "meta", "link", "source", "wbr", "col"}


@cache
def terms() -> list[dict[str, Any]]:
    """Return the words in alphabetical order."""
    entries = tomllib.loads(WORDS.read_text(encoding="utf-8"))["term"]
    return sorted(entries, key=lambda entry: entry["word"].lower())


def anchor(word: str) -> str:
    """Return the id of a word on the page of the glossary.

    >>> anchor("samples / d²")
    'samples-d'
    """
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")


@cache
def forms() -> dict[str, dict[str, Any]]:
    """Return the entry of each form of a word."""
    return {form.lower(): entry for entry in terms() for form in (entry["word"], *entry.get("also", ()))}


@cache
def pattern() -> re.Pattern[str]:
    longest_first = sorted(forms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])", re.IGNORECASE)


def glossary_list() -> str:
    """Return the entries as HTML that Markdown leaves alone."""
    lines = ['<dl class="glossary">']
    for entry in terms():
        link = ""
        if "see" in entry:
            page, _, place = entry["see"].partition("#")
            address = f"{relpath(page, Path(PAGE).parent).removesuffix('.md')}.html"
            link = f' <a href="{address}{"#" * bool(place)}{place}">More</a>'
        word, meaning = html.escape(entry["word"]), html.escape(entry["meaning"])
        lines.append(f'<dt id="{anchor(entry["word"])}">{word}</dt><dd>{meaning}{link}</dd>')
    return "\n".join([*lines, "</dl>"])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the list of words in its place."""
    return markdown.replace(PLACE, glossary_list())


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return the page with a link and a tooltip at the first use of each word."""
    uri = page.file.src_uri
    if uri == PAGE or uri.startswith(("python/", "commands/index")):
        return content
    address = f"{relpath(PAGE, Path(uri).parent).removesuffix('.md')}.html"
    return Linker(address, uri).link(content)


class Linker(HTMLParser):
    """Copies HTML, and links the first use of each word outside of headings, code and links."""

    def __init__(self, address: str, uri: str) -> None:
        super().__init__(convert_charrefs=False)
        self.address, self.seen, self.parts, self.closed = address, set[str](), list[str](), list[str]()
        self.seen |= {
            entry["word"] for entry in terms() if not uri.startswith(tuple(entry.get("where", [""])))
        }

    def link(self, content: str) -> str:
        self.feed(content)
        self.close()
        return "".join(self.parts)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.parts.append(self.get_starttag_text() or "")
        is_title = ("class", "filename") in attrs  # of a block of code
        if tag in CLOSED or is_title or (self.closed and tag not in VOID):
            self.closed.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(f"</{tag}>")
        if self.closed and tag in self.closed:
            while self.closed and self.closed.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.parts.append(data if self.closed else pattern().sub(self._linked, data))

    def handle_entityref(self, name: str) -> None:
        self.parts.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.parts.append(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        self.parts.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.parts.append(f"<!{decl}>")

    def _linked(self, match: re.Match[str]) -> str:
        entry = forms()[match[0].lower()]
        word = entry["word"]
        before, after = match.string[: match.start()], match.string[match.end() :]
        if "where" in entry and (BEFORE.search(before) or AFTER.match(after)):
            return match[0]
        # "law" is a term, and the "Law" that starts a name is not; capitals alone must agree ("QK").
        if word in self.seen or (
            word.isupper() and match[0] != word and match[0] not in entry.get("also", ())
        ):
            return match[0]
        self.seen.add(word)
        meaning = html.escape(entry["meaning"], quote=True)
        return f'<a class="term" href="{self.address}#{anchor(word)}" title="{meaning}">{match[0]}</a>'
