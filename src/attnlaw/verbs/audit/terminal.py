"""An audit in the terminal: what was found, one line per layer, then the proxies and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnlaw.analysis.atlas.compare import range_lines, ranges_sentence
from attnlaw.analysis.audit.remarks import findings_sentence, null_test_sentence, proxy_entries, remarks
from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.analysis.audit.summary import COMPARABLE
from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.text import group_findings
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.terminal.console import bar, column_table, format_number, print_table, sparkline
from attnlaw.verbs.audit.names import model_names


def _pool_maxima(values: Sequence[float], size: int) -> list[float]:
    """The maxima of `size` neighbours each."""
    return [max(values[i : i + size]) for i in range(0, len(values), size)]


# Colours of findings by level.
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show_case(result: Result, console: Console) -> None:
    """Print one model: what differs from noise, what was found, its matrices."""
    summary = result.summary
    matrices = f"{summary['matrices']} {'matrix' if summary['matrices'] == 1 else 'matrices'}"
    facts = f"{summary['family']}, {summary['layers']} layers, {matrices}"
    if summary["heads"] is not None:  # an adapter has none
        hidden_size = f"hidden size {summary['hidden_size'] or 'varies'}"
        facts = (
            f"{summary['family']}, {summary['layers']} layers, {hidden_size}, "
            f"{summary['heads']} heads, {matrices}, activation {summary['activation']}"
        )
    elif towers := summary.get("towers"):
        sizes = (
            f"{tower['tower']} of {tower['layers']} layers, hidden size {tower['hidden_size'] or 'varies'}, "
            f"{tower['heads']} heads"
            for tower in towers
        )
        facts = f"{summary['family']}, {'; '.join(sizes)}; {matrices}"
    console.print()
    console.print(Text(summary["model"], style="bold"), soft_wrap=True)
    console.print(Text(facts, style="dim"), soft_wrap=True)
    _show_findings(result, summary, console)
    if result.layers.height:
        _show_layers(result, summary, console)
    applied = summary["norms"] == "applied"
    others = fill_applied_sizes(result.matrices, applied).filter(pl.col("layer").is_null())
    for row in others.iter_rows(named=True):
        console.print(
            f"{row['kind']} {row['rows']} x {row['cols']}: "
            f"spectral norm {_format_cell(row, _size_column('spectral_norm', applied), '#.4g')}, "
            f"stable rank {_format_cell(row, 'stable_rank', '#.3g')}, "
            f"effective rank {_format_cell(row, 'effective_rank', '#.4g')}"
        )
    for warning in summary["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    if entry := summary.get("atlas"):
        _show_atlas(entry, console)


def _show_atlas(entry: dict[str, Any], console: Console) -> None:
    """Where the model lies among others: ranges, and no verdict."""
    titles = ("", "here", "trained", "lie below", "fresh")
    cells = dict(zip(titles, zip(*range_lines(entry), strict=True), strict=True))
    console.print()
    print_table(console, lambda left_out: column_table(cells, left_out, texts=("",)), ["lie below"])
    console.print(Text(ranges_sentence(entry), style="dim"))
    console.print()


def _show_findings(result: Result, summary: dict[str, Any], console: Console) -> None:
    """The null test in one line, then findings by level: where, the value, the threshold, the meaning."""
    for line in (null_test_sentence(summary), findings_sentence(summary)):
        if line is not None:
            console.print(Text(line, style="bold"), soft_wrap=True)
    rows = result.findings.iter_rows(named=True) if "findings" in result.tables else ()
    for group in group_findings(rows):
        level = Text(f"{group.level}: ", style=STYLES[group.level])
        console.print(level.append(f"{group.rule}: {group.where}", style="default"), soft_wrap=True)
        console.print(Padding(Text(group.sentence, style="dim"), (0, 0, 0, 2), expand=False))
    console.print()


def show_summary(result: Result, console: Console) -> None:
    """Print the proxies of one model, or several models side by side, and what is to be known about them."""
    summaries = [case.summary for case in result]
    names = list(short_names(model_names(result)).values())
    if len(summaries) > 1:
        console.print()
        console.print(_model_table(summaries, names))
    elif summaries[0]["proxies"]:
        console.print(_proxy_table(summaries[0]))
    models_by_line: dict[str, list[str]] = {}
    for name, summary in zip(names, summaries, strict=True):
        for line in remarks(summary):
            models_by_line.setdefault(line, []).append(name)
    for line, models in models_by_line.items():
        whose = "" if len(models) == len(summaries) else f"{', '.join(models)}: "
        console.print(Text(f"{whose}{line}", style="dim"))
    console.print()


def _show_layers(result: Result, summary: dict[str, Any], console: Console) -> None:
    """Print the table of layers; a narrow screen goes without its last columns, and says so."""
    blocks = 12 if console.width >= 100 else 6
    feed_forward = result.matrices["kind"].str.starts_with("ffn_").any()
    there = (
        ("log10 α as applied", _has_applied_alpha(result, summary)),
        ("share of proxy", _shares_differ(result, summary)),
        ("norms of FFN", feed_forward),
    )
    last = [name for name, present in there if present]
    print_table(console, lambda left_out: _layer_table(result, summary, blocks, left_out), last)


def _shares_by_layer(matrices: pl.DataFrame) -> dict[int, float]:
    """The share of the proxy that each layer has."""
    return dict(matrices.group_by("layer").agg(pl.col("share").sum()).iter_rows())


def _shares_differ(result: Result, summary: dict[str, Any]) -> bool:
    """Whether there are shares of the proxy, and layers differ in them by a tenth of a percent."""
    shares = _shares_by_layer(result.matrices.filter(pl.col("layer").is_not_null())).values()
    return bool(summary["proxies"] is not None and max(shares) - min(shares) > 1e-3)


def _has_applied_alpha(result: Result, summary: dict[str, Any]) -> bool:
    return bool(summary["norms"] == "applied" and result.layers["log10_alpha_applied"].count())


def _layer_table(result: Result, summary: dict[str, Any], blocks: int, left_out: Sequence[str]) -> Table:
    """One line per layer, and a second one for its cross attention; sparklines of at most `blocks`."""
    applied = summary["norms"] == "applied"
    norm, rank = (_size_column(name, applied) for name in ("spectral_norm", "stable_rank"))
    matrices = fill_applied_sizes(result.matrices, applied)
    present = set(matrices["kind"])
    heads = [kind for kind in ("qk", "vo") if {kind, f"cross_{kind}"} & present]
    ffn = () if "norms of FFN" in left_out else ("ffn_in", "ffn_gate", "ffn_out")
    plain = [kind for kind in (*ffn, "lora") if kind in present]
    pooled = {kind: -(-_most_heads(matrices, kind) // blocks) for kind in heads}
    tops = {
        kind: matrices.filter(pl.col("kind").is_in([kind, f"cross_{kind}"]))[norm].max() for kind in heads
    }
    bounded = summary["proxies"] is not None
    beside = _has_applied_alpha(result, summary) and "log10 α as applied" not in left_out
    wide = "share of proxy" not in left_out and _shares_differ(result, summary)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("\nlayer", no_wrap=True)
    for kind in heads:
        by = "head" if pooled[kind] == 1 else f"{pooled[kind]} heads"
        table.add_column(f"{kind.upper()}\nnorm by {by}", no_wrap=True)
        table.add_column("stable\nrank", justify="right", no_wrap=True)
    for kind in plain:
        table.add_column(kind.replace("ffn_", "FFN\n"), justify="right", no_wrap=True)
    if bounded:
        table.add_column("log10\nα", justify="right", no_wrap=True)
        if beside:
            table.add_column("as\napplied", justify="right", no_wrap=True)
        if wide:
            table.add_column("share of\nproxy", no_wrap=True)
    shares = _shares_by_layer(matrices)
    largest = max(shares.values()) or 1.0
    for layer in result.layers.iter_rows(named=True):
        rows = matrices.filter(pl.col("layer") == layer["layer"])
        cells: list[str | Text] = [Text(f"{layer['stack'] or ''} {layer['layer']}".strip())]
        for kind in heads:
            of_kind = rows.filter(pl.col("kind") == kind)
            cells += _head_cells(of_kind, norm, rank, tops[kind], pooled[kind])
        cells += [_largest_norm(rows.filter(pl.col("kind") == kind), norm) for kind in plain]
        if bounded:
            share = shares[layer["layer"]]
            for name in ("log10_alpha", *(["log10_alpha_applied"] if beside else [])):
                cells.append(format_number(layer[name], ".2f", layer[f"{name}_error"]))
            cells += [f"{bar(share / largest, width=5):<5} {share:.1%}"] if wide else []
        table.add_row(*cells)
        if rows["kind"].str.starts_with("cross_").any():
            cross: list[str] = []
            for kind in heads:
                of_kind = rows.filter(pl.col("kind") == f"cross_{kind}")
                cross += _head_cells(of_kind, norm, rank, tops[kind], pooled[kind])
            table.add_row("  + cross", *cross, style="dim")
    return table


def _most_heads(rows: pl.DataFrame, kind: str) -> int:
    """The largest number of heads of a kind, or of its cross attention, in one layer."""
    of_kind = rows.filter(pl.col("kind").is_in([kind, f"cross_{kind}"]))
    return int(max(of_kind.group_by("layer", "kind").len()["len"]))


def _head_cells(rows: pl.DataFrame, norm: str, rank: str, top: Any, pooled: int) -> list[str]:
    """A sparkline of the norms with their maximum, and the median stable rank."""
    norms = rows[norm].to_list()
    bars = (
        f"{sparkline(_pool_maxima(norms, pooled), top)} {format_number(max(norms), '#.3g')}" if norms else ""
    )
    return [bars, format_number(rows[rank].median(), ".1f")]


def _largest_norm(rows: pl.DataFrame, norm: str) -> str:
    largest = rows.sort(norm, descending=True).head(1).select(norm, f"{norm}_error").rows()
    return "".join(format_number(value, "#.3g", error) for value, error in largest)


def _size_column(size: str, applied: bool) -> str:
    """The column of a size, as applied or as stored."""
    return f"{size}_applied" if applied else size


def _format_cell(row: dict[str, Any], name: str, form: str) -> str:
    """One column of a row with its error; 0 for the ranks of a zero matrix."""
    return format_number(row[name] or 0, form, row[f"{name}_error"])


def _model_table(summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> Table:
    """A row for each model, in numbers that differ between trained models, and its findings by level."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("\nmodel", overflow="fold")
    applied = all(summary["log10_alpha_applied"] for summary in summaries)
    alpha = "log10 α\napplied" if applied else "log10\nα"
    for title in ("unlike\nnoise", "beyond\nthe edge", "effective\nrank QK", alpha):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("errors", "warnings", "notes"):
        table.add_column(f"\n{title}", justify="right", no_wrap=True)
    forms = (".1%", ".3g", ".1f", ".2f")
    for name, summary in zip(names, summaries, strict=True):
        numbers = [format_number(summary[key], form) for key, form in zip(COMPARABLE, forms, strict=True)]
        counts = [str(summary["findings"][level]) for level in reversed(LEVELS)]
        table.add_row(Text(name), *numbers, *counts)
    return table


def _proxy_table(summary: dict[str, Any]) -> Table:
    """The proxies of a model, with one more column where it shares layers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("proxy")
    columns = []
    for key, more in (("proxies", ""), ("per_application", ", per application")):
        if summary[key]:
            table.add_column(Text(f"log10{more}"), justify="right", overflow="fold")
            columns.append(proxy_entries(summary[key]))
    for entries in zip(*columns, strict=True):
        table.add_row(entries[0][0], *(_format_proxy(value, error) for _, value, error in entries))
    return table


def _format_proxy(value: float, error: float | None) -> str:
    return format_number(value, ".4f", error)
