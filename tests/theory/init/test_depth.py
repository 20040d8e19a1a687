"""Depth against width: how lengths and angles of tokens go with the layers, before and behind norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnlaw.theory.init.architecture import Architecture, Deviations
from attnlaw.theory.init.chain import Chain, run_layers
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.inputs import cosine_matrix, mean_cosine

DRAWS = 400


def grams(order: str, width: int, depth: int, causal: bool, seed: int) -> Any:
    """Gram matrices of four tokens after every layer at gain 1, (depth + 1, draws, 4, 4)."""
    model = Architecture(
        name=order,
        width=width,
        depth=depth,
        heads=4,
        key_value_heads=4,
        head_width=width // 4,
        hidden=4 * width,
        vocabulary=40,
        deviations=Deviations.all_equal(1 / math.sqrt(width)),
        order=order,
        first_norm=order == "post",
        causal=causal,
        score_scales=(1 / math.sqrt(width // 4),) * depth,
        tied=False,
    )
    state = Chain(model, Tokens((1, 2, 3, 4)), DRAWS, np.random.default_rng(seed))
    return np.stack([layer.gram for layer in run_layers(state)])


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "slope"), [(False, 0.64), (True, 0.42)])
def test_angles_behind_norms_fall_by_a_factor_a_layer_and_are_log_normal(causal: bool, slope: float) -> None:
    """log(1 - cos) falls by 0.64 a layer beyond the sixth (causal: 0.42) and is normal: skew below 0.3."""
    log_angles = np.log(1 - mean_cosine(cosine_matrix(grams("post", 128, 16, causal, seed=1))))
    falls = (log_angles[6] - log_angles[16]) / 10
    error = falls.std() / math.sqrt(DRAWS)
    assert abs(falls.mean() - slope) < 4.5 * error + 0.02, (falls.mean(), error)  # published to two digits
    last = log_angles[16]
    skew = ((last - last.mean()) ** 3).mean() / last.std() ** 3
    assert abs(skew) < 0.3 + 4.5 * math.sqrt(6 / DRAWS)
    if not causal:  # the first layers fall by 0.3 to 0.6
        first = -np.diff(log_angles.mean(axis=1))[:5]
        assert 0.25 < first[0] < first[4] < 0.63


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 256])
def test_the_spread_of_angles_behind_norms_grows_like_depth_over_width(width: int) -> None:
    """Var log(1 - cos) of a pair is near 6 L / N (published: 5.5), at two depths and two widths."""
    log_angles = np.log(1 - cosine_matrix(grams("post", width, 16, False, seed=2))[..., 0, 1])
    for depth in (8, 16):
        share = log_angles[depth].var() * width / depth
        assert abs(share - 6) < 1 + 4.5 * 6 * math.sqrt(2 / DRAWS), (depth, share)


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 256])
def test_the_spread_of_lengths_before_norms_does_not_grow_with_depth(width: int) -> None:
    """N Var log |x|^2 is 1.9 to 2.7 at every depth: outputs of blocks do not depend on |x|."""
    log_lengths = np.log(grams("pre", width, 24, False, seed=3)[..., 0, 0])
    for depth in (0, 6, 24):
        spread = width * log_lengths[depth].var()
        error = spread * math.sqrt(2 / DRAWS)
        assert 1.9 - 4.5 * error < spread < 2.7 + 4.5 * error, (depth, spread)
