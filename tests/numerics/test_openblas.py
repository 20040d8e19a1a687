"""Routines by ctypes against plain products and eigenvalues, with the library and without it."""

import numpy as np
import pytest

from attnlaw.numerics import openblas
from attnlaw.numerics.symmetric import add_gram, tridiagonal_eigenvalues


@pytest.fixture(params=["with the library", "without it"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.setattr(openblas, "library", lambda: None)
    elif openblas.library() is None:
        pytest.skip("this build of scipy brings no such library")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["rows", "columns", "every other column"])
def test_half_a_gram_matrix_is_added(dtype: str, order: str) -> None:
    drawn = np.random.default_rng(0).standard_normal((7, 40)).astype(dtype)
    wide = {"rows": drawn, "columns": np.asfortranarray(drawn), "every other column": drawn[:, ::2]}[order]
    gram = np.full((7, 7), 3.0, dtype, order="F")
    add_gram(wide, gram)
    exact = 3.0 + wide.astype(np.float64) @ wide.T.astype(np.float64)
    # An entry is a sum of 40 products: at most about 40 eps of the products' magnitudes.
    bound = 41 * np.finfo(dtype).eps * (3.0 + np.abs(wide) @ np.abs(wide).T)
    below = np.tril_indices(7)
    assert (np.abs(gram - exact)[below] <= bound[below]).all()
    assert (gram[np.triu_indices(7, 1)] == 3.0).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("n", [1, 2, 30])
def test_eigenvalues_of_a_tridiagonal_matrix(n: int) -> None:
    rng = np.random.default_rng(n)
    diagonal, beside = rng.standard_normal(n), rng.standard_normal(n - 1)
    before = diagonal.copy(), beside.copy()
    eigenvalues = tridiagonal_eigenvalues(diagonal, beside)
    dense = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    assert np.abs(eigenvalues - np.linalg.eigvalsh(dense)).max() < n * 2e-16 * 10 * np.abs(dense).max()
    assert np.array_equal(before[0], diagonal)
    assert np.array_equal(before[1], beside)


def test_a_routine_that_fails_says_so() -> None:
    library = openblas.library()
    if library is None:
        pytest.skip("this build of scipy brings no such library")
    with pytest.raises(np.linalg.LinAlgError, match="dsterf returned -1"):
        openblas.lapack(library, "dsterf", -1, np.zeros(1), np.zeros(1))
