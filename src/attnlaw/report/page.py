"""One self-contained page: our own template, the data as inert JSON, the script once. Every text is escaped.

The page's Content-Security-Policy allows no request and no script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from statistics import median
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.base.files import to_json
from attnlaw.report.audit_figures import audit_figures
from attnlaw.report.figure import Figure
from attnlaw.report.inline import inline_svg
from attnlaw.report.leads import constants, failed, plain_names
from attnlaw.report.payload import audit_payload, infinite_places, plain_columns
from attnlaw.report.saved import AuditRows

SCRIPTS = ("core", "plot", "colors", "summary", "explorer", "detail", "layers", "table", "main")
# Columns that a table of any rows shows at most; the download has all.
MOST_SHOWN = 14
# Shown where a task failed.
OUTCOME = ("status", "error")
# A drawing wider than this, in pixels, does not fit half of a page.
WIDEST_HALF = 660
# What could end a script element or a line of JavaScript.
UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Section:
    """A part of a page: where the navigation jumps to, and its HTML."""

    anchor: str
    title: str
    html: str


def audit_page(audit: AuditRows, more: Iterable[Section] = (), note: str = "") -> str:
    """The page of one or several audited models, with further sections before its table of matrices.

    `note` is what its lead says of the rest.
    """
    figures = figure_section("figures", "Figures", audit_figures(audit))
    sections = [
        Section("summary", "Summary", _template("audit.html")),
        Section("heads", "Heads", ""),
        Section("layers", "Layers", ""),
        *([figures] if figures else []),
        *more,
        _rows_section("Matrices", "qk layer=3 stable_rank<2"),
    ]
    count = len(audit.summaries)
    lead = (
        f"{audit.matrices.height} matrices of {count} models, side by side."
        if count > 1
        else f"{audit.matrices.height} matrices of {audit.names[0]}."
    )
    return page("Spectral audit", f"{lead} {note}".strip(), sections, audit_payload(audit))


def rows_page(title: str, lead: str, sections: Iterable[Section], rows: pl.DataFrame) -> str:
    """The page of studies and training runs: their figures, then all their rows."""
    outcome = [name for name in OUTCOME if name in rows.columns] if failed(rows).height else []
    hidden = {*constants(rows), *outcome}
    plain = [name for name in plain_names(rows) if name not in hidden and rows[name].count()]
    shown = plain[: MOST_SHOWN - len(outcome)] + outcome
    data = {
        "columns": plain_columns(rows),
        "infinite": infinite_places(rows),
        "shown": [(name, name.replace("_", " ")) for name in shown],
    }
    return page(title, lead, [*sections, _rows_section("Rows", _example(rows.select(shown)))], data)


def _example(rows: pl.DataFrame) -> str:
    """A condition that some rows fulfil and some do not; a word that may be in them where there is none.

    >>> _example(pl.DataFrame({"alpha": [0.1, 0.1, 0.1], "width": [16, 64, 256]}))
    'width>64'
    """
    for name, values in zip(rows.columns, rows.iter_columns(), strict=True):
        if values.dtype.is_numeric() and values.count():
            middle = f"{median(values.drop_nulls().to_list()):.3g}"
            if 0 < (values > float(middle)).sum() < rows.height:
                return f"{name}>{middle}"
    return "done"


def page(title: str, lead: str, sections: Iterable[Section], data: Mapping[str, Any]) -> str:
    """The whole HTML document; `title` and `lead` are text, sections are HTML."""
    parts = list(sections)
    script = "\n".join(["'use strict';", *(_template(f"{name}.js") for name in SCRIPTS)])
    links = "".join(f'<a href="#{part.anchor}">{escape(part.title)}</a>' for part in parts)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _filled(
        _template("page.html"),
        {
            "title": escape(title),
            "lead": escape(lead),
            "version": escape(__version__),
            "style": _template("page.css"),
            "navigation": links,
            "sections": "\n".join(part.html for part in parts),
            "data": inert_json(data),
            "script": script,
            "script_hash": digest,
        },
    )


def _rows_section(title: str, example: str) -> Section:
    """The table of all rows, with a filter of which `example` is one."""
    words = {"title": f"All {title.lower()}", "example": escape(f"such as: {example}")}
    return Section("rows", title, _filled(_template("rows.html"), words))


def figure_section(
    anchor: str, title: str, figures: Iterable[Figure], lead: str = "", link: str | None = None
) -> Section | None:
    """Drawn figures in cards, each with its caption; None without figures for the page and without a lead."""
    cards = [_card(figure, f"{anchor}-{figure.name}") for figure in figures if figure.on_page]
    if not cards and not lead:
        return None
    html = (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{escape(title)}</h2>'
        f'<p class="lead">{escape(lead)}</p><div class="figures">{"".join(cards)}</div></section>'
    )
    return Section(anchor, link or title, html)


def _card(figure: Figure, name: str) -> str:
    """A figure in a card; a wide one takes the whole width of the page."""
    drawn = inline_svg(figure.draw(), name)
    width = re.search(r'width="([\d.]+)"', drawn)
    size = " broad" if width and float(width[1]) > WIDEST_HALF else ""
    title = escape(figure.title)
    return (
        f'<figure class="card{size}"><h3>{title}</h3>'
        f'<div class="wide drawn" role="img" tabindex="0" aria-label="{title}">{drawn}</div>'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def inert_json(value: Any) -> str:
    """JSON that is safe inside a script element.

    >>> inert_json({"model": "</script>"})
    '{"model": "\\\\u003c/script\\\\u003e"}'
    """
    return to_json(value, indent=None).translate(UNSAFE)


def _template(name: str) -> str:
    return files("attnlaw.report").joinpath("templates", name).read_text(encoding="utf-8").rstrip("\n")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template with every {{name}} replaced, in one pass: values are never searched for names."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template) + "\n"
