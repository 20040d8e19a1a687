"""The page of fitted laws: maps of the laws, then a table of all matrices."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from attnlaw.analysis.fit.model_fits import law_counts
from attnlaw.core.result import Result
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence, shared_settings
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import Part, figure_section, result_columns, results_page, rows_page

# Columns of the table that a notebook shows.
COLUMNS = ("model", "layer", "stack", "head", "expert", "kind", "law", "random_p_value", "outliers", "remark")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models, with a row for each matrix."""
    verb, fits = result.verb, result.finished_table("fits").drop("case")
    if not fits.height:
        return results_page([Part([result], figures)])
    sentences = [
        f"{fits.height} rows, and the figures that they allow.",
        failure_sentence(result.rows),
        shared_settings(fits, result_columns([verb])),
    ]
    return rows_page(verb.title, sentences, [figure_section("part-1", "Figures", figures)], fits, [verb])


def notebook_html(result: Result) -> Markup:
    """Return the HTML that a notebook shows: the number of matrices of each law, and a table of matrices."""
    fits = result.finished_table("fits")
    models = fits.partition_by("case", maintain_order=True)
    lines: Markup = macros("notebook.html").models([(rows["model"][0], law_counts(rows)) for rows in models])
    return lines + frame_html(fits, COLUMNS)
