"""Rotary positions with several planes: the variance and the covariance of scores, by their closed form.

Planes f = 1..F turn query i against key j by `theta_f (j - i)`. At any width of a head (a multiple of 2F),
`E p_ij p_km = <x_i, x_k> <x_j, x_m> mean_f cos(theta_f (j - i - m + k))`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from attnlaw.theory.limit.heads import score_matrices, score_row
from attnlaw.theory.limit.inputs import GivenInputs
from attnlaw.theory.limit.layer import AttentionLayer, ScoreSettings
from attnlaw.theory.limit.wishart import streams

GRAM = np.array([[1.0, 0.4, -0.2], [0.4, 2.0, 0.3], [-0.2, 0.3, 0.5]])
ROOT = np.linalg.cholesky(GRAM)[None]
DRAWS = 40_000


def covariance(frequencies, i, j, k, m):
    turn = np.cos(np.asarray(frequencies) * (j - i - m + k)).mean()
    return GRAM[i, k] * GRAM[j, m] * turn


@pytest.mark.parametrize("head_width", [12, math.inf])
@pytest.mark.parametrize("frequencies", [(0.7,), (0.5, 1.3), (0.2, 0.9, 2.1)], ids=len)
def test_covariances_of_scores(frequencies, head_width):
    width = 24 if head_width == 12 else math.inf
    narrow = None if head_width == math.inf else head_width
    layer = AttentionLayer(GivenInputs(GRAM), 2, width, narrow, ScoreSettings(frequencies=frequencies))
    whole = score_matrices(layer, ROOT, DRAWS, streams(1))[:, 0] / layer.score_scale
    row = score_row(layer, ROOT, 1, DRAWS, streams(2))[..., 0] / layer.score_scale
    places = list(itertools.product(range(3), repeat=2))
    for first, second in itertools.product(places, repeat=2):
        products = whole[:, *first] * whole[:, *second]
        error = products.std() / math.sqrt(DRAWS)
        # 81 pairs, of which 45 differ, in 6 cases: 5 deviations are exceeded by chance once in 6000 runs.
        assert abs(products.mean() - covariance(frequencies, *first, *second)) < 5 * error
    for j, m in places:
        products = row[:, j] * row[:, m]
        error = products.std() / math.sqrt(DRAWS)
        assert abs(products.mean() - covariance(frequencies, 1, j, 1, m)) < 5 * error
