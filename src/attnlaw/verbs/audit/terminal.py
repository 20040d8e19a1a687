"""Print an audit in the terminal: findings, a line for each layer, the proxies, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from attnlaw.analysis.atlas.compare import range_lines, ranges_sentence
from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.analysis.audit.summary import (
    COMPARABLE,
    family_words,
    findings_sentence,
    null_test_sentence,
    proxy_entries,
    remarks,
)
from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.apply import group_findings
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import lines_about_models, model_names
from attnlaw.render.terminal.console import Column, bar, format_number, print_table, sparkline
from attnlaw.verbs.audit.growth import show_growth

if TYPE_CHECKING:
    from attnlaw import AuditResult

# Colours of findings by level.
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show_case(result: AuditResult, console: Console, details: bool = False) -> None:
    """Print one model: the null test, its findings, its layers, and how it compares with the atlas."""
    summary = result.summary
    matrices = f"{summary['matrices']} {'matrix' if summary['matrices'] == 1 else 'matrices'}"
    facts = f"{family_words(summary)}, {summary['layers']} layers, {matrices}"
    if summary["heads"] is not None:  # an adapter has none
        hidden_size = f"hidden size {summary['hidden_size'] or 'varies'}"
        facts = (
            f"{family_words(summary)}, {summary['layers']} layers, {hidden_size}, "
            f"{summary['heads']} heads, {matrices}, activation {summary['activation']}"
        )
    elif towers := summary.get("towers"):
        sizes = (
            f"{tower['tower']} of {tower['layers']} layers, hidden size {tower['hidden_size'] or 'varies'}, "
            f"{tower['heads']} heads"
            for tower in towers
        )
        facts = f"{family_words(summary)}, {'; '.join(sizes)}; {matrices}"
    console.print()
    console.print(Text(summary["model"], style="bold"), soft_wrap=True)
    console.print(Text(facts, style="dim"), soft_wrap=True)
    _show_findings(result, summary, console)
    if result.layers.height:
        _show_layers(result, summary, console)
    applied = summary["norms"] == "applied"
    norm = "spectral_norm_applied" if applied else "spectral_norm"
    others = fill_applied_sizes(result.matrices, applied).filter(pl.col("layer").is_null())
    for row in others.iter_rows(named=True):
        console.print(
            f"{row['kind']} {row['rows']} x {row['cols']}: "
            f"spectral norm {_format_cell(row, norm, '#.4g')}, "
            f"stable rank {_format_cell(row, 'stable_rank', '#.3g')}, "
            f"effective rank {_format_cell(row, 'effective_rank', '#.4g')}"
        )
    for warning in summary["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    if entry := summary.get("atlas"):
        _show_atlas(entry, console)


def _show_atlas(entry: dict[str, Any], console: Console) -> None:
    """Print how the model compares with the models of the atlas."""
    titles, cells = ("", "here", "trained", "lie below", "fresh"), zip(*range_lines(entry), strict=True)
    console.print()
    columns = [Column(title, column, is_text=not title) for title, column in zip(titles, cells, strict=True)]
    print_table(console, columns, ["lie below"])
    console.print(Text(ranges_sentence(entry), style="dim"))
    console.print()


def _show_findings(result: AuditResult, summary: dict[str, Any], console: Console) -> None:
    """Print the null test in one line, then the findings. Errors come first."""
    for line in (null_test_sentence(summary), findings_sentence(summary)):
        if line is not None:
            console.print(Text(line, style="bold"), soft_wrap=True)
    rows = result.findings.iter_rows(named=True) if "findings" in result.tables else ()
    for group in group_findings(rows):
        level = Text(f"{group.level}: ", style=STYLES[group.level])
        console.print(level.append(f"{group.rule}: {group.where}", style="default"), soft_wrap=True)
        console.print(Padding(Text(group.sentence, style="dim"), (0, 0, 0, 2), expand=False))
    console.print()


def show_summary(result: AuditResult, console: Console, details: bool = False) -> None:
    """Print the proxies of one model, or a table of several models. Sentences about them follow."""
    summaries = [case.summary for case in result]
    names = list(short_names(model_names(result)).values())
    if len(summaries) > 1:
        console.print()
        print_table(console, _model_columns(summaries, names))
        show_growth(result.rows, console)
    elif summaries[0]["proxies"]:
        print_table(console, _proxy_columns(summaries[0]))
    for line in lines_about_models(dict(zip(names, map(remarks, summaries), strict=True))):
        console.print(Text(line, style="dim"))
    console.print()


def _show_layers(result: AuditResult, summary: dict[str, Any], console: Console) -> None:
    """Print a line for each layer, and a second line for a layer with cross attention."""
    applied = summary["norms"] == "applied"
    norm, rank = (f"{size}_applied" if applied else size for size in ("spectral_norm", "stable_rank"))
    matrices = fill_applied_sizes(result.matrices, applied)
    lines: list[tuple[str, dict[str, Any], pl.DataFrame]] = []
    for layer in result.layers.iter_rows(named=True):
        rows, is_cross = matrices.filter(layer=layer["layer"]), pl.col("kind").str.starts_with("cross_")
        name = f"{layer['stack'] or ''} {layer['layer']}".strip()
        lines.append((name, layer | {"share": rows["share"].sum()}, rows.filter(~is_cross)))
        cross = rows.filter(is_cross).with_columns(pl.col("kind").str.strip_prefix("cross_"))
        lines += [("  + cross", {}, cross)] if cross.height else []
    columns = [Column("\nlayer", [name for name, _, _ in lines], is_text=True)]
    for kind in ("qk", "vo", "ffn_in", "ffn_gate", "ffn_out", "lora"):
        groups = [rows.filter(pl.col("kind") == kind) for _, _, rows in lines]
        if any(rows.height for rows in groups) and kind in ("qk", "vo"):
            columns += _head_columns(kind, groups, norm, rank, blocks=12 if console.width >= 100 else 6)
        elif any(rows.height for rows in groups):
            name, norms = kind.replace("ffn_", "FFN\n"), [_largest_norm(rows, norm) for rows in groups]
            columns.append(Column(name, norms, name="norms of FFN" if name != kind else ""))
    layers = [layer for _, layer, _ in lines]
    if summary["proxies"] is not None:
        columns += _proxy_columns_by_layer(layers, applied)
    styles = ["" if layer else "dim" for layer in layers]
    columns = [column._replace(cells=[*map(Text, map(str, column.cells), styles)]) for column in columns]
    print_table(console, columns, ("log10 α as applied", "share of proxy", "norms of FFN"), tight=True)


def _head_columns(
    kind: str, layers: Sequence[pl.DataFrame], norm: str, rank: str, blocks: int
) -> list[Column]:
    """Return a column of norms by head, and a column of median stable ranks.

    The norms of a layer are a sparkline of at most `blocks` characters, followed by the largest norm.
    """
    pooled = -(-max(rows.height for rows in layers) // blocks)
    norms = [rows[norm].to_list() for rows in layers]
    top = max(value for values in norms for value in values)
    bars = []
    for values in norms:
        maxima = [max(values[i : i + pooled]) for i in range(0, len(values), pooled)]
        bars.append(f"{sparkline(maxima, top)} {format_number(max(values))}" if values else "")
    by = "head" if pooled == 1 else f"{pooled} heads"
    ranks = [format_number(rows[rank].median(), ".1f") for rows in layers]
    return [Column(f"{kind.upper()}\nnorm by {by}", bars, is_text=True), Column("stable\nrank", ranks)]


def _proxy_columns_by_layer(layers: Sequence[dict[str, Any]], applied: bool) -> list[Column]:
    """Return the columns with the amplification and the share of the proxy of each layer.

    The shares are left out if they differ by less than a tenth of a percent.
    """
    stored, seen = (
        [format_number(layer.get(name), ".2f", layer.get(f"{name}_error")) for layer in layers]
        for name in ("log10_alpha", "log10_alpha_applied")
    )
    columns = [Column("log10\nα", stored)]
    if applied and any(seen):
        columns.append(Column("as\napplied", seen, name="log10 α as applied"))
    shares = [layer["share"] for layer in layers if layer]
    if max(shares) - min(shares) > 1e-3:
        bars = [
            f"{bar(layer['share'] / max(shares), width=5):<5} {layer['share']:.1%}" if layer else ""
            for layer in layers
        ]
        columns.append(Column("share of\nproxy", bars, is_text=True, name="share of proxy"))
    return columns


def _largest_norm(rows: pl.DataFrame, norm: str) -> str:
    largest = rows.sort(norm, descending=True).head(1).select(norm, f"{norm}_error").rows()
    return "".join(format_number(value, "#.3g", error) for value, error in largest)


def _format_cell(row: dict[str, Any], name: str, form: str) -> str:
    """Format a cell with its error. The ranks of a zero matrix are null and are printed as 0."""
    return format_number(row[name] or 0, form, row[f"{name}_error"])


def _model_columns(summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> list[Column]:
    """Return the columns of the table of several models: comparable numbers, and findings of each level."""
    applied = all(summary["log10_alpha_applied"] for summary in summaries)
    alpha = "log10 α\napplied" if applied else "log10\nα"
    titles = ("unlike\nnoise", "beyond\nthe edge", "effective\nrank QK", alpha)
    forms = (".1%", ".3g", ".1f", ".2f")
    return [
        Column("\nmodel", names, is_text=True, wraps=True),
        *(
            Column(title, [format_number(summary[key], form) for summary in summaries])
            for title, key, form in zip(titles, COMPARABLE, forms, strict=True)
        ),
        *(
            Column(f"\n{level}s", [str(summary["findings"][level]) for summary in summaries])
            for level in reversed(LEVELS)
        ),
    ]


def _proxy_columns(summary: dict[str, Any]) -> list[Column]:
    """Return the columns of the table of a model's proxies.

    A model that shares layers has one column more, whose proxies count a layer each time it is applied.
    """
    labels = [label for label, *_ in proxy_entries(summary["proxies"])]
    columns = [Column("proxy", labels, is_text=True, wraps=True)]
    for key, more in (("proxies", ""), ("per_application", ", per application")):
        if summary[key]:
            numbers = [format_number(value, ".4f", error) for _, value, error in proxy_entries(summary[key])]
            columns.append(Column(f"log10{more}", numbers))
    return columns
