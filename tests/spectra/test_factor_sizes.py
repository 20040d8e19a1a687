"""Sizes of factors that positions turn: against Gram matrices that are turned and averaged."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from attnlaw.checkpoints.blocks import Rotary
from attnlaw.spectra.head_sizes import factor_sizes

PLANES = ((0, 2), (1, 3))  # of four of six columns


def averaged(factor: np.ndarray) -> np.ndarray:
    """The Gram matrix, averaged over quarter turns of each plane: what no gauge of the planes moves."""
    total = np.zeros((6, 6))
    for turns in product(range(4), repeat=2):
        rotation = np.eye(6)
        for (i, j), quarter in zip(PLANES, turns, strict=True):
            cosine, sine = round(np.cos(quarter * np.pi / 2)), round(np.sin(quarter * np.pi / 2))
            rotation[np.ix_((i, j), (i, j))] = [[cosine, -sine], [sine, cosine]]
        total += rotation.T @ factor.T @ factor @ rotation / 16
    return total


def test_sizes_of_gram_matrices_are_those_of_their_means_over_turns() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 6)), rng.normal(size=(5, 6))
    sizes = factor_sizes((a, 4.0), (b, 0.5), (7, 5), Rotary(4))
    assert sizes is not None
    first, second = averaged(4.0 * a), averaged(0.5 * b)
    assert sizes.scale * sizes.grams == pytest.approx(np.linalg.norm(first) + np.linalg.norm(second))
    assert sizes.scale * sizes.difference == pytest.approx(np.linalg.norm(first - second))
    assert np.multiply(sizes.scale, sizes.squares) == pytest.approx([16 * (a * a).sum(), (b * b).sum() / 4])
