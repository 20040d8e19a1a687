"""The numbers in which models are compared: one row per model, from the rows of audits, by one table.

A new column is a line of `COLUMNS`; the atlas has it at once, because it ships rows of matrices and layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from attnlaw.analysis.fit.null import LEVEL
from attnlaw.core.variants import by_name

STORED, APPLIED = "stored", "applied"


@dataclass(frozen=True, eq=False)
class Column:
    """One number of a model: an expression over its rows of `table`, and how it is called and printed.

    `norms` tells a size of matrices as stored from one as applied; None where there is no such difference.
    """

    name: str
    label: str
    value: pl.Expr
    form: str = "#.3g"
    norms: str | None = None
    table: str = "matrices"

    def number_text(self, value: float) -> str:
        """The number as tables print it.

        >>> COLUMNS["rejected_share"].number_text(0.5), COLUMNS["median_outliers"].number_text(18)
        ('50.0%', '18')
        """
        return format(float(value), self.form).removesuffix(".")


def _median(name: str, kind: str) -> pl.Expr:
    """The median over the matrices of one kind: over all heads, or over all layers (and experts)."""
    return pl.col(name).filter(pl.col("kind") == kind).median()


def _size_columns(size: str, kind: str, matrix_label: str) -> Iterable[Column]:
    """A size of matrices twice: as stored, and as applied where the norm before is known."""
    label = f"{size.replace('_', ' ')} of {matrix_label}"
    yield Column(f"median_{size}_{kind}", label, _median(size, kind), norms=STORED)
    name = f"{size}_applied"
    yield Column(f"median_{size}_{kind}_applied", label, _median(name, kind), norms=APPLIED)


def _per_layer(name: str) -> pl.Expr:
    """The amplification by all layers above the first, over their number; none of a single layer."""
    above = pl.col("applications").sum() - 1
    return pl.when(above > 0).then(pl.col(name).first() / above)


COLUMNS = by_name(
    Column("rejected_share", "unlike noise", (pl.col("random_p_value") <= LEVEL).mean(), form=".1%"),
    Column("median_outliers", "values beyond the edge", pl.col("outliers").median(), form=".3g"),
    Column("median_effective_rank_qk", "effective rank of QK", _median("effective_rank", "qk")),
    *_size_columns("stable_rank", "qk", "QK"),
    *_size_columns("stable_rank", "vo", "VO"),
    *_size_columns("spectral_norm", "qk", "QK"),
    *_size_columns("spectral_norm", "vo", "VO"),
    *_size_columns("spectral_norm", "ffn_in", "FFN in"),
    *_size_columns("spectral_norm", "ffn_out", "FFN out"),
    *(
        Column(f"{name}_per_layer", "log10 α per layer", _per_layer(name), norms=norms, table="layers")
        for name, norms in (("log10_alpha", STORED), ("log10_alpha_applied", APPLIED))
    ),
)


def column_values(matrices: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """One row per model, in the order of the rows of matrices: every column of `COLUMNS`, null where missing.

    >>> matrices = pl.DataFrame(
    ...     {"model": "m", "kind": ["qk", "qk", "vo"], "stable_rank": [1.0, 3.0, 9.0]}
    ... ).with_columns(
    ...     pl.lit(None, dtype=pl.Float64).alias(name)
    ...     for name in (
    ...         "random_p_value", "outliers", "effective_rank", "spectral_norm",
    ...         "stable_rank_applied", "spectral_norm_applied",
    ...     )
    ... )
    >>> layers = pl.DataFrame({"model": "m", "applications": [1, 1], "log10_alpha": [4.0, 0.0]})
    >>> layers = layers.with_columns(log10_alpha_applied=None)
    >>> column_values(matrices, layers).select(
    ...     "model", "median_stable_rank_qk", "log10_alpha_per_layer", "rejected_share"
    ... ).row(0)
    ('m', 2.0, 4.0, None)
    """
    parts = [
        rows.group_by("model", maintain_order=True).agg(
            column.value.cast(pl.Float64).alias(column.name)
            for column in COLUMNS.values()
            if column.table == name
        )
        for name, rows in (("matrices", matrices), ("layers", layers))
    ]
    table = parts[0].join(parts[1], on="model", how="left", maintain_order="left")
    return table.select("model", *COLUMNS)
