"""The head of an audit's page, a card of findings for each model, and its proxies in one block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import polars as pl

from attnlaw.analysis.atlas.compare import range_lines, ranges_sentence
from attnlaw.analysis.audit.remarks import (
    extension_remarks,
    findings_sentence,
    norm_basis_sentence,
    null_test_sentence,
    proxy_entries,
    proxy_remarks,
)
from attnlaw.analysis.findings.text import FindingGroup, group_findings
from attnlaw.core.tables import short_names
from attnlaw.render.pages.page import (
    LAYERS,
    PROXIES,
    Section,
    drawing_html,
    explorer_section,
    figure_section,
    page_html,
    rows_section,
)
from attnlaw.render.pages.section import section_html
from attnlaw.verbs.audit.constants import constant_sentences
from attnlaw.verbs.audit.explorer import audit_payload
from attnlaw.verbs.audit.frames import AuditRows, audit_figures

# What models of one shape have in common.
SHAPE = {"family": "family", "layers": "layers", "hidden_size": "hidden size", "heads": "heads"}
DIFFER = (
    "These models differ in {facts}: how many matrices there are and which ranks they can have differs by "
    "architecture, and proxies count both. A gap between such models is not due to training alone."
)


# Numbers of a card, in which trained models differ.
CARD_NUMBERS = {
    "rejected_share": ("unlike noise", ".1%"),
    "median_outliers": ("values beyond the edge", ".3g"),
    "median_effective_rank_qk": ("effective rank of QK", ".1f"),
    "log10_amplification": ("log10 α", ".2f"),
}


def summary_html(audit: AuditRows) -> str:
    """The section as HTML: what was found in each model, before any proxy."""
    short = short_names(audit.names)
    several = len(audit.names) > 1
    cards = "".join(
        _model_card(
            summary, short[summary["model"]], place if several else None, _finding_groups(audit, summary)
        )
        for place, summary in enumerate(audit.summaries_with_norms)
    )
    return section_html("summary", "Summary", f'<div id="models" class="cards">{cards}</div>')


def proxies_html(audit: AuditRows, dots_html: str | None) -> str | None:
    """All proxies in one block, and what is to be known about them; `dots_html` is their figure."""
    bounded = [summary for summary in audit.summaries if summary["proxies"]]
    if not bounded:
        return None
    short = short_names(audit.names)
    models_by_line: dict[str, list[str]] = {}
    for summary in bounded:
        for line in proxy_remarks(summary):
            models_by_line.setdefault(line, []).append(short[summary["model"]])
    said = [
        line if len(whose) == len(bounded) else f"{', '.join(whose)}: {line}"
        for line, whose in models_by_line.items()
    ]
    return section_html(
        "proxies", "Proxies", _proxies_table(audit.names, bounded, short, dots_html or ""), _notes_html(said)
    )


def _finding_groups(audit: AuditRows, summary: dict[str, Any]) -> list[FindingGroup]:
    """The findings of a model, from its rows; none where they were not looked for."""
    table = audit.tables.get("findings")
    rows = [] if table is None else table.filter(pl.col("model") == summary["model"]).iter_rows(named=True)
    return group_findings(rows)


def _findings_html(summary: dict[str, Any], groups: Iterable[FindingGroup]) -> str:
    """The null test, how much was found, and each of it: level, rule, place, value, threshold, meaning."""
    lines = [line for line in (null_test_sentence(summary), findings_sentence(summary)) if line is not None]
    items = "".join(
        f'<li class="finding" data-level="{escape(group.level)}"><b>{escape(group.level)}</b> '
        f"{escape(group.rule)}: {escape(group.where)}<span>{escape(group.sentence)}</span></li>"
        for group in groups
    )
    paragraphs = "".join(f'<p class="answer">{escape(line)}</p>' for line in lines)
    return f'{paragraphs}<ul class="findings">{items}</ul>' if items else paragraphs


def _model_card(summary: dict[str, Any], short: str, place: int | None, groups: list[FindingGroup]) -> str:
    name = summary["model"]
    facts = [
        str(summary["family"]),
        f"{_or_dash(summary['layers'])} layers",
        f"hidden size {_or_dash(summary['hidden_size'])}",
        f"{_or_dash(summary['heads'])} heads",
        f"{_or_dash(summary['matrices'])} matrices",
    ]
    applied = {"log10_amplification": ", as applied"} if summary["log10_alpha_applied"] else {}
    numbers = "".join(
        f"<div><dt>{escape(called)}{applied.get(key, '')}</dt>"
        f"<dd>{escape(format(float(summary[key]), form))}</dd></div>"
        for key, (called, form) in CARD_NUMBERS.items()
        if summary[key] is not None
    )
    said = [norm_basis_sentence(summary), *extension_remarks(summary)]
    path = "" if short == name else f'<p class="path">{escape(name)}</p>'
    return (
        f"<article><h3>{_colour_key(place)}{escape(short)}</h3>{path}"
        f'<p class="facts">{escape(" · ".join(facts))}</p>{_findings_html(summary, groups)}'
        f'<dl class="headline">{numbers}</dl>{_atlas_html(summary, place is None)}{_notes_html(said)}'
        f"{_notes_html(summary['warnings'], 'note warning')}</article>"
    )


def _atlas_html(summary: dict[str, Any], opened: bool) -> str:
    """Where the model lies among those of the atlas; nothing of a part of a model, or of a study."""
    entry = summary.get("atlas")
    if not entry:
        return ""
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("quantity", "here", "trained", "lie below", "fresh")
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for label, *cells in range_lines(entry)
    )
    return (
        f'<details class="atlas"{" open" if opened else ""}><summary>Beside other models</summary>'
        '<div class="wide" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{_notes_html([ranges_sentence(entry)])}</details>"
    )


def _proxies_table(
    names: list[str], models: list[dict[str, Any]], short: Mapping[str, str], drawn: str
) -> str:
    """All proxies of all models: those of layers that are applied several times also for each application."""
    several = len(models) > 1
    columns = [
        (model, ending, {label: numbers for label, *numbers in proxy_entries(model[key])})
        for model in models
        for key, ending in (("proxies", ""), ("per_application", "per application"))
        if model[key]
    ]
    heads = "".join(
        f'<th scope="col">{_colour_key(names.index(model["model"])) if several else ""}'
        f"{escape(', '.join(filter(None, [short[model['model']] if several else 'log10', ending])))}</th>"
        for model, ending, _ in columns
    )
    rows = "".join(
        f'<tr class="{"" if place else "lead-row"}"><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{_format_proxy(*entries.get(name, (None, None)))}</td>" for _, _, entries in columns)
        + "</tr>"
        for place, name in enumerate(dict.fromkeys(name for _, _, entries in columns for name in entries))
    )
    differ = [called for fact, called in SHAPE.items() if len({str(model[fact]) for model in models}) > 1]
    note = f'<p class="note" id="shapes">{DIFFER.format(facts=", ".join(differ))}</p>' if differ else ""
    return (
        f'<figure class="card"><p class="meaning">{escape(models[0]["meaning"] or "")}</p>{note}'
        '<div class="beside"><div class="wide" tabindex="0"><table><thead><tr>'
        f'<th scope="col">log10 of</th>{heads}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>{drawn}</div></figure>"
    )


def _format_proxy(log10: float | None, error: float | None) -> str:
    """A proxy with no digits beyond its error.

    >>> _format_proxy(3.4, None), _format_proxy(3.4, 0.02), _format_proxy(None, None)
    ('3.4000', '3.40 ± 0.02', '–')
    """
    if log10 is None:
        return "–"
    if error is None:
        return f"{log10:.4f}"
    digits = min(8, max(0, -math.floor(math.log10(error))))
    return f"{log10:.{digits}f} ± {error:.{digits}f}"


def _or_dash(value: Any) -> str:
    return "–" if value is None else str(value)


def _colour_key(place: int | None) -> str:
    """The colour of a model."""
    return "" if place is None else f'<span class="key" style="background:var(--c{place % 9})"></span>'


def _notes_html(lines: Iterable[str], kind: str = "note") -> str:
    return "".join(f'<p class="{kind}">{escape(line)}</p>' for line in lines)


def audit_page(audit: AuditRows, more: Iterable[Section] = (), note: str = "") -> str:
    """The page of one or several audited models, with further sections before its table of matrices.

    `note` is what its lead says of the rest.
    """
    drawn = audit_figures(audit)
    dots = "".join(
        f"<div>{drawing_html(figure, figure.name)[0]}</div>" for figure in drawn if figure.name in PROXIES
    )
    proxies = proxies_html(audit, dots)
    same = constant_sentences(audit)
    layers = figure_section(
        "layers", "Layers", [figure for figure in drawn if figure.name in LAYERS], same.layers
    )
    rest = figure_section(
        "figures", "Figures", [figure for figure in drawn if figure.name not in (*PROXIES, *LAYERS)]
    )
    sections = [
        Section("summary", "Summary", summary_html(audit)),
        explorer_section("Heads", same.matrices),
        *(section for section in (layers, rest) if section is not None),
        *([] if proxies is None else [Section("proxies", "Proxies", proxies)]),
        *more,
        rows_section("Matrices", "qk layer=3 stable_rank<2"),
    ]
    count = len(audit.summaries)
    lead = (
        f"{audit.matrices.height} matrices of {count} models, side by side."
        if count > 1
        else f"{audit.matrices.height} matrices of {audit.names[0]}."
    )
    return page_html("Spectral audit", f"{lead} {note}".strip(), sections, audit_payload(audit))
