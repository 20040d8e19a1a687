"""What is the same everywhere is told in a sentence, and not drawn."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from attnlaw.verbs.audit.frames import COLUMN_QUANTITIES, AuditRows, constant_shares

SHARE_COLUMNS = ("share_qk", "share_vo", "share_cross", "share_ffn")
# Quantities of matrices that are left out of the map where they are constant.
LEFT_OUT_IF_CONSTANT = ("p", "share")
SAME_TOLERANCE = 1e-3  # how much values may differ that are called the same, of the largest


@dataclass(frozen=True)
class ConstantSentences:
    """A sentence about layers and one about matrices; empty where nothing is constant."""

    layers: str
    matrices: str


def constant_sentences(audit: AuditRows) -> ConstantSentences:
    """What the page says of charts that it does not draw."""
    layers = audit.tables["layers"]
    there = [name for name in SHARE_COLUMNS if layers.height and layers[name].count()]
    parts = ", ".join(f"{COLUMN_QUANTITIES[name].label} {layers[name].drop_nulls()[0]:.1%}" for name in there)
    shares = f"Every layer's share of the proxy is made of the same parts, so they are not drawn: {parts}."
    constant = constant_quantities(audit.matrices)
    names = " and ".join(COLUMN_QUANTITIES[name].label for name in constant)
    sentence = f"Constant within each kind of matrix, so not to choose from: {names}."
    return ConstantSentences(
        shares if constant_shares(layers) and parts else "", sentence if constant else ""
    )


def constant_quantities(matrices: pl.DataFrame) -> list[str]:
    """Which of the quantities of proxies are the same for all matrices of a kind."""
    return [
        name for name in LEFT_OUT_IF_CONSTANT if name in matrices.columns and _is_constant(matrices, name)
    ]


def _is_constant(matrices: pl.DataFrame, name: str) -> bool:
    known = matrices.filter(pl.col(name).is_not_null())
    spread = known.group_by("kind").agg(low=pl.col(name).min(), high=pl.col(name).max())
    return known.height > 1 and bool(
        (spread["high"] - spread["low"] <= SAME_TOLERANCE * spread["high"].abs()).all()
    )
