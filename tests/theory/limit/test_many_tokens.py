"""One row among many random tokens, compared with draws from a root of all tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlaw.theory.limit import sampler
from attnlaw.theory.limit.heads import can_draw_row, draw_row
from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, ScoreSettings
from attnlaw.theory.limit.sampler import output_law
from attnlaw.theory.limit.wishart import streams

DRAWS = 20_000


def moments(lengths: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return moments of two heads, alone and together, and of the token's length, one column for each."""
    first, second = lengths.T
    squares = np.broadcast_to(squares, first.shape)
    quantities = (first, second, first * second, first**2, squares, squares**2, squares * first)
    return np.stack(quantities, axis=1)


@pytest.mark.parametrize("width", [4, 7, 40, math.inf])
@pytest.mark.parametrize(
    ("token", "scores", "shared", "head_width"),
    [
        (0, ScoreSettings(), True, None),
        (2, ScoreSettings(mask="causal"), True, None),
        (0, ScoreSettings(mask="causal"), True, None),
        (3, ScoreSettings(function="relu"), False, 1),
    ],
)
def test_the_row_has_the_law_of_the_row_of_all_tokens(width, token, scores, shared, head_width):
    """Seven moments in 16 cases: one of the 112 passes 4.5 standard errors with a chance of 0.001."""
    layer = AttentionLayer(
        RandomInputs(5, shared=shared), heads=2, width=width, head_width=head_width, scores=scores
    )
    row_moments = moments(*draw_row(layer, token, DRAWS, streams(1)))
    direct = moments(*sampler._row_of_all(layer, token, DRAWS, streams(2), normalise=False))
    apart = row_moments.mean(axis=0) - direct.mean(axis=0)
    error = np.sqrt((row_moments.var(axis=0) + direct.var(axis=0)) / DRAWS)
    assert np.all(np.abs(apart) <= 4.5 * error + 1e-12)


def test_few_or_other_tokens_keep_their_draws():
    many = RandomInputs(64)
    assert can_draw_row(AttentionLayer(many, heads=2, width=4), normalise=False)
    assert not can_draw_row(AttentionLayer(many, heads=2, width=3), normalise=False)
    assert not can_draw_row(AttentionLayer(many), normalise=True)
    assert not can_draw_row(AttentionLayer(RandomInputs(63)), normalise=False)
    assert not can_draw_row(AttentionLayer(RandomInputs(64, "relu")), normalise=False)
    assert not can_draw_row(AttentionLayer(many, scores=ScoreSettings(frequencies=(1.0,))), normalise=False)


def test_widths_share_their_normals():
    """At a width of 1e9, every draw is within 1e-4 of that of the limit."""
    layer = AttentionLayer(RandomInputs(100), heads=2, width=10**9)
    limit = output_law(layer.at_width(math.inf), 200, seed=3).variances
    assert np.allclose(output_law(layer, 200, seed=3).variances, limit, rtol=1e-3)
    assert limit.std() > 0.01 * limit.mean()
