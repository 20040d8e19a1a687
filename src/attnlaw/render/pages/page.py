"""One self-contained page: templates with every text escaped, the data as JSON, and one script. The page's
Content-Security-Policy forbids all requests, and allows only the script whose hash it names."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from attnlaw import __version__
from attnlaw.core.answer import Answer
from attnlaw.core.errors import InputError, printable
from attnlaw.core.estimate import format_with_error
from attnlaw.core.files import to_json
from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import nan_to_null, short_names
from attnlaw.core.verb import Verb
from attnlaw.core.words import count_of
from attnlaw.render.charts.figure import Figure, draw_each
from attnlaw.render.charts.packages import INSTALL, has_packages
from attnlaw.render.charts.style import finite_or_none, inline_svg
from attnlaw.render.describe_rows import (
    capital,
    constant_settings,
    failed_rows,
    failure_sentence,
    format_short,
    shared_settings,
    showable_columns,
    variant_tables,
)
from attnlaw.render.pages.html import TEMPLATES, environment, macros

SCRIPTS = ("explorer", "detail", "table", "page")
SHOWN_HERE = {"--out", "--details"}  # a page does not suggest itself
MOST_SHOWN = 14  # columns of the table; the download has all
OUTCOME = ("status", "remark")  # columns that are shown if a task failed
WIDEST_HALF = 660  # a wider drawing, in pixels, does not fit half of a page
NOT_DRAWN = (
    f"This page has no figures, because a package that draws them is not installed. Type {INSTALL}, and "
    "write the page again with attnlaw report DIR."
)
# Characters that could end a script element or a line of JavaScript.
UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Section:
    """A section of a page: its id, heading, HTML, and its name in the navigation."""

    anchor: str
    title: str
    body: Markup
    link: str = ""


@dataclass(frozen=True, eq=False)
class Part:
    """The results of one directory and their figures, as a part of a page."""

    results: Sequence[Result]
    figures: Sequence[Figure]
    name: str = ""

    @property
    def every(self) -> list[Result]:
        """The results, each followed by the result of its simulation."""
        pairs = ((result, result.simulation) for result in self.results)
        return [result for pair in pairs for result in pair if result is not None]

    @property
    def title(self) -> str:
        return " · ".join(dict.fromkeys(result.verb.title for result in self.results))

    @property
    def rows(self) -> pl.DataFrame:
        """All rows. The columns of settings, which come first, including those of a simulation."""
        rows = pl.concat([result.plain_rows for result in self.every], how="diagonal_relaxed")
        columns = [result.verb.setting_columns.values() for result in self.every]
        settings = dict.fromkeys(chain.from_iterable(columns))
        return rows.select("verb", *settings, pl.exclude("verb", *settings))

    @property
    def listed_rows(self) -> pl.DataFrame:
        """The rows that the page lists: all cases, or for a single case its first table."""
        rows, result = self.rows, self.results[0]
        names = [spec.name for spec in result.verb.tables[:1]]
        table = next((result.tables[name] for name in names if name in result.tables), rows.clear())
        return rows if rows.height > 1 or not table.height else nan_to_null(table).drop("case")

    def figure_section(self, number: int, several: bool) -> Section | None:
        """Return the section of figures, which names the directory if there are `several`."""
        rows, drawn = self.listed_rows, "Drawn from" if self.figures else "attnlaw cannot draw a figure from"
        shared = shared_settings(rows, result_columns(result.verb for result in self.every))
        if not several:
            return figure_section("part-1", "Figures", self.figures, shared if self.figures else "")
        lead = f"{drawn} {count_of(rows.height, 'row')} in {self.name}. {shared}".strip()
        lead = lead if has_packages() else lead.removeprefix("Drawn from ")
        return figure_section(f"part-{number}", f"{self.name}: {self.title}", self.figures, lead, self.name)


def results_page(parts: Sequence[Part], note: str = "", answer: Answer | None = None) -> str:
    """Return the page of a verb without a special page: answer, note, figures, quantities and all rows."""
    several = len(parts) > 1
    finished = [result for part in parts for result in part.every if result.finished_rows.height]
    verbs = list({result.verb.name: result.verb for result in finished}.values())
    tables = [(part.listed_rows, pl.lit(part.name).alias("run")) for part in parts]
    named = [table.select(name, pl.exclude("run")) if several else table for table, name in tables]
    rows = pl.concat(named, how="diagonal_relaxed")
    names = ", ".join(f"{part.name} ({part.title})" for part in parts)
    drawn = any(part.figures for part in parts)
    lead = [
        f"{count_of(rows.height, 'row')}{f' of {names}' if several else ''}."
        f"{'' if drawn else ' They cannot be drawn as a figure.'}",
        note,
        failure_sentences(parts),
        "" if several or drawn else shared_settings(rows, result_columns(verbs)),
        " ".join(dict.fromkeys(filter(None, (verb.provenance for verb in verbs)))),
    ]
    sections = [
        *(part.figure_section(number, several) for number, part in enumerate(parts, start=1)),
        *(quantity_section(result.verb, result.finished_rows, len(verbs) > 1) for result in finished),
    ]
    title = " · ".join(dict.fromkeys(part.title for part in parts))
    return rows_page(title, lead, sections, rows, verbs, answer)


def failure_sentences(parts: Sequence[Part]) -> str:
    """Return sentences that say what failed. If there are several parts, each sentence names its part."""
    losses = [(part.name, failure_sentence(part.rows)) for part in parts]
    return " ".join(f"{name}: {text}" if len(parts) > 1 else text for name, text in losses if text)


def result_columns(verbs: Iterable[Verb[Any, Any]]) -> list[str]:
    """Return the columns that these verbs compute, in rows and in tables."""
    return [name for verb in verbs for quantity in verb.every_quantity for name in quantity.columns]


def rows_page(
    title: str,
    lead: str | Iterable[str],
    sections: Iterable[Section | None],
    rows: pl.DataFrame,
    verbs: Sequence[Verb[Any, Any]] = (),
    answer: Answer | None = None,
) -> str:
    """Return a page with the answer and these sections, followed by a table of all rows.

    `lead` is the text below the title, as one text or as a list of sentences. The labels of columns come from
    `verbs`.
    """
    outcome = [name for name in OUTCOME if name in rows.columns and rows[name].count()]
    outcome = outcome if failed_rows(rows).height else []
    quantities = [quantity for verb in verbs for quantity in verb.quantities]
    result_names = {name for quantity in quantities for name in quantity.columns}
    beside = {name for quantity in quantities for name in list(quantity.columns)[1:]}
    hidden = {*constant_settings(rows, result_names), *outcome, *beside}
    plain = [name for name in showable_columns(rows) if name not in hidden and rows[name].count()]
    shown = plain[: MOST_SHOWN - len(outcome)] + outcome
    labels = {
        name: verb.label(name) for verb in reversed(verbs) for name in (*verb.schema, *result_columns([verb]))
    }
    data = {
        "columns": plain_columns(rows),
        "infinite": infinite_places(rows),
        "shown": [(name, labels.get(name) or name.replace("_", " ")) for name in shown],
        "meanings": _column_meanings(verbs, shown),
        "names": _variant_labels(verbs, shown),
        "errors": {quantity.name: f"{quantity.name}_error" for quantity in quantities if quantity.error},
    }
    table = rows_section("Rows", _example_filter(rows.select(shown)))
    return page_html(title, lead, [*sections, table], data, answer)


def _column_meanings(verbs: Sequence[Verb[Any, Any]], shown: Sequence[str]) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for verb in verbs:
        fields = setting_fields(verb.settings)
        known = {column: fields[name].rule.help for name, column in verb.setting_columns.items()}
        known |= {quantity.name: quantity.description for quantity in verb.every_quantity}
        meanings |= {name: known[name] for name in shown if known.get(name) and name not in meanings}
    return meanings


def _variant_labels(verbs: Sequence[Verb[Any, Any]], shown: Sequence[str]) -> dict[str, dict[str, str]]:
    labels: dict[str, dict[str, str]] = {}
    for column, variants in (pair for verb in verbs for pair in variant_tables(verb).items()):
        if column in shown:
            labels[column] = {name: each.label for name, each in variants.items() if hasattr(each, "label")}
    return {column: named for column, named in labels.items() if named}


def quantity_section(verb: Verb[Any, Any], rows: pl.DataFrame, several: bool = False) -> Section | None:
    """Return a section with the meaning and the range of each quantity, or None if no quantity has values."""
    lines = []
    for quantity in verb.quantities:
        values = rows[quantity.name].drop_nulls() if quantity.name in rows.columns else pl.Series()
        if values.len() and not values.dtype.is_nested():
            error = rows[f"{quantity.name}_error"][0] if quantity.error and rows.height == 1 else None
            lines.append((quantity.label, quantity.description, _range(values, error)))
    if not lines:
        return None
    anchor = f"found-{re.sub('[^a-z]', '-', verb.name)}"
    title = f"{verb.title}: results" if several else "Results"
    body = macros("sections.html").quantities(lines)
    return Section(anchor, title, body, verb.title if several else "Quantities")


def _range(values: pl.Series, error: float | None) -> str:
    """Return a single value, the range of several numbers, or the number of different texts.

    >>> _range(pl.Series([0.5]), 0.01), _range(pl.Series([1, 3]), None), _range(pl.Series(["a", "b"]), None)
    ('0.50(1)', '1 to 3', '2 different')
    """
    if values.n_unique() == 1:
        only = values[0]
        return format_with_error(only, error) if error is not None else format_short(only)
    if not values.dtype.is_numeric():
        return f"{values.n_unique()} different"
    return f"{format_short(values.min())} to {format_short(values.max())}"


def _example_filter(rows: pl.DataFrame) -> str:
    """Return a condition that some rows meet and others do not. Return a word if there is no such condition.

    >>> _example_filter(pl.DataFrame({"alpha": [0.1, 0.1, 0.1], "width": [16, 64, 256]}))
    'width>64'
    """
    for name, values in zip(rows.columns, rows.iter_columns(), strict=True):
        if values.dtype.is_numeric() and values.count():
            middle = f"{median(values.drop_nulls().to_list()):.3g}"
            if 0 < (values > float(middle)).sum() < rows.height:
                return f"{name}>{middle}"
    return "done"


def page_html(
    title: str,
    lead: str | Iterable[str],
    sections: Iterable[Section | None],
    data: Mapping[str, Any],
    answer: Answer | None = None,
) -> str:
    """Return the complete HTML document: the lead, the answer, the sections, and `data` for its script."""
    script = "\n".join(["'use strict';", *(read_asset(f"{name}.js") for name in SCRIPTS)])
    template = environment().get_template("page.html")
    # A path in a command may contain control characters.
    commands = {
        printable(command): why
        for command, why in (answer.next_commands if answer else {}).items()
        if not SHOWN_HERE & set(command.split())
    }
    return template.render(
        title=title,
        answer=macros("sections.html").answer(answer.lines, commands) if answer else "",
        lead=lead if isinstance(lead, str) else " ".join(filter(None, lead)),
        version=__version__,
        style=Markup(read_asset("colours.css") + read_asset("page.css")),
        sections=list(filter(None, sections)),
        data=Markup(inert_json(data)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    )


def read_asset(name: str) -> str:
    """Return the text of a style sheet or a script. colours.css has the colours of charts."""
    return Path(TEMPLATES, name).read_text(encoding="utf-8").rstrip("\n")


def explorer_section(link: str, constant: str = "") -> Section:
    """Return the section with heat maps over layers and heads, and with details of the chosen matrix."""
    return Section("heads", "Heads and matrices", macros("sections.html").explorer(constant), link)


def explorer_data(
    verb: Verb[Any, Any],
    models: Mapping[int, str],
    rows: pl.DataFrame,
    mapped: Mapping[str, Mapping[str, Any]],
    facts: Iterable[str],
) -> dict[str, Any]:
    """Return the data that the script needs to show matrices, as values for JSON.

    `models` has the name of each case's model. `mapped` has the columns of heat maps, with how to read them
    and options for colours. `facts` has the columns that the page shows for a chosen matrix.
    """
    known = {column.name: column for table in reversed(verb.tables) for column in table.columns}
    kinds, laws = (known[name].choices or {} if name in known else {} for name in ("kind", "law"))
    short, number = short_names(models.values()), {case: number for number, case in enumerate(models)}
    meanings = {name: column.description for name, column in known.items() if column.description}
    return {
        "quantities": [
            {"key": name, "name": known[name].label, "log": known[name].log}
            | {"says": f"{capital(meanings[name])}. {how['read']}", **how}
            for name, how in mapped.items()
        ],
        "meanings": meanings,
        "facts": [(name, verb.label(name)) for name in facts],
        "names": {"kind": {name: kind.label for name, kind in kinds.items()}},
        "groups": {name: kind.group for name, kind in kinds.items()},
        "laws": {name: f"var(--c{law.colour})" for name, law in laws.items()},
        "models": [{"name": name, "short": short[name]} for name in models.values()],
        "columns": plain_columns(rows.drop("case")) | {"model": [number[case] for case in rows["case"]]},
    }


def rows_section(link: str, example: str) -> Section:
    """Return the section with the table of all rows. The filter of the table shows `example` as a hint."""
    title = f"All {link.lower()}"
    return Section("rows", title, macros("sections.html").rows(title, example), link)


def headline_numbers(
    verb: Verb[Any, Any], row: Mapping[str, Any], names: Iterable[str]
) -> list[tuple[str, str, str]]:
    """Return (label, text, meaning) of those named numbers that a row has."""
    meanings = {quantity.name: quantity.description for quantity in verb.quantities}
    shown = [name for name in names if row[name] is not None]
    return [(verb.label(name), format_short(row[name]), meanings.get(name, "")) for name in shown]


def draw_on_page(figures: Iterable[Figure], prefix: str = "") -> list[dict[str, Any]]:
    """Draw figures for the macro `drawing`, or return the reason why not. `prefix` makes ids unique.

    Nothing is drawn if a package that draws is missing.
    """
    if not has_packages():
        return []
    drawings = []
    for figure, svg in draw_each(figures, lambda figure: inline_svg(figure.draw(), prefix + figure.name)):
        drawing = {"title": figure.title, "caption": figure.caption, "missing": None, "is_broad": False}
        if isinstance(svg, InputError):
            drawings.append(drawing | {"missing": str(svg)})
        else:
            width = re.search(r'width="([\d.]+)"', svg)
            is_broad = width is not None and float(width[1]) > WIDEST_HALF
            drawings.append(drawing | {"svg": Markup(svg), "is_broad": is_broad})
    return drawings


def figure_section(
    anchor: str, title: str, figures: Iterable[Figure], lead: str = "", link: str = ""
) -> Section | None:
    """Return a section with figures and captions, or None if there is neither a figure nor a lead.

    If the packages that draw are not installed, a note says how to get the figures.
    """
    shown = [figure for figure in figures if figure.on_page]
    if not shown and not lead:
        return None
    drawings = draw_on_page(shown, f"{anchor}-")
    note = NOT_DRAWN if shown and not drawings else ""
    return Section(anchor, title, macros("sections.html").figures(lead, drawings, note), link)


def inert_json(value: Any) -> str:
    r"""Return JSON that is safe inside a script element.

    >>> inert_json({"model": "</script>"})
    '{"model": "\\u003c/script\\u003e"}'
    """
    return to_json(value, indent=None).translate(UNSAFE)


def plain_columns(table: pl.DataFrame) -> dict[str, list[Any]]:
    return {name: [finite_or_none(value) for value in table[name].to_list()] for name in table.columns}


def infinite_places(table: pl.DataFrame) -> dict[str, list[int]]:
    """Return, for each column, the indices of the rows in which it is infinite.

    JSON has no infinity, so the page's script inserts it again.

    >>> infinite_places(pl.DataFrame({"width": [16.0, float("inf"), None], "heads": [1, 2, 3]}))
    {'width': [1]}
    """
    floats = [name for name, dtype in table.schema.items() if dtype.is_float()]
    places = {name: (table[name] == math.inf).arg_true().to_list() for name in floats}
    return {name: rows for name, rows in places.items() if rows}


def pack_arrays(arrays: Iterable[Sequence[float] | None]) -> dict[str, Any]:
    """Pack arrays as `{"lengths": [...], "values": base64}`. A missing array has the length null.

    >>> pack_arrays([[1.0, 2.0], None])
    {'lengths': [2, None], 'values': 'AACAPwAAAEA='}
    """
    every = list(arrays)
    parts = [np.asarray(array, dtype="<f4") for array in every if array is not None]
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype="<f4")
    lengths = [None if array is None else len(array) for array in every]
    return {"lengths": lengths, "values": base64.b64encode(joined.tobytes()).decode("ascii")}
