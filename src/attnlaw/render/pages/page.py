"""One self-contained page: our own template, the data as inert JSON, the script once. Every text is escaped.

The page's Content-Security-Policy allows no request and no script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from statistics import median
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.core.estimate import format_with_error
from attnlaw.core.files import to_json
from attnlaw.core.quantity import column_kinds
from attnlaw.core.verb import Verb
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.labels import (
    constant_settings,
    failed_rows,
    format_short,
    showable_columns,
    variant_tables,
)
from attnlaw.render.charts.style import inline_svg
from attnlaw.render.pages.payload import infinite_places, plain_columns
from attnlaw.render.pages.section import section_html

SCRIPTS = ("explorer", "detail", "table", "page")
# Figures of an audit that have a place of their own on its page.
PROXIES, LAYERS = ("proxies",), ("amplification", "shares")
# Columns that a table of any rows shows at most; the download has all.
MOST_SHOWN = 14
# Shown where a task failed.
OUTCOME = ("status", "error", "remark")
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


def rows_page(
    title: str,
    lead: str,
    sections: Iterable[Section],
    rows: pl.DataFrame,
    verbs: Sequence[Verb[Any, Any]] = (),
) -> str:
    """The page of studies, commands and training runs: its sections, then all rows."""
    outcome = [name for name in OUTCOME if name in rows.columns and rows[name].count()]
    outcome = outcome if failed_rows(rows).height else []
    quantities = [quantity for verb in verbs for quantity in verb.quantities]
    result_columns = {name for quantity in quantities for name in quantity.columns}
    beside = {name for quantity in quantities for name in list(quantity.columns)[1:]}
    hidden = {*constant_settings(rows, result_columns), *outcome, *beside}
    plain = [name for name in showable_columns(rows) if name not in hidden and rows[name].count()]
    shown = plain[: MOST_SHOWN - len(outcome)] + outcome
    data = {
        "columns": plain_columns(rows),
        "infinite": infinite_places(rows),
        "shown": [(name, _column_label(verbs, name)) for name in shown],
        "names": _variant_labels(verbs, shown),
        "errors": {quantity.name: f"{quantity.name}_error" for quantity in quantities if quantity.error},
    }
    return page_html(
        title, lead, [*sections, rows_section("Rows", _example_filter(rows.select(shown)))], data
    )


def _column_label(verbs: Sequence[Verb[Any, Any]], name: str) -> str:
    """What the first verb that knows a column calls it."""
    tables = {
        verb.name: {column for table in verb.tables for column in column_kinds(table.columns)}
        for verb in verbs
    }
    knowing = (verb for verb in verbs if name in verb.schema or name in tables[verb.name])
    return next((verb.label(name) for verb in knowing), name.replace("_", " "))


def _variant_labels(verbs: Sequence[Verb[Any, Any]], shown: Sequence[str]) -> dict[str, dict[str, str]]:
    """The labels of variants, by column, where they have labels."""
    every = {name: of for verb in verbs for name, of in variant_tables(verb).items() if name in shown}
    labels = {
        column: {name: variant.label for name, variant in of.items() if hasattr(variant, "label")}
        for column, of in every.items()
    }
    return {column: variant_labels for column, variant_labels in labels.items() if variant_labels}


def quantity_section(verb: Verb[Any, Any], rows: pl.DataFrame, several: bool) -> Section | None:
    """A table of a verb's quantities: what each is, and from where to where it goes in its rows."""
    lines = []
    for quantity in verb.quantities:
        values = rows[quantity.name].drop_nulls() if quantity.name in rows.columns else pl.Series()
        if values.len() and not values.dtype.is_nested():
            errors = (
                rows[f"{quantity.name}_error"]
                if quantity.error and f"{quantity.name}_error" in rows.columns
                else None
            )
            error = errors[0] if errors is not None and rows.height == 1 else None
            lines.append(
                f'<tr><th scope="row">{escape(quantity.label)}</th><td>{escape(quantity.description)}</td>'
                f"<td>{escape(_range(values, error))}</td></tr>"
            )
    if not lines:
        return None
    anchor = f"found-{re.sub('[^a-z]', '-', verb.name)}"
    title = f"{verb.title}: what was found" if several else "What was found"
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("quantity", "what it is", "found"))
    body = (
        f'<div class="card wide meanings" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
    return Section(anchor, verb.title if several else "Quantities", section_html(anchor, title, body))


def _range(values: pl.Series, error: float | None) -> str:
    """The value, or from where to where values go, or how many different texts there are.

    >>> _range(pl.Series([0.5]), 0.01), _range(pl.Series([1, 3]), None), _range(pl.Series(["a", "b"]), None)
    ('0.50(1)', '1 to 3', '2 different')
    """
    if values.n_unique() == 1:
        only = values[0]
        return format_with_error(only, error) if error is not None else format_short(only)
    if not values.dtype.is_numeric():
        return f"{values.n_unique()} different"
    low, high = values.min(), values.max()
    return f"{format_short(low)} to {format_short(high)}"


def _example_filter(rows: pl.DataFrame) -> str:
    """A condition that some rows fulfil and some do not; a word that may be in them where there is none.

    >>> _example_filter(pl.DataFrame({"alpha": [0.1, 0.1, 0.1], "width": [16, 64, 256]}))
    'width>64'
    """
    for name, values in zip(rows.columns, rows.iter_columns(), strict=True):
        if values.dtype.is_numeric() and values.count():
            middle = f"{median(values.drop_nulls().to_list()):.3g}"
            if 0 < (values > float(middle)).sum() < rows.height:
                return f"{name}>{middle}"
    return "done"


def page_html(title: str, lead: str, sections: Iterable[Section], data: Mapping[str, Any]) -> str:
    """The whole HTML document; `title` and `lead` are text, sections are HTML."""
    parts = list(sections)
    script = "\n".join(["'use strict';", *(_template(f"{name}.js") for name in SCRIPTS)])
    links = "".join(f'<a href="#{part.anchor}">{escape(part.title)}</a>' for part in parts)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _fill_template(
        _template("page.html"),
        {
            "title": escape(title),
            "lead": escape(lead),
            "version": escape(__version__),
            "style": colour_css() + _template("page.css"),
            "navigation": links,
            "sections": "\n".join(part.html for part in parts),
            "data": inert_json(data),
            "script": script,
            "script_hash": digest,
        },
    )


def colour_css() -> str:
    """The variables that stand for the colours of charts inside a page, as CSS."""
    return _template("colours.css")


def explorer_section(title: str, constant: str = "") -> Section:
    """Maps of layers by heads, and beside them what was chosen; `constant` says what cannot be."""
    return Section("heads", title, _fill_template(_template("explorer.html"), {"constant": escape(constant)}))


def rows_section(title: str, example: str) -> Section:
    """The table of all rows, with a filter of which `example` is one."""
    words = {"title": f"All {title.lower()}", "example": escape(f"such as: {example}")}
    return Section("rows", title, _fill_template(_template("rows.html"), words))


def headline(verb: Verb[Any, Any], row: Mapping[str, Any], names: Iterable[str], errors: bool = False) -> str:
    """The numbers of a card: those that a row has, labelled, in short or with their errors."""
    texts = {
        name: format_with_error(row[name], row.get(f"{name}_error")) if errors else format_short(row[name])
        for name in names
        if row[name] is not None
    }
    numbers = (
        f"<div><dt>{escape(verb.label(name))}</dt><dd>{escape(text)}</dd></div>"
        for name, text in texts.items()
    )
    return f'<dl class="headline">{"".join(numbers)}</dl>'


def cards_section(anchor: str, title: str, link: str, cards: Iterable[str]) -> Section:
    """Articles, whose HTML is given, side by side."""
    return Section(anchor, link, section_html(anchor, title, f'<div class="cards">{"".join(cards)}</div>'))


def figure_section(
    anchor: str, title: str, figures: Iterable[Figure], lead: str = "", link: str | None = None
) -> Section | None:
    """Drawn figures in cards, each with its caption; None without figures for the page and without a lead."""
    cards = [_figure_card(figure, f"{anchor}-{figure.name}") for figure in figures if figure.on_page]
    if not cards and not lead:
        return None
    body = f'<p class="lead">{escape(lead)}</p><div class="figures">{"".join(cards)}</div>'
    return Section(anchor, link or title, section_html(anchor, title, body))


def _figure_card(figure: Figure, name: str) -> str:
    """A figure in a card; a wide one takes the whole width of the page."""
    html, width = drawing_html(figure, name)
    size = " broad" if width > WIDEST_HALF else ""
    return f'<figure class="card{size}"><h3>{escape(figure.title)}</h3>{html}</figure>'


def drawing_html(figure: Figure, name: str) -> tuple[str, float]:
    """A figure with its caption as HTML, and how wide it is."""
    drawn = inline_svg(figure.draw(), name)
    width = re.search(r'width="([\d.]+)"', drawn)
    html = (
        f'<div class="wide drawn" role="img" tabindex="0" aria-label="{escape(figure.title)}">{drawn}</div>'
        f"<figcaption>{escape(figure.caption)}</figcaption>"
    )
    return html, float(width[1]) if width else 0.0


def inert_json(value: Any) -> str:
    """JSON that is safe inside a script element.

    >>> inert_json({"model": "</script>"})
    '{"model": "\\\\u003c/script\\\\u003e"}'
    """
    return to_json(value, indent=None).translate(UNSAFE)


def _template(name: str) -> str:
    return files("attnlaw.render.pages").joinpath("templates", name).read_text(encoding="utf-8").rstrip("\n")


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with every {{name}} replaced, in one pass: values are never searched for names."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template) + "\n"
