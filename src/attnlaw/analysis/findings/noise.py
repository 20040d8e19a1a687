"""Matrices that are as good as noise, by the null test: a head, a layer, the whole model."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from attnlaw.analysis.findings.duplicates import CROSS, SELF
from attnlaw.analysis.findings.evidence import Hit, Subject, TensorLocation
from attnlaw.analysis.findings.sizes import layer_matrices

LEVEL = 0.01  # of one matrix


def random_head(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    rows = layer_matrices(subject).filter(pl.col("random_p_value").is_not_null())
    for pair in (SELF, CROSS):
        both = rows.filter(pl.col("kind").is_in(pair))
        by_head = both.group_by("stack", "layer", "head", maintain_order=True).agg(
            pl.len(), pl.col("random_p_value").min()
        )
        for stack, layer, head, count, least in by_head.iter_rows():
            if count == 2 and threshold is not None and least > threshold:
                spot = TensorLocation(layer, stack, None if pair == SELF else CROSS[0], head)
                yield Hit(spot, least, "the smaller p-value of QK and VO")


def untrained_layer(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    rows = layer_matrices(subject).filter(pl.col("random_p_value").is_not_null())
    by_layer = rows.group_by("stack", "layer", maintain_order=True).agg(
        pl.len(), (pl.col("random_p_value") > LEVEL).sum().alias("random")
    )
    for stack, layer, tested, random in by_layer.iter_rows():
        if threshold is not None and random > threshold * tested:
            detail = f"{random} of {tested} matrices do not differ from noise"
            yield Hit(TensorLocation(layer, stack), random / tested, detail)


def untrained_model(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    chance = subject.chance
    if chance is not None and threshold is not None and chance > threshold:
        yield Hit(TensorLocation(), chance, "the chance of so many matrices unlike noise in a fresh model")
