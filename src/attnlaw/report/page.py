"""One static page per audit: summary, layers, two charts. Works offline; every value is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import polars as pl

from attnlaw.records.remarks import proxy_rows, remarks
from attnlaw.report.audit_charts import decay, head_map
from attnlaw.report.style import styled

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --paper: #0d1117; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; overflow-wrap: anywhere; }
p.soft, figcaption { color: var(--soft); font-size: 0.9rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.8rem 0; }
th, td { text-align: right; padding: 0.15rem 0.7rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.layers th:nth-child(2), .layers td:nth-child(2) { text-align: left; }
.wide { overflow-x: auto; } figure { margin: 1rem 0; }
figure svg { background: #ffffff; border-radius: 4px; max-width: 100%; height: auto; }
"""


def audit_page(
    summaries: Sequence[dict[str, Any]], matrices: pl.DataFrame, spectra: pl.DataFrame, layers: pl.DataFrame
) -> str:
    """The whole HTML document."""
    sections = "".join(
        _model(
            summary,
            *(table.filter(pl.col("model") == summary["model"]) for table in (matrices, spectra, layers)),
        )
        for summary in summaries
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>attnlaw audit</title><style>{STYLE}</style></head><body>"
        f"<h1>Spectral audit</h1>{sections}"
        f'<p class="soft">attnlaw {escape(summaries[0]["attnlaw_version"])}</p></body></html>\n'
    )


def _model(
    summary: dict[str, Any], matrices: pl.DataFrame, spectra: pl.DataFrame, layers: pl.DataFrame
) -> str:
    facts = (
        f"{summary['family']}, {summary['layers']} layers, hidden size {summary['hidden_size']}, "
        f"{summary['heads']} heads, {summary['matrices']} matrices"
    )
    parts = [f"<h2>{escape(summary['model'])}</h2>", f"<p>{escape(facts)}</p>"]
    if summary["proxies"]:
        parts.append(_proxies(summary))
    notes = remarks(summary) + [f"Warning: {warning}" for warning in summary["warnings"]]
    parts += [f'<p class="soft">{escape(note)}</p>' for note in notes]
    if matrices["head"].drop_nulls().len():
        parts.append(
            _figure(
                head_map(matrices),
                "Each cell is a head; brighter means a larger norm, on one scale for all layers.",
            )
        )
    caption = (
        "Median over the matrices of a kind, band: the middle half. A steep curve is nearly low-rank; "
        "values below 1e-8 of the largest are drawn there."
    )
    if (spectra["singular_values"].list.max() > 0).any():
        parts.append(_figure(decay(spectra), caption))
    if layers.height:
        parts.append(_layers(matrices, layers))
    return "".join(parts)


def _proxies(summary: dict[str, Any]) -> str:
    head, columns = ["Proxy", "log10"], [proxy_rows(summary["proxies"])]
    if summary["per_application"]:
        head.append("log10, per application")
        columns.append(proxy_rows(summary["per_application"]))
    rows = [[both[0][0], *(value for _, value in both)] for both in zip(*columns, strict=True)]
    return _table(head, rows)


def _layers(matrices: pl.DataFrame, layers: pl.DataFrame) -> str:
    head = [
        "Layer",
        "Kind",
        "Matrices",
        "Spectral norm",
        "Stable rank",
        "Effective rank",
        "log10 alpha",
        "Share",
    ]
    alpha = dict(layers.select("layer", "log10_alpha").iter_rows())
    grouped = (
        matrices.filter(pl.col("layer").is_not_null())
        .group_by("layer", "kind", maintain_order=True)
        .agg(
            pl.len(),
            pl.col("spectral_norm").max(),
            pl.col("stable_rank").median(),
            pl.col("effective_rank").median(),
            pl.when(pl.col("share").count() > 0).then(pl.col("share").sum()),
        )
    )
    rows = [
        [
            str(layer),
            kind,
            str(count),
            norm,
            stable,
            effective,
            alpha.get(layer),
            None if share is None else f"{share:.1%}",
        ]
        for layer, kind, count, norm, stable, effective, share in grouped.iter_rows()
    ]
    caption = "Largest spectral norm, median ranks and share of the proxy, by layer and kind of matrix."
    return f'<p class="soft">{caption}</p><div class="wide layers">{_table(head, rows)}</div>'


def _table(head: list[str], rows: list[list[Any]]) -> str:
    def cell(value: Any) -> str:
        if value is None:
            return "–"
        return escape(f"{value:.4g}" if isinstance(value, float) else str(value))

    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _figure(chart: Any, caption: str) -> str:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(styled(chart).to_dict())
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
