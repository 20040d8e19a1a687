"""Routines by ctypes against NumPy, with SciPy's OpenBLAS and without it."""

import numpy as np
import pytest

from attnlaw.numerics import openblas
from attnlaw.numerics.lapack import (
    cholesky_factor,
    singular_values,
    symmetric_product,
    triangular_condition,
)

pytestmark = pytest.mark.usefixtures("way")
EPS = np.finfo(np.float64).eps


@pytest.fixture(params=["with the library", "without it"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.setattr(openblas, "library", lambda: None)
    elif openblas.library() is None:
        pytest.skip("this build of scipy brings no such library")


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[0]).standard_normal(shape)


@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (4, 9), (60, 60)])
def test_singular_values(shape: tuple[int, int]) -> None:
    for matrix in (
        draw(*shape),
        np.asfortranarray(draw(*shape)),
        draw(*shape)[::-1],
        np.float32(draw(*shape)),
    ):
        before = matrix.copy()
        expected = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
        assert np.abs(singular_values(matrix) - expected).max() < 100 * EPS * expected[0]
        assert np.array_equal(matrix, before)


def test_a_cholesky_factor_is_upper_triangular() -> None:
    gram = draw(12, 8).T @ draw(12, 8)
    before = gram.copy()
    root = cholesky_factor(gram)
    assert root is not None
    assert np.abs(root.T @ root - gram).max() < 100 * EPS * np.abs(gram).max()
    assert not np.tril(root, -1).any()
    assert np.array_equal(gram, before)
    assert cholesky_factor(np.array([[1.0, 2.0], [2.0, 1.0]])) is None


def test_the_condition_of_a_triangular_matrix_reads_the_upper_triangle() -> None:
    root = np.triu(draw(6, 6)) + 3 * np.eye(6)
    exact = 1 / np.linalg.cond(root, 1)
    # LAPACK estimates the norm of the inverse from below.
    assert exact * (1 - 1e-12) <= triangular_condition(root + np.tril(draw(6, 6), -1)) < 3 * exact
    assert not triangular_condition(np.full((2, 2), np.nan)) >= 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_symmetric_product_reads_the_upper_triangle(dtype: str) -> None:
    whole = (draw(7, 7) + draw(7, 7).T).astype(dtype)
    vector = draw(14).astype(dtype)[::2]
    product = symmetric_product(np.triu(whole), vector)
    assert product.dtype == dtype
    assert np.abs(product - whole @ vector).max() < 100 * np.finfo(dtype).eps
