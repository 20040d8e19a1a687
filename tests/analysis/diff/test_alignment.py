"""Shares of updates in the base's directions: nulls by formula and by draws."""

import numpy as np
import pytest
from analysis.diff.pair import NAMES, weights

from attnlaw.analysis.diff.alignment import (
    alignment_null,
    half_share,
    matrix_share,
    overlap_null,
    rounded_half_null,
    rounding_share_null,
)
from attnlaw.analysis.diff.rounding import FLOATS
from attnlaw.analysis.diff.update import MatrixVectors


def uniform(rng, n, k):
    """k orthonormal vectors, uniform (the signs of QR do not matter to shares)."""
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


def test_the_share_of_uniform_vectors():
    rng = np.random.default_rng(0)
    n, m, k, draws = 24, 10, 5, 4000
    values = np.linspace(3.0, 0.2, m)
    null = alignment_null(values, n, k)
    directions, right = uniform(rng, n, k), uniform(rng, m, m)
    drawn = [
        matrix_share(directions, uniform(rng, n, m) * values @ right, values).value for _ in range(draws)
    ]
    assert np.mean(drawn) == pytest.approx(null.value, abs=4 * null.error / np.sqrt(draws))
    assert np.std(drawn) == pytest.approx(null.error, rel=4 / np.sqrt(2 * draws))


def test_the_half_of_a_head():
    """|P dA B|^2 / |dA B|^2 and its null against the dense matrix."""
    rng = np.random.default_rng(1)
    directions, factor, other = (
        uniform(rng, 20, 3),
        rng.standard_normal((20, 4)),
        rng.standard_normal((4, 15)),
    )
    share = half_share(directions, factor, other)
    dense = factor @ other
    expected = matrix_share(directions, dense, np.linalg.svd(dense, compute_uv=False)[:4])
    assert share.value == pytest.approx(expected.value)
    assert share.null.error == pytest.approx(expected.null.error)
    assert share.z == pytest.approx(expected.z)
    assert half_share(directions, 0 * factor, other) is None


def test_a_whole_head_is_aligned_by_construction():
    """Why halves are tested: noise in both factors keeps A0 dB in the columns of A0."""
    rng = np.random.default_rng(2)
    n, m, d, k, draws = 32, 28, 6, 3, 400
    left, right = rng.standard_normal((n, d)), rng.standard_normal((d, m))
    directions = np.linalg.svd(left @ right)[0][:, :k]
    shares = []
    for _ in range(draws):
        first, second = 0.01 * rng.standard_normal((n, d)), 0.01 * rng.standard_normal((d, m))
        update = (left + first) @ (right + second) - left @ right
        shares.append(np.sum((directions.T @ update) ** 2) / np.sum(update**2))
    inside, norms = np.sum((directions.T @ left) ** 2), (np.sum(left**2), np.sum(right**2))
    expected = (k * norms[1] + m * inside) / (n * norms[1] + m * norms[0])
    assert np.mean(shares) == pytest.approx(expected, abs=4 * np.std(shares) / np.sqrt(draws) + 0.003)
    assert expected > 2 * k / n


def test_the_overlap_of_unrelated_subspaces():
    rng = np.random.default_rng(3)
    n, k, draws = 16, 4, 4000
    null = overlap_null(n, k)
    first = uniform(rng, n, k)
    drawn = [np.sum((first.T @ uniform(rng, n, k)) ** 2) / k for _ in range(draws)]
    assert np.mean(drawn) == pytest.approx(null.value, abs=4 * null.error / np.sqrt(draws))
    assert np.std(drawn) == pytest.approx(null.error, rel=4 / np.sqrt(2 * draws))


def test_the_share_of_rounding():
    """Errors drawn uniform in +-step/2, whose steps differ by row."""
    rng = np.random.default_rng(4)
    n, m, draws = 16, 12, 4000
    steps = rng.choice([0.25, 1.0, 4.0], (n, 1)) * rng.choice([1.0, 2.0], (n, m))
    directions = uniform(rng, n, 4)
    null = rounding_share_null(directions, steps)
    shares = []
    for _ in range(draws):
        errors = steps * rng.uniform(-0.5, 0.5, (n, m))
        shares.append(np.sum((directions.T @ errors) ** 2) / np.sum(errors**2))
    # The formula is of a ratio's leading terms: right to about 1/(nm) of the mean.
    assert np.mean(shares) == pytest.approx(null.value, abs=4 * null.error / np.sqrt(draws) + 0.01)
    assert np.std(shares) == pytest.approx(null.error, rel=0.1)


def test_the_share_of_rounding_in_some_rows():
    """Directions along the axes: all of the variance is that of the rows' own sums."""
    rng = np.random.default_rng(6)
    n, m, draws = 8, 100, 4000
    steps = rng.choice([1.0, 2.0], (n, m))
    directions = np.eye(n)[:, :3]
    null = rounding_share_null(directions, steps)
    errors = steps * rng.uniform(-0.5, 0.5, (draws, n, m))
    sums = np.sum(errors**2, axis=2)
    shares = sums[:, :3].sum(axis=1) / sums.sum(axis=1)
    assert np.mean(shares) == pytest.approx(null.value, abs=4 * null.error / np.sqrt(draws) + 1 / (n * m))
    assert np.std(shares) == pytest.approx(null.error, rel=4 / np.sqrt(2 * draws) + 1 / m)


def test_the_rounded_half_of_a_head():
    rng = np.random.default_rng(5)
    n, d, m, draws = 20, 4, 15, 2000
    steps, other = rng.choice([0.5, 3.0], (n, d)), rng.standard_normal((d, m))
    directions = uniform(rng, n, 5)
    shares = [
        half_share(directions, steps * rng.uniform(-0.5, 0.5, (n, d)), other).value for _ in range(draws)
    ]
    uniform_null = half_share(directions, steps, other).null
    null = rounded_half_null(directions, steps, other, uniform_null)
    assert np.mean(shares) == pytest.approx(null.value, abs=4 * np.std(shares) / np.sqrt(draws) + 0.02)
    assert null.error == uniform_null.error


@pytest.mark.slow
def test_a_bfloat16_copy_is_aligned_with_large_weights_and_nothing_else():
    """Feed-forward matrices of a real model: far from uniform, near the null of rounding."""
    against_uniform, against_rounding = [], []
    for name in NAMES[5::18]:
        base = weights()[name].T.astype(float)
        update = FLOATS["bfloat16"].round_weights(base) - base
        directions = MatrixVectors.of(base).leading("left", 40)
        values = np.linalg.svd(update, compute_uv=False)
        share = matrix_share(directions, update, values)
        null = rounding_share_null(directions, FLOATS["bfloat16"].steps(base))
        against_uniform.append(share.z)
        against_rounding.append((share.value - null.value) / null.error)
    assert np.abs(against_uniform).max() > 8
    assert np.abs(against_rounding).max() < 4
