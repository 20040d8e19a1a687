"""Stronger first: whether directions that end up larger left the bulk earlier, head by head.

Within a head, every two modes that left at different steps are a pair; it is concordant where the larger of
them left first. `tau = (concordant - discordant)/pairs`, over the pairs of all heads. The p-value is that of
exchangeable steps: how often steps that are shuffled within each head order as many pairs, one-sided.

In the theory of one head a target's mode x is learned at `ln(x/s)/(8 G x)` (docs/dynamics.md): stronger
first. Of a real run it is an analogy: its target is not known, and what left earlier had longer to grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
SHUFFLES = 999


@dataclass(frozen=True)
class OrderAgreement:
    """`tau` from -1 (weaker first) to 1 (stronger first) over so many `pairs`, and its one-sided p-value."""

    tau: float
    p_value: float
    pairs: int


def stronger_first(
    heads: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0
) -> OrderAgreement | None:
    """The order of modes, given the sizes of each head's modes and the steps at which they left.

    None where no two modes of a head left at different steps.

    >>> stronger_first([([5.0, 4.0, 3.0], [10, 20, 30]), ([2.0, 1.0], [40, 40])])
    OrderAgreement(tau=1.0, p_value=0.16..., pairs=3)
    """
    rng = np.random.default_rng(seed)
    score, pairs, shuffled = 0.0, 0, np.zeros(SHUFFLES)
    for given in heads:
        sizes, steps = (np.asarray(numbers, dtype=float) for numbers in given)
        first, second = np.triu_indices(sizes.size, 1)
        larger = np.sign(sizes[first] - sizes[second])
        score += float(larger @ np.sign(steps[second] - steps[first]))
        pairs += int(np.count_nonzero((steps[first] != steps[second]) & (larger != 0)))
        drawn = rng.permuted(np.tile(steps, (SHUFFLES, 1)), axis=1)
        shuffled += np.sign(drawn[:, second] - drawn[:, first]) @ larger
    if pairs == 0:
        return None
    return OrderAgreement(
        score / pairs, (1 + int(np.count_nonzero(shuffled >= score))) / (1 + SHUFFLES), pairs
    )
