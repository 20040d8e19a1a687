"""Differences of heads by two routes, small updates without cancellation, invariants."""

import mpmath
import numpy as np
import pytest

from attnlaw.analysis.diff.update import head_update_values, matrix_update_values, product_inner


def head(rng, n=24, d=4, m=20):
    return rng.standard_normal((n, d)), rng.standard_normal((d, m))


def test_split_and_dense_differences_agree():
    rng = np.random.default_rng(0)
    base, model = head(rng), head(rng)
    dense = np.linalg.svd(model[0] @ model[1] - base[0] @ base[1], compute_uv=False)
    spectrum = head_update_values(*base, *model)
    assert spectrum == pytest.approx(dense[:8], rel=1e-12)
    assert dense[8:].max() < 1e-12


def test_heads_of_another_dimension():
    rng = np.random.default_rng(1)
    base, model = head(rng, d=4), head(rng, d=7)
    dense = np.linalg.svd(model[0] @ model[1] - base[0] @ base[1], compute_uv=False)
    assert head_update_values(*base, *model)[:11] == pytest.approx(dense[:11], rel=1e-12)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-12])
def test_small_updates_against_60_digits(size):
    """Stacking [A1, -A0] [B1; B0] loses what the update is small by; splitting loses nothing."""
    rng = np.random.default_rng(2)
    base = head(rng, n=6, d=2, m=5)
    model = tuple(part + size * rng.standard_normal(part.shape) for part in base)
    with mpmath.workdps(60):
        exact = [mpmath.matrix(part.tolist()) for part in (*base, *model)]
        values = mpmath.svd_r(exact[2] * exact[3] - exact[0] * exact[1], compute_uv=False)
        expected = np.array([float(value) for value in sorted(values, reverse=True)[:4]])
    split = np.abs(head_update_values(*base, *model) / expected - 1)
    stacked = np.hstack([model[0], -base[0]]), np.vstack([model[1], base[1]])
    core = np.linalg.qr(stacked[0], mode="r") @ np.linalg.qr(stacked[1].T, mode="r").T
    naive = np.abs(np.linalg.svd(core, compute_uv=False) / expected - 1)
    assert split.max() < 2e-14
    assert naive[0] < 100 * 1e-16 / size
    if size <= 1e-6:
        assert naive[0] > 1e-17 / size  # the cancellation is there to be avoided


def test_norms_of_difference_and_inner_product():
    """|D|^2 = |M1|^2 + |M0|^2 - 2 <M0, M1>."""
    rng = np.random.default_rng(3)
    base, model = head(rng), head(rng)
    whole = product_inner(*base, *base) + product_inner(*model, *model) - 2 * product_inner(*base, *model)
    assert np.sum(head_update_values(*base, *model) ** 2) == pytest.approx(whole, rel=1e-12)
    assert product_inner(*base, *model) == pytest.approx(np.vdot(base[0] @ base[1], model[0] @ model[1]))


@pytest.mark.parametrize("floor", [1e-3, 1e-9])
@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_values_of_a_matrix_update(shape, floor):
    rng = np.random.default_rng(4)
    update = rng.standard_normal(shape)
    expected = np.linalg.svd(update, compute_uv=False)
    assert matrix_update_values(update, floor) == pytest.approx(expected, rel=1e-9)


def test_values_that_the_gram_matrix_cannot_resolve():
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.standard_normal((20, 20)))[0] for _ in range(2))
    values = np.logspace(0, -11, 20)
    spectrum = matrix_update_values(left * values @ right, floor=1e-12)
    assert spectrum == pytest.approx(values, rel=1e-4)
