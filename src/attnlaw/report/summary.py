"""The head of an audit's page: a card for each model, what proxies are, and all of them in a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from attnlaw.auditing.remarks import proxy_entries, remarks
from attnlaw.base.tables import short_names
from attnlaw.report.audited import HEADLINE, AuditRows, proxies_row

# What models of one shape have in common.
SHAPE = {"family": "family", "layers": "layers", "hidden_size": "hidden size", "heads": "heads"}
DIFFER = (
    "These models differ in {facts}: how many matrices there are and which ranks they can have differs by "
    "architecture, and proxies count both. A gap between such models is not due to training alone."
)


def summary_html(audit: AuditRows, drawn: str | None) -> str:
    """The section as HTML; `drawn` is the figure of the proxies."""
    short = short_names(audit.names)
    cards = "".join(
        _card(summary, short[summary["model"]], place if len(audit.names) > 1 else None)
        for place, summary in enumerate(audit.shown)
    )
    bounded = [summary for summary in audit.summaries if summary["proxies"]]
    proxies = _proxies(audit.names, bounded, short, drawn or "") if bounded else ""
    return (
        '<section id="summary" aria-labelledby="summary-title"><h2 id="summary-title">Summary</h2>'
        f'<div id="models" class="cards">{cards}</div>{proxies}</section>'
    )


def _card(summary: dict[str, Any], short: str, place: int | None) -> str:
    name, proxies = summary["model"], proxies_row(summary)
    facts = [
        str(summary["family"]),
        f"{_told(summary['layers'])} layers",
        f"hidden size {_told(summary['hidden_size'])}",
        f"{_told(summary['heads'])} heads",
        f"{_told(summary['matrices'])} matrices",
    ]
    numbers = "".join(
        f"<div><dt>{escape(called)}</dt><dd>10<sup>{_power(proxies[key])}</sup></dd></div>"
        for key, called in HEADLINE.items()
        if key in proxies
    )
    said = [line for line in remarks(summary) if line != summary["meaning"]]
    path = "" if short == name else f'<p class="path">{escape(name)}</p>'
    return (
        f"<article><h3>{_key(place)}{escape(short)}</h3>{path}"
        f'<p class="facts">{escape(" · ".join(facts))}</p>'
        f'<dl class="headline">{numbers}</dl>{_notes(said)}'
        f"{_notes(summary['warnings'], 'note warning')}</article>"
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
        f'<figure class="card" id="proxies"><p class="meaning">{escape(models[0]["meaning"] or "")}</p>{note}'
        f'<div class="beside"><div class="wide"><table><thead><tr><th scope="col">log10 of</th>{heads}</tr>'
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


def _power(log10: float | None) -> str:
    return "?" if log10 is None else f"{log10:.2f}"


def _told(value: Any) -> str:
    return "–" if value is None else str(value)


def _key(place: int | None) -> str:
    """The colour of a model."""
    return "" if place is None else f'<span class="key" style="background:var(--c{place % 9})"></span>'


def _notes(lines: Iterable[str], kind: str = "note") -> str:
    return "".join(f'<p class="{kind}">{escape(line)}</p>' for line in lines)
