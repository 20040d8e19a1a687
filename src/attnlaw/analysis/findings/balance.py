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
    for balance in subject.evidence.balances:
        groups.setdefault((balance.pair, balance.spot.kind), []).append(balance)
    for (pair, _), balances in groups.items():
        if len({(balance.spot.stack, balance.spot.layer) for balance in balances}) < LEAST_LAYERS:
            continue
        usual = median(balance.ratio for balance in balances)
        for balance in balances:
            factor = max(balance.ratio / usual, usual / balance.ratio)
            if threshold is not None and factor > threshold:
                detail = f"{pair} is {balance.ratio:.3g}, in the model's median {usual:.3g}"
                yield Hit(balance.spot, factor, detail)
