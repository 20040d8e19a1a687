"""Moves of singular values by formula and by draws; intruders and new directions."""

import numpy as np
import pytest

from attnlaw.analysis.diff.map_changes import count_intruders, head_moves, matrix_moves, overlap
from attnlaw.analysis.diff.update import MatrixVectors, ProductVectors, noise_spectrum


def test_moves_of_a_matrix_under_noise():
    rng = np.random.default_rng(0)
    n, m, tau, draws = 20, 32, 0.05, 1500
    base = rng.standard_normal((n, m)) * np.linspace(3, 0.1, n)[:, None]
    before = np.linalg.svd(base, compute_uv=False)
    size = tau * np.sqrt(n * m)
    z = []
    for _ in range(draws):
        after = np.linalg.svd(base + tau * rng.standard_normal((n, m)), compute_uv=False)
        z.append(matrix_moves(before, after, (n, m), size, 4))
    assert np.mean(z, axis=0) == pytest.approx(0, abs=4 / np.sqrt(draws))
    assert np.std(z, axis=0) == pytest.approx(1, rel=4 / np.sqrt(2 * draws))


def test_moves_of_a_head_under_noise():
    """The formula to second order against draws with noise of different sizes in both factors."""
    rng = np.random.default_rng(1)
    n, d, m, draws = 30, 5, 40, 1500
    left = rng.standard_normal((n, d)) * np.array([4.0, 3.0, 2.0, 1.0, 0.5])
    right = rng.standard_normal((d, m))
    taus = 0.04, 0.07
    sizes = taus[0] * np.sqrt(n * d), taus[1] * np.sqrt(d * m)
    base = ProductVectors.of(left, right)
    z = []
    for _ in range(draws):
        moved = left + taus[0] * rng.standard_normal((n, d)), right + taus[1] * rng.standard_normal((d, m))
        after = ProductVectors.of(*moved).values
        z.append(head_moves(base, (left, right), (n, m), sizes, after, 3))
    # The next order of the mean is tau/s of the one that is there: 0.05 allows for it.
    assert np.mean(z, axis=0) == pytest.approx(0, abs=4 / np.sqrt(draws) + 0.05)
    assert np.std(z, axis=0) == pytest.approx(1, rel=4 / np.sqrt(2 * draws) + 0.02)


def test_the_spectrum_of_noise_in_a_head():
    """Reduced draws against noise of the whole width."""
    rng = np.random.default_rng(2)
    n, d, m, draws = 60, 12, 50, 60
    left, right = rng.standard_normal((n, d)), rng.standard_normal((d, m))
    sizes = 3.0, 2.0
    spectrum = noise_spectrum(ProductVectors.of(left, right).roots, (n, m), sizes)
    values = []
    for _ in range(draws):
        first = sizes[0] / np.sqrt(n * d) * rng.standard_normal((n, d))
        second = sizes[1] / np.sqrt(d * m) * rng.standard_normal((d, m))
        update = (left + first) @ (right + second) - left @ right
        values.append(np.linalg.svd(update, compute_uv=False)[: 2 * d])
    spread = np.std(values, axis=0)
    assert np.abs(spectrum - np.mean(values, axis=0)) == pytest.approx(0, abs=4 * spread.max())
    assert spectrum.sum() == pytest.approx(np.mean(values, axis=0).sum(), rel=0.05)


def turned(rng, base, size):
    """A matrix plus one direction of its own, of a multiple of its largest value."""
    first, second = (rng.standard_normal(side) for side in base.shape)
    top = np.linalg.norm(base, 2)
    return base + size * top * np.outer(first, second) / np.linalg.norm(first) / np.linalg.norm(second)


@pytest.mark.parametrize("shape", [(40, 60), (60, 40)])
def test_a_new_direction_is_an_intruder_and_new(shape):
    rng = np.random.default_rng(3)
    base = rng.standard_normal(shape)
    vectors = MatrixVectors.of(base)
    assert count_intruders(vectors, MatrixVectors.first(base, 10)) == {"left": (0, 0), "right": (0, 0)}
    counts = count_intruders(vectors, MatrixVectors.first(turned(rng, base, 3.0), 10))
    assert counts["left"][1] == counts["right"][1] == 1
    assert counts["left"][0] >= 1


def test_intruders_against_full_decompositions():
    """The count of arXiv 2410.21228, by all singular vectors of both matrices."""
    rng = np.random.default_rng(4)
    base = rng.standard_normal((30, 45))
    model = base + 0.5 * rng.standard_normal((30, 45))
    (u0, _, vh0), (u1, _, vh1) = np.linalg.svd(base), np.linalg.svd(model)
    left = int(np.sum(np.abs(u0.T @ u1[:, :10]).max(axis=0) < 0.5))
    right = int(np.sum(np.abs(vh0[:30] @ vh1[:10].T).max(axis=0) < 0.5))
    counts = count_intruders(MatrixVectors.of(base), MatrixVectors.first(model, 10))
    assert (counts["left"][0], counts["right"][0]) == (left, right)
    assert left > 0


def test_overlaps_of_the_leading_directions():
    rng = np.random.default_rng(5)
    base, model = (MatrixVectors.of(rng.standard_normal((12, 20))) for _ in range(2))
    for side in ("left", "right"):
        assert overlap(base, base, side, 5) == pytest.approx(1)
        angles = np.linalg.svd(base.leading(side, 5).T @ model.leading(side, 5), compute_uv=False)
        assert overlap(base, model, side, 5) == pytest.approx(np.mean(angles**2))


@pytest.mark.parametrize("shape", [(12, 20), (20, 12), (200, 130)])
def test_vectors_of_matrices_and_products(shape):
    rng = np.random.default_rng(6)
    matrix = rng.standard_normal(shape)
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    for vectors, count in ((MatrixVectors.of(matrix), 6), (MatrixVectors.first(matrix, 6), 6)):
        assert vectors.values[:6] == pytest.approx(s[:6])
        for side, expected in (("left", u), ("right", vh.T)):
            crossed = np.abs(np.sum(vectors.leading(side, count) * expected[:, :count], axis=0))
            assert crossed == pytest.approx(1)
    probe = rng.standard_normal((shape[1], 2))
    assert np.abs(MatrixVectors.of(matrix).coordinates("right", probe)) == pytest.approx(np.abs(vh @ probe))
