"""Print an audit in the terminal: problems, what is unusual, and a line for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.atlas.compare import range_lines, range_meanings, ranges_sentence, unusual_numbers
from attnlaw.analysis.audit.growth import exponent_text, growth_reason, growth_sentence, growth_table
from attnlaw.analysis.audit.remarks import MOST_UNUSUAL, is_comparable, proxy_entries, remarks
from attnlaw.analysis.columns import LEVELS
from attnlaw.checkpoints.network import KINDS
from attnlaw.render.model_names import lines_about_models
from attnlaw.render.terminal.console import Column, bar, format_number, print_table, sparkline
from attnlaw.render.terminal.screen import (
    print_definitions,
    print_hanging,
    print_lines,
    print_next,
    print_title,
    without,
)
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.proxy_growth import LEAST_MODELS
from attnlaw.verbs.audit.answer import (
    DETAILS,
    Summaries,
    facts_of,
    finding_lines,
    finished_cases,
    head_size,
    model_lines,
    next_commands,
    outside_range,
)
from attnlaw.verbs.audit.layer_lines import (
    HEADS,
    OTHERS,
    LayerLine,
    kinds_of,
    layer_lines,
    shown_matrices,
    sizes,
)

if TYPE_CHECKING:
    from attnlaw import AuditResult

MOST_LINES = 16  # layers of the first screen; neighbours share a line if there are more
# The numbers of the atlas whose terms the table of layers defines.
IN_TABLE = ("median_stable_rank", "median_spectral_norm")
PROXY_MEANINGS = {
    "p": "exponent of the norm that measures the singular values of a matrix; p = 0 counts them (the rank)",
    "spectrum-adaptive": "each matrix is measured with the p that gives the smallest proxy",
    "logits": "scores of a head before the softmax",
}
MODEL_COLUMNS = {
    "unlike\nrandom": ("rejected_share", ".1%"),
    "strong\ndirections": ("median_outliers", ".3g"),
    "effective\nrank QK": ("median_effective_rank_qk", ".1f"),
}
PURPOSES = {"qk": "QK: where it looks", "vo": "VO: what it passes on"}


def show_case(result: AuditResult, console: Console, details: bool = False) -> None:
    """Print the name and the problems of one model. With details, print all of its numbers too."""
    summary = result.summary
    console.print()
    print_title(console, summary["model"], facts_of(result, summary))
    print_lines(console, tuple(finding_lines(result, summary)))
    if details:
        print_lines(console, tuple(model_lines({summary["model"]: result}, {summary["model"]: summary})))
        console.print()
        _show_sizes(result, summary, console, details)
        if entry := summary.get("atlas"):
            _show_atlas(entry, console)


def show_summary(result: AuditResult, console: Console, details: bool = False) -> None:
    """Print the other lines about the models, their table, and the next commands."""
    cases, summaries = finished_cases(result)
    if len(cases) == 1 and not details:
        ((name, case),) = cases.items()
        print_lines(console, tuple(model_lines(cases, summaries)))
        console.print()
        _show_sizes(case, summaries[name], console, details)
    elif len(cases) > 1:
        console.print()
        print_lines(console, tuple(model_lines(cases, summaries)))
        console.print()
        columns, meanings = _model_columns(summaries, details)
        left_out = print_table(console, columns, ["log10 α", "notes", "strong directions"])
        console.print()
        print_definitions(console, without(meanings, left_out))
    if details:
        console.print()
        _show_proxies(result, summaries, console)
    commands = next_commands(result)
    console.print()
    print_next(console, {text: why for text, why in commands.items() if not (details and DETAILS in text)})


def _show_proxies(result: AuditResult, summaries: Summaries, console: Console) -> None:
    if len(summaries) > 1:
        _show_growth(result.rows, console)
    for summary in summaries.values():
        if len(summaries) == 1 and summary["proxies"]:
            print_table(console, _proxy_columns(summary))
            console.print()
            print_definitions(console, PROXY_MEANINGS)
            console.print()
    texts = {name: remarks(summary) for name, summary in summaries.items()}
    for line in lines_about_models(texts):
        print_hanging(console, Text(), line, style="dim")


def _show_atlas(entry: dict[str, Any], console: Console) -> None:
    titles, cells = ("", "here", "trained", "below", "untrained"), zip(*range_lines(entry), strict=True)
    columns = [Column(title, column, is_text=not title) for title, column in zip(titles, cells, strict=True)]
    left_out = print_table(console, columns, ["below"])
    console.print()
    below = {"below": "how many of the trained models have a smaller number"}
    print_definitions(console, range_meanings(entry["columns"]) | without(below, left_out))
    print_hanging(console, Text(), ranges_sentence(entry), style="dim")
    console.print()


def _show_sizes(result: AuditResult, summary: dict[str, Any], console: Console, details: bool) -> None:
    lines = layer_lines(result, None if details else MOST_LINES)
    meanings: dict[str, str] = {}
    if lines:
        columns = _layer_columns(lines, result, console, details)
        droppable = ("log10 α with gains", "share of proxy", "FFN norms")
        left_out = print_table(console, columns, droppable, tight=True)
        terms = [
            {"log10 α with gains": "with gains", "share of proxy": "share"}.get(name) for name in left_out
        ]
        meanings |= without(_layer_meanings(lines, result, summary, details), filter(None, terms))
    others = shown_matrices(result).filter(pl.col("layer").is_null())
    if others.height:
        if lines:
            console.print()
        print_table(console, _other_columns(others, result))
        meanings |= {"norm": _norm_meaning(summary), "stable rank": "how many directions carry the matrix"}
        meanings |= {"effective rank": "how many directions it uses, weak ones included"}
    if not details and is_comparable(summary):  # numbers of the answer that are not in a table of this screen
        unusual = unusual_numbers(summary["atlas"])
        shown = unusual.names[:MOST_UNUSUAL] if unusual.is_unusual else []
        meanings = range_meanings(name for name in shown if not name.startswith(IN_TABLE)) | meanings
    console.print()
    print_definitions(console, meanings)
    if details:
        console.print()


def _norm_meaning(summary: dict[str, Any]) -> str:
    gains = ", including the norm layer's gain" if summary["norms"] == "applied" else ""
    unknown = ", ".join(KINDS[kind].label for kind in summary["norms_unknown"])
    stored = f" (as stored for {unknown})" if gains and unknown else ""
    return f"largest singular value{gains}{stored}"


def _layer_meanings(
    lines: Sequence[LayerLine], result: AuditResult, summary: dict[str, Any], details: bool
) -> dict[str, str]:
    shared = next((line.name for line in lines if len(line.layers) > 1), None)
    meanings = (
        {}
        if shared is None
        else {f"layer {shared}": "largest norms and median ranks (--details: every layer)"}
    )
    meanings["norm"] = _norm_meaning(summary)
    if kinds_of(lines, HEADS):
        meanings["bars, max"] = "norm of each head, and the largest of them"
        size = head_size(result)
        most = f"; at most {size}" if size else ""
        meanings["rank"] = f"stable rank: directions that carry a head (median{most})"
    if details and summary["proxies"]:
        meanings["α"] = "largest factor by which later layers can enlarge an error made in a layer"
        if summary["log10_alpha_applied"]:
            meanings["with gains"] = "α with the gains of norm layers; proxies use the stored weights"
        meanings["share"] = "share of the spectrum-adaptive proxy that comes from this layer"
    return meanings


def _layer_columns(
    lines: Sequence[LayerLine], result: AuditResult, console: Console, details: bool
) -> list[Column]:
    norm, rank = sizes(result)
    columns = [Column("\nlayer", [line.name for line in lines], is_text=True)]
    for kind in kinds_of(lines, HEADS):
        groups = [line.of_kind(kind) for line in lines]
        columns += _head_columns(PURPOSES[kind], groups, norm, rank, blocks=12 if console.width >= 100 else 6)
    for number, kind in enumerate(kinds_of(lines, OTHERS)):
        norms = [_largest_norm(line.of_kind(kind), norm) for line in lines]
        if kind == "lora":
            columns.append(Column("LoRA update\nnorm", norms))
        else:
            title = f"{'' if number else 'FFN norm'}\n{kind.removeprefix('ffn_')}"
            columns.append(Column(title, norms, name="FFN norms"))
    if details and result.rows["log10_spectrum_adaptive"][0] is not None:
        layers = [line.layers[0] if line.layers else {} for line in lines]
        shares = [line.matrices["share"].sum() if line.layers else 0.0 for line in lines]
        columns += _proxy_columns_by_layer(layers, shares)
    styles = ["" if line.layers else "dim" for line in lines]
    return [column._replace(cells=[*map(Text, map(str, column.cells), styles)]) for column in columns]


def _head_columns(
    title: str, layers: Sequence[pl.DataFrame], norm: str, rank: str, blocks: int
) -> list[Column]:
    """Return a column of norms (a sparkline of at most `blocks` characters), and one of median ranks."""
    heads = max(rows["head"].n_unique() for rows in layers)
    pooled = -(-heads // blocks)
    by_head = [
        dict(rows.group_by("head").agg(pl.col(norm).max()).sort("head").iter_rows()) for rows in layers
    ]
    norms = [list(by_number.values()) for by_number in by_head]
    top = max(value for values in norms for value in values)
    bars = []
    for values in norms:
        maxima = [max(values[i : i + pooled]) for i in range(0, len(values), pooled)]
        bars.append(f"{sparkline(maxima, top)}  max {format_number(max(values))}" if values else "")
    by = "head" if pooled == 1 else f"{pooled} heads"
    ranks = [format_number(rows[rank].median(), ".1f") for rows in layers]
    return [Column(f"{title}\nnorm per {by}", bars, is_text=True), Column("\nrank", ranks)]


def _proxy_columns_by_layer(layers: Sequence[dict[str, Any]], shares: Sequence[Any]) -> list[Column]:
    stored, applied = (
        [format_number(layer.get(name), ".2f", layer.get(f"{name}_error")) for layer in layers]
        for name in ("log10_alpha", "log10_alpha_applied")
    )
    columns = [Column("log10\nα", stored)]
    if any(applied):
        columns.append(Column("with\ngains", applied, name="log10 α with gains"))
    top = max(shares)
    bars = [
        f"{bar(share / top if top else 0, width=5):<5} {share:.1%}" if layer else ""
        for layer, share in zip(layers, shares, strict=True)
    ]
    return [*columns, Column("share of\nproxy", bars, is_text=True, name="share of proxy")]


def _largest_norm(rows: pl.DataFrame, norm: str) -> str:
    largest = rows.sort(norm, descending=True).head(1).select(norm, f"{norm}_error").rows()
    return "".join(format_number(value, "#.3g", error) for value, error in largest)


def _other_columns(others: pl.DataFrame, result: AuditResult) -> list[Column]:
    norm, rows = sizes(result)[0], others.rows(named=True)
    return [
        Column("matrix", [KINDS[row["kind"]].label for row in rows], is_text=True),
        Column("shape", [f"{row['rows']} × {row['cols']}" for row in rows]),
        Column("norm", [_format_cell(row, norm, "#.4g") for row in rows]),
        Column("stable rank", [_format_cell(row, "stable_rank", "#.3g") for row in rows]),
        Column("effective rank", [_format_cell(row, "effective_rank", "#.4g") for row in rows]),
    ]


def _format_cell(row: dict[str, Any], name: str, form: str) -> str:
    """Format a cell with its error. The ranks of a zero matrix are null and are printed as 0."""
    return format_number(row[name] or 0, form, row[f"{name}_error"])


def _model_columns(summaries: Summaries, details: bool) -> tuple[list[Column], dict[str, str]]:
    models = list(summaries.values())
    counts = {level: [str(model["findings"][level] or 0) for model in models] for level in reversed(LEVELS)}
    columns = [
        Column("\nmodel", list(summaries), is_text=True, wraps=True),
        *(Column(f"\n{level}s", cells) for level, cells in counts.items()),
        *(
            Column(title, [format_number(model[name], form, missing="–") for model in models])
            for title, (name, form) in MODEL_COLUMNS.items()
        ),
        Column("outside\nrange", [outside_range(model) or "–" for model in models]),
    ]
    meanings = {
        "unlike random": "share of weight matrices that differ from random ones (chance: about 1%)",
        "strong directions": "number of singular values that are larger than those of a random matrix "
        "(median)",
        "effective rank QK": "number of directions that a head uses, weak ones included (median)",
        "outside range": "how many numbers are outside the range of the trained reference models",
    }
    if details:
        applied = all(model["log10_alpha_applied"] for model in models)
        alphas = [format_number(model["log10_amplification"], ".2f", missing="–") for model in models]
        columns.append(Column("log10\nα", alphas, name="log10 α"))
        gains = ", including gains of norm layers" if applied else ""
        meanings["log10 α"] = f"largest factor by which all layers after the first enlarge an error{gains}"
    return columns, meanings


def _proxy_columns(summary: dict[str, Any]) -> list[Column]:
    """Return the columns of a model's proxies, with one more for shared layers that count repeatedly."""
    labels = [label for label, *_ in proxy_entries(summary["proxies"])]
    columns = [Column("proxy", labels, is_text=True, wraps=True)]
    for key, more in (("proxies", ""), ("per_application", ", per application")):
        if summary[key]:
            numbers = [format_number(value, ".4f", error) for _, value, error in proxy_entries(summary[key])]
            columns.append(Column(f"log10{more}", numbers))
    return columns


def _show_growth(rows: pl.DataFrame, console: Console) -> None:
    """Print the exponents of every proxy, or why there are none if there are three models or more."""
    reason = growth_reason(rows)
    if reason is not None:
        if rows.height >= LEAST_MODELS:
            console.print(Text(f"{reason[0].upper()}{reason[1:]}.", style="dim"))
        return
    table = growth_table(rows)
    console.print()
    console.print(Text(growth_sentence(rows, table)))
    print_table(console, growth_columns(table))
    console.print()


def growth_columns(table: pl.DataFrame) -> list[Column]:
    """Return the columns of the table of growth exponents."""
    lines = table.rows(named=True)
    columns = [Column("proxy", [BOUNDS[line["proxy"]].label for line in lines], is_text=True, wraps=True)]
    for name in ("depth", "width"):
        cells = [exponent_text(line, name) for line in lines]
        columns += [Column(f"exponent\nof {name}", cells)] if any(cells) else []
    return columns
