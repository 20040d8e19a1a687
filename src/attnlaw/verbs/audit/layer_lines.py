"""What a screen or a notebook shows of each layer: norms and ranks of its heads and feed-forward matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.analysis.fit.null import LEVEL
from attnlaw.checkpoints.network import KINDS

if TYPE_CHECKING:
    from attnlaw import AuditResult

HEADS = ("qk", "vo")
OTHERS = ("ffn_in", "ffn_gate", "ffn_out", "lora")


@dataclass(frozen=True, eq=False)
class LayerLine:
    """A line of the table: one layer, adjacent ones ("0-3"), or cross-attention (without `layers`).

    Matrices of cross-attention have the kinds "qk" and "vo".
    """

    name: str
    layers: tuple[dict[str, Any], ...]
    matrices: pl.DataFrame

    def of_kind(self, kind: str) -> pl.DataFrame:
        return self.matrices.filter(pl.col("kind") == kind)


def sizes(result: AuditResult) -> tuple[str, str]:
    """Return the columns of norms and stable ranks to show: with gains of norm layers, or as stored."""
    applied = result.rows["norms"][0] == "applied"
    return ("spectral_norm_applied", "stable_rank_applied") if applied else ("spectral_norm", "stable_rank")


def shown_matrices(result: AuditResult) -> pl.DataFrame:
    """Return the matrices of a model, with stored sizes if sizes with gains are not known."""
    return fill_applied_sizes(result.matrices, result.rows["norms"][0] == "applied")


def layer_lines(result: AuditResult, most: int | None = None) -> list[LayerLine]:
    """Return a line for each layer of a model, joining adjacent layers if there are more than `most`."""
    matrices, layers = shown_matrices(result), result.layers.rows(named=True)
    step = 1 if most is None else -(-len(layers) // most)
    lines = []
    for stack in dict.fromkeys(layer["stack"] for layer in layers):
        of_stack = [layer for layer in layers if layer["stack"] == stack]
        for start in range(0, len(of_stack), step):
            group = of_stack[start : start + step]
            numbers = [layer["layer"] for layer in group]
            rows = matrices.filter(pl.col("layer").is_in(numbers))
            name = "-".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
            is_cross = pl.col("kind").str.starts_with("cross_")
            lines.append(LayerLine(f"{stack or ''} {name}".strip(), tuple(group), rows.filter(~is_cross)))
            cross = rows.filter(is_cross).with_columns(pl.col("kind").str.strip_prefix("cross_"))
            lines += [LayerLine("  + cross", (), cross)] if cross.height else []
    return lines


def kinds_of(lines: Sequence[LayerLine], kinds: Sequence[str]) -> list[str]:
    """Return the kinds that occur in at least one line."""
    return [kind for kind in kinds if any(line.of_kind(kind).height for line in lines)]


def layer_frame(result: AuditResult) -> pl.DataFrame:
    """Return a table with the largest norms, the median ranks and the null test of each layer.

    >>> import attnlaw
    >>> layer_frame(attnlaw.audit("examples/tiny-decoder", layers="0", only="vo")).columns
    ['layer', 'VO norm', 'VO rank', 'unlike random']
    """
    norm, rank = sizes(result)
    lines = layer_lines(result)
    columns: dict[str, list[Any]] = {"layer": [line.name for line in lines]}
    for kind in kinds_of(lines, (*HEADS, *OTHERS)):
        label = KINDS[kind].label
        columns[f"{label} norm"] = [line.of_kind(kind)[norm].max() for line in lines]
        if kind in HEADS:
            columns[f"{label} rank"] = [line.of_kind(kind)[rank].median() for line in lines]
    columns["unlike random"] = [_unlike_random(line.matrices) for line in lines]
    return pl.DataFrame(columns, strict=False)


def _unlike_random(matrices: pl.DataFrame) -> str:
    p_values = matrices["random_p_value"].drop_nulls()
    return f"{int((p_values <= LEVEL).sum())} of {p_values.len()}" if p_values.len() else ""
