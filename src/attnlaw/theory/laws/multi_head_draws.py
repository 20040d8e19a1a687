"""Draws of a random attention layer beside its law: means with their errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlaw.core.estimate import Estimate
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.laws.law import Reals
from attnlaw.theory.laws.multi_head_sample import multi_head_sample
from attnlaw.theory.laws.random_layer import RandomLayer

MEASURED = ("equivalent_w1", "equivalent_distance", "law_w1", "law_distance", "spike_found")


@dataclass(frozen=True)
class MultiHeadDraws:
    """Means over draws of what `MultiHeadSample` has of one, with standard errors (None of a single draw).

    `values` are those of the first draw. Without draws all are None.
    """

    layer: RandomLayer
    equivalent_w1: Estimate | None = None
    equivalent_distance: Estimate | None = None
    law_w1: Estimate | None = None
    law_distance: Estimate | None = None
    spike_found: Estimate | None = None
    values: Reals | None = None


def multi_head_draws(
    layer: RandomLayer,
    draws: int,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> MultiHeadDraws:
    """Draw a layer several times, each with a child of the seed.

    >>> from attnlaw.theory.laws.attention_shape import AttentionShape
    >>> found = multi_head_draws(RandomLayer(AttentionShape(100, 4, 50), 0.5), draws=4, seed=0)
    >>> str(found.law_distance)
    '0.040(3)'
    """
    given = (layer.of, layer.centring, layer.second_order)
    drawn = []
    for child in np.random.SeedSequence(seed).spawn(draws):
        drawn.append(multi_head_sample(layer.shape, layer.beta, np.random.default_rng(child), *given))
        progress(len(drawn), draws)
    if not drawn:
        return MultiHeadDraws(layer)
    means = {name: mean_of([getattr(figure, name) for figure in drawn]) for name in MEASURED}
    return MultiHeadDraws(layer, **means, values=drawn[0].values)
