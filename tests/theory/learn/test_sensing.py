"""Fields under tokens and Gaussian matrices: against loops and each other, adjoints, Gram matrices."""

import numpy as np
import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.learn.data import draw_sensing
from attnlaw.theory.learn.sensing import TokenSensing

NAMES = ("tokens", "signed", "goe")


def symmetric(size: int, rng: np.random.Generator) -> np.ndarray:
    draw = rng.standard_normal((size, size))
    return draw + draw.T


def dense_map(sensing, size: int) -> np.ndarray:
    """The map from symmetric matrices to fields as a dense matrix in isometric coordinates."""
    columns = []
    for i in range(size):
        for j in range(i, size):
            unit = np.zeros((size, size))
            unit[i, j] = unit[j, i] = 1.0 if i == j else 1.0 / np.sqrt(2.0)
            columns.append(sensing.fields(unit).reshape(-1))
    return np.array(columns).T


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_token_fields_against_loops(tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    sensing = draw_sensing("tokens", samples=4, tokens=tokens, size=5, rng=rng)
    matrix = symmetric(5, rng)
    expected = [
        [
            (sensing.x[a, mu] @ matrix @ sensing.x[b, mu] - (a == b) * np.trace(matrix)) / np.sqrt(5)
            for a in range(tokens)
            for b in range(a, tokens)
        ]
        for mu in range(4)
    ]
    np.testing.assert_allclose(sensing.fields(matrix), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_adjoint_and_gram_match_the_dense_map(name: str, tokens: int) -> None:
    rng = np.random.default_rng(7)
    sensing = draw_sensing(name, samples=6, tokens=tokens, size=4, rng=rng)
    assert sensing.shape == (6, tokens, 4)
    dense = dense_map(sensing, 4)
    np.testing.assert_allclose(sensing.gram(), dense @ dense.T, rtol=0, atol=1e-12)
    matrix = symmetric(4, rng)
    weights = rng.standard_normal((6, tokens * (tokens + 1) // 2))
    adjoint = sensing.adjoint(weights)
    np.testing.assert_array_equal(adjoint, adjoint.T)
    assert np.vdot(sensing.fields(matrix), weights) == pytest.approx(np.vdot(matrix, adjoint), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_both_sensings_have_the_same_covariance(name: str) -> None:
    """Cov(h) = |S|_F^2/d diag(2, 1, 2): means of 40000 products against their own standard error."""
    rng = np.random.default_rng(11)
    matrix = symmetric(8, rng)
    h = draw_sensing(name, samples=40_000, tokens=2, size=8, rng=rng).fields(matrix)
    products = np.einsum("np,nr->npr", h, h)
    errors = products.std(axis=0) / np.sqrt(len(h))
    expected = np.vdot(matrix, matrix) / 8 * np.diag([2.0, 1.0, 2.0])
    assert np.abs((products.mean(axis=0) - expected) / errors).max() < 4


@pytest.mark.parametrize(("name", "skewed"), [("tokens", 1.0), ("signed", 0.0), ("goe", 0.0)])
def test_third_moment(name: str, skewed: float) -> None:
    """E h_aa^3 = 8 Tr S^3 / d^(3/2) for a chi-square form; none for signed tokens and Gaussian matrices."""
    rng = np.random.default_rng(13)
    matrix = np.diag(np.arange(1.0, 9.0))
    cubes = draw_sensing(name, samples=40_000, tokens=2, size=8, rng=rng).fields(matrix)[:, 0] ** 3
    expected = skewed * 8 * np.trace(matrix @ matrix @ matrix) / 8**1.5
    assert abs(cubes.mean() - expected) < 4 * cubes.std() / np.sqrt(cubes.size)


def test_rotating_tokens_and_matrix_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    sensing = draw_sensing("tokens", samples=5, tokens=2, size=6, rng=rng)
    rotation = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    matrix = symmetric(6, rng)
    rotated = TokenSensing(sensing.x @ rotation).fields(rotation.T @ matrix @ rotation)
    np.testing.assert_allclose(rotated, sensing.fields(matrix), rtol=0, atol=1e-12)


def test_bad_input_is_one_line() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"sensing: found 'gue', expected one of tokens, .*goe"):
        draw_sensing("gue", samples=2, tokens=1, size=2, rng=rng)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"size: found 400, this needs a dense .* choose a smaller size, or sensing tokens"
    ):
        draw_sensing("goe", samples=80_000, tokens=1, size=400, rng=rng)
    with pytest.raises(
        InputError, match=r"size: found 2, this needs a dense .*, or a weight_decay of at least 0.02"
    ):
        TokenSensing(np.zeros((1, 20_000, 2))).gram()
