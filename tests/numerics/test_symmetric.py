"""Eigenvalues by two stages against the one-stage route, and against a spectrum that was put in."""

import numpy as np
import pytest

from attnlaw.numerics import openblas, symmetric
from attnlaw.numerics.symmetric import symmetric_eigenvalues


def made(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with these eigenvalues."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((values.size, values.size)))[0]
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    if openblas.library() is None:
        pytest.skip("this build of scipy has no two-stage routines")
    monkeypatch.setattr(symmetric, "LARGE", 1)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [130, 257, 400])
def test_two_stages_find_the_spectrum_that_was_put_in(n: int, dtype: str) -> None:
    values = np.sort(np.random.default_rng(n).standard_normal(n) * 3)
    matrix = made(values).astype(dtype)
    eigenvalues = symmetric_eigenvalues(matrix.copy())
    # Both routes are backward stable: an error of at most about n eps |A| in every eigenvalue.
    bound = n * np.finfo(dtype).eps * np.abs(values).max()
    assert np.abs(eigenvalues - np.linalg.eigvalsh(matrix.astype(np.float64))).max() < bound
    assert np.abs(eigenvalues - values).max() < 2 * bound


@pytest.mark.usefixtures("always")
def test_rows_and_columns_in_either_order_are_read() -> None:
    matrix = made(np.arange(1.0, 201))
    in_columns = np.asfortranarray(matrix)
    assert np.array_equal(symmetric_eigenvalues(in_columns), symmetric_eigenvalues(matrix))


@pytest.mark.parametrize("large", [1, 1000])
def test_float32_is_off_by_a_few_eps_in_either_stage(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric, "LARGE", large)
    factor = np.random.default_rng(1).standard_normal((600, 900)).astype(np.float32)
    matrix = (factor.astype(np.float64) @ factor.T).astype(np.float32)
    exact = np.linalg.eigvalsh(matrix.astype(np.float64))
    # What `spectra.precision` counts on; `ssterf` would leave 20 eps here.
    eigenvalues = symmetric_eigenvalues(matrix.copy())
    assert np.abs(eigenvalues - exact).max() < 4 * 2.0**-23 * exact[-1]
    assert np.array_equal(symmetric_eigenvalues(np.triu(matrix)), eigenvalues)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_row_is_its_own_eigenvalue(dtype: str) -> None:
    assert symmetric_eigenvalues(np.array([[3.0]], dtype)).tolist() == [3.0]


@pytest.mark.parametrize("n", [2, 257])
def test_one_stage_finds_the_spectrum_that_was_put_in(n: int) -> None:
    values = np.sort(np.random.default_rng(n).standard_normal(n) * 3)
    bound = n * np.finfo(float).eps * np.abs(values).max()
    assert np.abs(symmetric_eigenvalues(made(values)) - values).max() < 2 * bound


def test_without_the_routines_the_plain_route_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric, "LARGE", 1)
    monkeypatch.setattr(openblas, "library", lambda: None)
    matrix = made(np.arange(1.0, 21))
    assert np.array_equal(symmetric_eigenvalues(matrix), np.linalg.eigvalsh(matrix))
