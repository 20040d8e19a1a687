"""The page of audited models: the answer, key numbers, maps of heads, layers, and all proxies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import polars as pl
from markupsafe import Markup

from attnlaw.analysis.atlas.compare import range_lines, range_meanings, ranges_sentence
from attnlaw.analysis.audit.remarks import (
    extension_remarks,
    logit_sentence,
    missing_proxies,
    norm_basis_sentence,
    proxy_entries,
    proxy_remarks,
)
from attnlaw.core.answer import Answer
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence
from attnlaw.render.model_names import lines_about_models, model_names
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import (
    Part,
    Section,
    draw_on_page,
    explorer_section,
    figure_section,
    page_html,
    results_page,
    rows_section,
)
from attnlaw.verbs.audit import VERB
from attnlaw.verbs.audit.answer import answer, facts_of, page_commands
from attnlaw.verbs.audit.growth_chart import growth_section
from attnlaw.verbs.audit.layer_lines import layer_frame
from attnlaw.verbs.audit.page_data import audit_payload, constant_quantities

if TYPE_CHECKING:
    from attnlaw import AuditResult

# A study with more audited models gets the generic page.
MOST_MODELS = 12
# Figures that have their place in other sections than that of figures.
PROXIES, LAYERS, GROWTH = ("proxies",), ("amplification", "shares"), ("growth",)
SHARES = ("share_qk", "share_vo", "share_cross", "share_ffn")
# Models that agree in these have the same shape.
SHAPE = {"family": "family", "layers": "layers", "hidden_size": "hidden size", "heads": "heads"}
DIFFER = (
    "These models differ in {facts}. Proxies count matrices and ranks, which depend on the architecture. So "
    "a gap between these models does not show what training did."
)
# Numbers on a card, with their formats.
CARD_NUMBERS = {
    "rejected_share": ".1%",
    "median_outliers": ".3g",
    "median_effective_rank_qk": ".1f",
    "log10_amplification": ".2f",
}
BELOW = {"below": "how many of the trained reference models have a smaller number"}


def has_page(result: Result) -> TypeGuard[AuditResult]:
    """Return whether the audit page can show a result: finished audits with tables, and not too many."""
    known = {"matrices", "spectra", "layers"} <= result.tables.keys()
    finished = int((result.rows["status"] != "failed").sum())
    is_shown = finished > 0 and (finished <= MOST_MODELS or "task" not in result.rows.columns)
    return result.verb.name == "audit" and known and is_shown


def page(
    result: AuditResult, figures: Sequence[Figure], more: Sequence[Section] = (), note: str | None = None
) -> str:
    """Return the HTML page of one or several audited models.

    The sections `more` come before the table of matrices. `note` is a sentence for the lead. By default, the
    note says which audits failed.
    """
    if not has_page(result):
        return results_page([Part([result], figures)], answer=answer(result))
    summaries = _summaries(result)
    applied = all(summary["norms"] == "applied" for summary in summaries.values())
    matrices, layers = result.finished_table("matrices"), result.finished_table("layers")
    placed = [figure for figure in figures if figure.name in LAYERS]
    rest = [figure for figure in figures if figure.name not in (*PROXIES, *LAYERS, *GROWTH)]
    constant = " and ".join(result.verb.label(name) for name in constant_quantities(matrices))
    sentence = f"Not listed, because identical for all matrices of a kind: {constant}." if constant else ""
    sections = [
        _summary_section(result, summaries, applied),
        explorer_section("Heads", sentence),
        figure_section("layers", "Layers", placed, _shares_sentence(layers, figures)),
        figure_section("figures", "Figures", rest),
        _proxies_section(summaries, [figure for figure in figures if figure.name in PROXIES]),
        growth_section(result.finished_rows, [figure for figure in figures if figure.name in GROWTH]),
        *more,
        rows_section("Matrices", "qk layer=3 stable_rank<2"),
    ]
    names = {case: str(summary["model"]) for case, summary in summaries.items()}
    lead = f"{len(names)} models, {matrices.height} weight matrices."
    if len(names) == 1:
        ((case, name),) = names.items()
        lead = f"{name} · {facts_of(result[case], summaries[case])}."
    note = failure_sentence(result.rows) if note is None else note
    opening = Answer(answer(result).lines, page_commands(result))
    payload = audit_payload(result, names, applied)
    return page_html("Spectral audit", [lead, note], sections, payload, opening)


def _summaries(result: AuditResult) -> dict[int, dict[str, Any]]:
    """Return the summaries of the finished models, with unique names, by the number of the case."""
    pairs = enumerate(zip(result, model_names(result), strict=True))
    summaries = {case: part.summary | {"model": name} for case, (part, name) in pairs}
    return {case: summary for case, summary in summaries.items() if "proxies" in summary}


def _shares_sentence(layers: pl.DataFrame, figures: Sequence[Figure]) -> str:
    """Return a sentence with the parts of every layer's share of the proxy; empty if a figure shows them."""
    known = [name for name in SHARES if layers[name].count()]
    if not known or layers.height < 2 or any(figure.name == "shares" for figure in figures):
        return ""
    parts = ", ".join(f"{VERB.label(name)} {layers[name].drop_nulls()[0]:.1%}" for name in known)
    return f"In every layer, the kinds of matrix have the same shares of the proxy: {parts}."


def _summary_section(result: AuditResult, summaries: dict[int, dict[str, Any]], applied: bool) -> Section:
    short = short_names(str(summary["model"]) for summary in summaries.values())
    meanings = {quantity.name: quantity.description for quantity in VERB.quantities}
    cards = []
    for case, summary in summaries.items():
        shown = summary | ({} if applied else {"norms": "stored"})
        entry = summary["atlas"]
        cards.append(
            {
                "model": summary["model"],
                "short": short[summary["model"]],
                "facts": facts_of(result[case], summary),
                "numbers": [
                    (VERB.label(key), format(float(summary[key]), form), meanings[key])
                    for key, form in CARD_NUMBERS.items()
                    if summary[key] is not None
                ],
                "ranges": range_lines(entry) if entry else None,
                "meanings": range_meanings(entry["columns"]) | BELOW if entry else {},
                "ranges_sentence": ranges_sentence(entry) if entry else "",
                "remarks": [
                    norm_basis_sentence(shown),
                    *filter(None, [logit_sentence(summary)]),
                    *missing_proxies(summary),
                    *extension_remarks(summary),
                ],
            }
        )
    return Section("summary", "Key numbers", macros("verbs/audit/page.html").summary(cards), "Numbers")


def _proxies_section(summaries: dict[int, dict[str, Any]], figures: Sequence[Figure]) -> Section | None:
    colours = {str(summary["model"]): number for number, summary in enumerate(summaries.values())}
    short = short_names(colours)
    models = [summary for summary in summaries.values() if summary["proxies"]]
    if not models:
        return None
    heads: list[tuple[int | None, str]] = []
    columns: list[dict[str, Sequence[float | None]]] = []
    for model in models:
        colour, name = colours[model["model"]], short[model["model"]]
        for key, ending in (("proxies", ""), ("per_application", ", per application")):
            if model[key]:
                heads.append((colour, f"{name}{ending}") if len(models) > 1 else (None, f"log10{ending}"))
                columns.append({label: numbers for label, *numbers in proxy_entries(model[key])})
    rows = [
        (label, [_format_proxy(*entries.get(label, (None, None))) for entries in columns])
        for label in dict.fromkeys(label for entries in columns for label in entries)
    ]
    differ = [label for fact, label in SHAPE.items() if len({str(model[fact]) for model in models}) > 1]
    body = macros("verbs/audit/page.html").proxies(
        models[0]["meaning"] or "",
        DIFFER.format(facts=", ".join(differ)) if differ else "",
        heads,
        rows,
        draw_on_page(figures),
        lines_about_models({short[model["model"]]: proxy_remarks(model) for model in models}),
    )
    return Section("proxies", "Proxies", body)


def _format_proxy(log10: float | None, error: float | None) -> str:
    """Format a proxy with as many digits as its error allows.

    >>> _format_proxy(3.4, None), _format_proxy(3.4, 0.02), _format_proxy(None, None)
    ('3.4000', '3.40 ± 0.02', '–')
    """
    if log10 is None:
        return "–"
    if error is None:
        return f"{log10:.4f}"
    digits = min(8, max(0, -math.floor(math.log10(error))))
    return f"{log10:.{digits}f} ± {error:.{digits}f}"


def notebook_html(result: AuditResult) -> Markup:
    """Return the HTML that a notebook shows: the answer, and a table of layers for each model."""
    models = [
        (str(summary["model"]), facts_of(result[case], summary), frame_html(frame, frame.columns))
        for case, summary in _summaries(result).items()
        for frame in [layer_frame(result[case])]
    ]
    html: Markup = macros("verbs/audit/page.html").notebook(answer(result).lines, models)
    return html
