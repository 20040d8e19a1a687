"""Factors that training keeps in balance: the root mean squares of Q and K, of V and O, of in and out.

A gradient step leaves the difference of their squares alone, so their ratio is that of the model's other
layers, near 1; a tensor multiplied by a wrong scale moves it. Norms of queries or keys free the ratio of Q
and K: there it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from attnlaw.analysis.findings.evidence import Balance, Hit, Subject
from attnlaw.checkpoints.model import Matrix

LEAST_LAYERS = 4
# Of a pair: the fields of a block, and the kind of map that they make.
PAIRS = {
    "Q/K": ("query", "key", "qk"),
    "V/O": ("value", "output", "vo"),
    "in/out": ("inner", "outer", "ffn_in"),
}


def rms(matrix: Matrix) -> float:
    """Root mean square of the entries; infinite where squares leave float64."""
    entries = matrix.ravel(order="K")
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.dot(entries, entries) / entries.size))


def unbalanced(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    groups: dict[tuple[str, str | None], list[Balance]] = {}
    for one in subject.evidence.balances:
        groups.setdefault((one.pair, one.spot.kind), []).append(one)
    for (pair, _), own in groups.items():
        if len({(one.spot.stack, one.spot.layer) for one in own}) < LEAST_LAYERS:
            continue
        usual = median(one.ratio for one in own)
        for one in own:
            factor = max(one.ratio / usual, usual / one.ratio)
            if threshold is not None and factor > threshold:
                detail = f"{pair} is {one.ratio:.3g}, in the model's median {usual:.3g}"
                yield Hit(one.spot, factor, detail)
