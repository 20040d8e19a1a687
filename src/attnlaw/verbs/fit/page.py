"""The page of fitted laws: the answer, maps of the laws, their meanings, and a table of all matrices."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from markupsafe import Markup

from attnlaw.analysis.fit import LAWS
from attnlaw.analysis.fit.summary import NO_LAW, groups_by_kind, kind_label, law_counts
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence, shared_settings
from attnlaw.render.model_names import model_names
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import Part, Section, figure_section, result_columns, results_page, rows_page
from attnlaw.verbs.fit.answer import answer

LOCATION = ("model", "layer", "stack", "head", "expert", "kind")
# Columns of the table that a notebook shows.
COLUMNS = (*LOCATION, "law", "random_p_value", "outliers", "remark")
# The columns that the page shows first; the download has all.
FIRST = (
    *LOCATION,
    "law",
    "random_p_value",
    "outliers",
    "wasserstein",
    "alpha",
    "tail_share",
    "kappa",
    "values",
)


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models, with a row for each matrix."""
    verb, fits = result.verb, result.finished_table("fits")
    if not fits.height:
        return results_page([Part([result], figures)], answer=answer(result))
    matrices = "1 matrix" if fits.height == 1 else f"{fits.height} matrices"
    rows = fits.select(*FIRST, pl.exclude(*FIRST, "case"))
    sentences = [
        f"{matrices} of {', '.join(result.finished_rows['model'])}.",
        failure_sentence(result.rows),
        shared_settings(rows.drop("model"), result_columns([verb])),
    ]
    sections = [figure_section("part-1", "Map of laws", figures), _counts(result, fits)]
    return rows_page(verb.title, sentences, sections, rows, [verb], answer(result))


def _counts(result: Result, fits: pl.DataFrame) -> Section:
    names = list(short_names(model_names(result)).values())
    laws = list(law_counts(fits))
    lines = []
    for group in groups_by_kind(fits):
        counts = law_counts(group)
        model = f" of {names[group['case'][0]]}" if len(names) > 1 else ""
        cells = [str(counts.get(law, "–")) for law in laws]
        lines.append((f"{kind_label(group['kind'][0])}{model}", str(group.height), *cells))
    meanings = [(law, LAWS[law].description if law in LAWS else NO_LAW) for law in laws]
    body = macros("verbs/fit/page.html").counts(("kind", "matrices", *laws), lines, meanings)
    return Section("laws", "Laws by kind of matrix", body, "Laws")


def notebook_html(result: Result) -> Markup:
    """Return the HTML that a notebook shows: the answer, then a table of matrices."""
    html: Markup = macros("notebook.html").answer(answer(result).lines)
    return html + frame_html(result.finished_table("fits"), COLUMNS)
