"""The operator of a whole pass: dense and matrix-free, adjoint, singular values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from analysis.forward.tiny_models import save_tiny

from attnlaw.analysis.forward import operator as operator_module
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.operator import Operator, top_singular_values
from attnlaw.analysis.forward.trace import trace_forward
from attnlaw.core.errors import InputError


@pytest.fixture(scope="module")
def operator(tmp_path_factory) -> Operator:
    return trace_forward(
        *load_base_model(save_tiny("gpt2", tmp_path_factory.mktemp("gpt2"))), [3, 1, 4, 1, 5]
    ).operator


def test_dense_is_matvec_column_by_column(operator, monkeypatch):
    monkeypatch.setattr(operator_module, "BATCH_ENTRIES", 7 * operator.size)  # batches with a remainder
    columns = np.array([operator.matvec(unit) for unit in np.eye(operator.size)]).T
    np.testing.assert_allclose(operator.dense(), columns, rtol=0, atol=1e-13 * np.abs(columns).max())


def test_rmatvec_is_the_transpose(operator):
    u, v = np.random.default_rng(1).standard_normal((2, operator.size))
    left, right = u @ operator.matvec(v), operator.rmatvec(u) @ v
    assert abs(left - right) < 1e-13 * np.linalg.norm(u) * np.linalg.norm(operator.matvec(v))
    rows = np.array([operator.rmatvec(unit) for unit in np.eye(operator.size)])
    np.testing.assert_allclose(rows, operator.dense(), rtol=0, atol=1e-13 * np.abs(rows).max())


def test_columns_of_a_matrix_go_through_together(operator):
    block = np.random.default_rng(2).standard_normal((operator.size, 3))
    for apply in (operator.matvec, operator.rmatvec):
        run_each_case = np.array([apply(column) for column in block.T]).T
        np.testing.assert_allclose(apply(block), run_each_case, rtol=1e-11, atol=1e-11)
    wrapped = operator.as_linear_operator()
    np.testing.assert_array_equal(wrapped @ block, operator.matvec(block))
    np.testing.assert_array_equal(wrapped.T @ block, operator.rmatvec(block))


def test_singular_values_are_those_of_the_dense_matrix(operator):
    spectrum = top_singular_values(operator, top=6)
    expected = np.linalg.svd(operator.dense(), compute_uv=False)[:6]
    # Lanczos on T^T T: relative error eps (sigma_1/sigma)^2, with a factor of the size.
    bound = operator.size * np.finfo(float).eps * (expected[0] / expected) ** 2
    assert (np.abs(spectrum.values / expected - 1) < bound).all()
    assert spectrum.residual < 1e-12
    assert spectrum.remark is None
    assert top_singular_values(operator, top=6) == spectrum


@pytest.mark.parametrize("top", [0, -1, 40, 41])
def test_bad_counts_are_refused(operator, top):
    with pytest.raises(
        InputError, match=f"top: found {top}, expected a whole number of at least 1 and of at most 39"
    ):
        top_singular_values(operator, top)


def test_large_operators_are_not_formed(operator):
    with pytest.raises(InputError, match="the operator is 8000 x 8000"):
        Operator(operator.block, 1000, 8).dense()


def test_lanczos_without_convergence_is_a_value(operator, monkeypatch):
    def gives_up(*args, **options):
        raise scipy.sparse.linalg.ArpackNoConvergence("no convergence", np.array([]), np.array([]))

    monkeypatch.setattr(scipy.sparse.linalg, "svds", gives_up)
    spectrum = top_singular_values(operator, top=3)
    assert (spectrum.values, spectrum.residual) == (None, None)
    assert "ask for another number" in spectrum.remark
