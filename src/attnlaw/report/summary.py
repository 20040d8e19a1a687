"""The head of an audit's page, a card of findings for each model, and its proxies in one block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import polars as pl

from attnlaw.auditing.atlas.beside import range_lines, ranges_of
from attnlaw.auditing.findings.told import Group, groups
from attnlaw.auditing.remarks import (
    extension_remarks,
    findings_told,
    norms_shown,
    not_random,
    proxy_entries,
    proxy_remarks,
)
from attnlaw.base.tables import short_names
from attnlaw.report.audited import AuditRows
from attnlaw.report.titled import titled

# What models of one shape have in common.
SHAPE = {"family": "family", "layers": "layers", "hidden_size": "hidden size", "heads": "heads"}
DIFFER = (
    "These models differ in {facts}: how many matrices there are and which ranks they can have differs by "
    "architecture, and proxies count both. A gap between such models is not due to training alone."
)


# Numbers of a card, in which trained models differ.
NUMBERS = {
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
        _card(summary, short[summary["model"]], place if several else None, _found(audit, summary))
        for place, summary in enumerate(audit.shown)
    )
    return titled("summary", "Summary", f'<div id="models" class="cards">{cards}</div>')


def proxies_html(audit: AuditRows, drawn: str | None) -> str | None:
    """All proxies in one block, and what is to be known about them; `drawn` is their figure."""
    bounded = [summary for summary in audit.summaries if summary["proxies"]]
    if not bounded:
        return None
    short = short_names(audit.names)
    told: dict[str, list[str]] = {}
    for summary in bounded:
        for line in proxy_remarks(summary):
            told.setdefault(line, []).append(short[summary["model"]])
    said = [
        line if len(whose) == len(bounded) else f"{', '.join(whose)}: {line}" for line, whose in told.items()
    ]
    return titled("proxies", "Proxies", _proxies(audit.names, bounded, short, drawn or ""), _notes(said))


def _found(audit: AuditRows, summary: dict[str, Any]) -> list[Group]:
    """The findings of a model, from its rows; none where they were not looked for."""
    table = audit.tables.get("findings")
    own = [] if table is None else table.filter(pl.col("model") == summary["model"]).iter_rows(named=True)
    return groups(own)


def _findings(summary: dict[str, Any], found: Iterable[Group]) -> str:
    """The null test, how much was found, and each of it: level, rule, place, value, threshold, meaning."""
    lines = [line for line in (not_random(summary), findings_told(summary)) if line is not None]
    items = "".join(
        f'<li class="finding" data-level="{escape(one.level)}"><b>{escape(one.level)}</b> '
        f"{escape(one.rule)}: {escape(one.where)}<span>{escape(one.said)}</span></li>"
        for one in found
    )
    told = "".join(f'<p class="answer">{escape(line)}</p>' for line in lines)
    return f'{told}<ul class="findings">{items}</ul>' if items else told


def _card(summary: dict[str, Any], short: str, place: int | None, found: list[Group]) -> str:
    name = summary["model"]
    facts = [
        str(summary["family"]),
        f"{_told(summary['layers'])} layers",
        f"hidden size {_told(summary['hidden_size'])}",
        f"{_told(summary['heads'])} heads",
        f"{_told(summary['matrices'])} matrices",
    ]
    applied = {"log10_amplification": ", as applied"} if summary.get("log10_alpha_applied") else {}
    numbers = "".join(
        f"<div><dt>{escape(called)}{applied.get(key, '')}</dt>"
        f"<dd>{escape(format(float(summary[key]), form))}</dd></div>"
        for key, (called, form) in NUMBERS.items()
        if summary.get(key) is not None
    )
    said = [line for line in (norms_shown(summary), *extension_remarks(summary)) if line is not None]
    path = "" if short == name else f'<p class="path">{escape(name)}</p>'
    return (
        f"<article><h3>{_key(place)}{escape(short)}</h3>{path}"
        f'<p class="facts">{escape(" · ".join(facts))}</p>{_findings(summary, found)}'
        f'<dl class="headline">{numbers}</dl>{_atlas(summary, place is None)}{_notes(said)}'
        f"{_notes(summary['warnings'], 'note warning')}</article>"
    )


def _atlas(summary: dict[str, Any], opened: bool) -> str:
    """Where the model lies among those of the atlas; nothing of an older version, or of a part of a model."""
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
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{_notes([ranges_of(entry)])}</details>"
    )


def _proxies(names: list[str], models: list[dict[str, Any]], short: Mapping[str, str], drawn: str) -> str:
    """All proxies of all models: those of layers that are applied several times also for each application."""
    several = len(models) > 1
    columns = [
        (model, ending, {label: told for label, *told in proxy_entries(model[key])})
        for model in models
        for key, ending in (("proxies", ""), ("per_application", "per application"))
        if model[key]
    ]
    heads = "".join(
        f'<th scope="col">{_key(names.index(model["model"])) if several else ""}'
        f"{escape(', '.join(filter(None, [short[model['model']] if several else 'log10', ending])))}</th>"
        for model, ending, _ in columns
    )
    rows = "".join(
        f'<tr class="{"" if place else "lead-row"}"><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{_value(*entries.get(name, (None, None)))}</td>" for _, _, entries in columns)
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


def _value(log10: float | None, error: float | None) -> str:
    """A proxy with no digits beyond its error.

    >>> _value(3.4, None), _value(3.4, 0.02), _value(None, None)
    ('3.4000', '3.40 ± 0.02', '–')
    """
    if log10 is None:
        return "–"
    if error is None:
        return f"{log10:.4f}"
    digits = min(8, max(0, -math.floor(math.log10(error))))
    return f"{log10:.{digits}f} ± {error:.{digits}f}"


def _told(value: Any) -> str:
    return "–" if value is None else str(value)


def _key(place: int | None) -> str:
    """The colour of a model."""
    return "" if place is None else f'<span class="key" style="background:var(--c{place % 9})"></span>'


def _notes(lines: Iterable[str], kind: str = "note") -> str:
    return "".join(f'<p class="{kind}">{escape(line)}</p>' for line in lines)
