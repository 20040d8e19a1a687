"""A lens in the terminal: what a low rank costs heads, what they do, what moves each token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.core.estimate import Outcome
from attnlaw.render.terminal.console import column_table, print_message, print_table, sparkline

MAX_TOKENS = 32  # tokens
MAX_SENTENCES = 3  # of a rule
MAX_LETTERS = 12  # letters of a token


def show(lens: Any, console: Console) -> None:
    """Print what was found of heads, then how exact the operator is and a line for each token."""
    console.print(Text(lens.model, style="bold"), soft_wrap=True)
    width = lens.operator.width
    console.print(f"{lens.family}, {lens.layers} layers, {lens.tokens} tokens of width {width}", style="dim")
    if lens.entrywise:
        _print_entrywise(lens, console)
    if lens.heads:
        _print_heads(lens, console)
    if lens.token_map is not None:
        _print_operator(lens, console)
    if lens.remark:
        print_message(f"attnlaw: {lens.remark}")


def _print_entrywise(lens: Any, console: Console) -> None:
    """Which rank keeps every weight within 0.01, then a line for each rank: medians over heads."""
    worst = max(lens.entrywise, key=lambda head: head.rank_within)
    console.print(
        f"every attention weight within 0.01: rank {lens.median_rank_within} in half of the heads, "
        f"{worst.rank_within} in all (head {worst.layer}.{worst.head}), of {lens.tokens}",
        soft_wrap=True,
    )
    ranks = list(zip(*(head.errors for head in lens.entrywise), strict=True))
    cells = {
        "rank": [str(errors[0].rank) for errors in ranks],
        "worst entry": [f"{median(error.largest for error in errors):.3g}" for errors in ranks],
        "of any head": [f"{max(error.largest for error in errors):.3g}" for errors in ranks],
        "tail/n": [f"{median(error.tail for error in errors):.3g}" for errors in ranks],
        "rms": [f"{median(error.rms for error in errors):.3g}" for errors in ranks],
        "worst/rms": [
            _median([error.largest / error.rms for error in errors if error.coherence]) for errors in ranks
        ],
    }
    print_table(console, lambda left_out: column_table(cells, left_out), ("tail/n",))


def _print_heads(lens: Any, console: Console) -> None:
    """How many heads are beyond the marks, the clearest sentences of every rule, a line for each layer."""
    beta_2, beta_c = (max(getattr(head, mark) for head in lens.heads) for mark in ("beta_2", "beta_c"))
    console.print(
        f"{lens.head_count} heads: {lens.heads_below_beta_2} below β₂ {beta_2:.2f}, "
        f"{lens.heads_above_beta_c} above β_c {beta_c:.2f}"
    )
    counts = Counter(finding.rule for finding in lens.findings)
    for rule, findings in groupby(lens.findings, key=lambda finding: finding.rule):
        console.print(f"{rule}: {counts[rule]} head{'s' if counts[rule] > 1 else ''}", style="bold")
        for finding in list(findings)[:MAX_SENTENCES]:
            console.print(Text(f"  {finding.sentence}"), soft_wrap=True)
    layers = [list(heads) for _, heads in groupby(lens.heads, key=lambda head: head.layer)]
    print_table(console, lambda left_out: _table_by_layer(layers, left_out), ("logit/bound", "sink"))
    legend = "PR: directions; null: random heads as sharp; random: weights redrawn"
    console.print(Text(legend, style="dim"))


def _table_by_layer(layers: Sequence[Sequence[Any]], left_out: Sequence[str]) -> Table:
    """Medians over the heads of each layer, beside the largest beta."""
    ratios = [[head.participation for head in heads if head.participation is not None] for heads in layers]
    bounds = [
        [head.largest_logit / head.logit_bound for head in heads if head.logit_bound] for heads in layers
    ]
    cells = {
        "layer": [str(heads[0].layer) for heads in layers],
        "β": [f"{median(head.beta for head in heads):.2f}" for heads in layers],
        "largest": [f"{max(head.beta for head in heads):.2f}" for heads in layers],
        "perplexity": [f"{median(head.perplexity for head in heads):.1f}" for heads in layers],
        "PR/null": [
            _median([participation.value / participation.null.value for participation in participations])
            for participations in ratios
        ],
        "PR/random": [
            _median([participation.value / participation.random.value for participation in participations])
            for participations in ratios
        ],
        "sink": [f"{median(head.largest_column_mean for head in heads):.0%}" for heads in layers],
        "logit": [f"{max(head.largest_logit for head in heads):.1f}" for heads in layers],
        "logit/bound": [f"{max(fractions):.2f}" if fractions else "–" for fractions in bounds],
    }
    return column_table(cells, left_out)


def _median(values: Sequence[float]) -> str:
    return f"{median(values):.2f}" if values else "–"


def _print_operator(lens: Any, console: Console) -> None:
    ended = "exact" if lens.outcome is Outcome.DONE else lens.outcome
    console.print(f"reconstruction error  {lens.reconstruction_error:.2e} ({ended})")
    console.print(f"offset |c| / |F(X)|   {lens.offset_share:.3g}")
    if lens.singular_values:
        values = "  ".join(f"{value:.4g}" for value in lens.singular_values)
        console.print(f"singular values of T  {values}", soft_wrap=True)
    print_table(console, lambda left_out: _token_table(lens, left_out), ("rollout",))
    if lens.tokens > MAX_TOKENS:
        console.print(f"{lens.tokens - MAX_TOKENS} more tokens; --out DIR draws all of them")
    probes = lens.token_map.probes
    if probes is not None:
        worst = float((lens.token_map.errors / lens.token_map.norms.clip(min=1e-300)).max())
        console.print(f"norms estimated from {probes} probes a token, standard error up to {worst:.1%}")


def _token_table(lens: Any, left_out: Sequence[str]) -> Table:
    """One row for each token: what moves it, and what moves it most, by the operator and by rollout."""
    both = {"moved by (operator)": lens.token_map.shares, "rollout": lens.rollout}
    maps = {title: rows for title, rows in both.items() if title not in left_out}
    table = Table(box=None, pad_edge=False)
    for title in ("", "id", "token"):
        table.add_column(title, justify="left" if title == "token" else "right", no_wrap=True)
    for title in maps:
        table.add_column(title, no_wrap=True)
        table.add_column("most", no_wrap=True)
    for i, token in enumerate(lens.ids[:MAX_TOKENS]):
        cells: list[str] = []
        for rows in maps.values():
            top = float(rows[i].max())
            cells.append(sparkline(rows[i].tolist(), top=top) if len(lens.ids) <= MAX_TOKENS else "")
            cells.append(f"{rows[i].argmax()} ({top:.0%})")
        table.add_row(str(i), str(token), Text(_shorten(lens.labels[i])), *cells)
    return table


def _shorten(label: str) -> str:
    return label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
