"""Thresholds of beta and participation numbers, compared with singular values, draws and limits."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.attention_matrix import (
    AttentionMatrixLaw,
    centred,
    null_participation,
    participation,
    random_attention,
)
from attnlaw.theory.laws.finite_size import condensed_beta, few_rows_beta, frobenius_shift


@pytest.mark.parametrize("tokens", [2, 128, 512, 4096])
def test_marks_are_where_the_perplexity_of_a_row_is_one(tokens: int) -> None:
    """beta_c belongs to the row, and beta_2 to its squares, a row at twice the beta."""
    assert tokens * np.exp(-(condensed_beta(tokens) ** 2) / 2) == pytest.approx(1.0, rel=1e-12)
    assert tokens * np.exp(-((2 * few_rows_beta(tokens)) ** 2) / 2) == pytest.approx(1.0, rel=1e-12)


def test_marks_at_512_tokens() -> None:
    # arXiv 2610.10033's setting, worked by hand: ln 512 = 6.2383.
    assert (few_rows_beta(512), condensed_beta(512)) == pytest.approx((1.77, 3.53), abs=0.005)
    with pytest.raises(InputError, match="tokens"):
        condensed_beta(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "head_size", "beta", "draws"),
    [(400, 12, 0.7, 30), (400, 400, 1.0, 30), (800, 10, 0.5, 30), (200, 200, 1.2, 30), (100, 100, 0.7, 400)],
)
def test_size_of_finite_attention_is_shifted_as_the_formula_says(
    tokens: int, head_size: int, beta: float, draws: int
) -> None:
    b, theta = beta**2, np.expm1(beta**2)
    shifts = []
    for seed in range(draws):
        size = (random_attention(tokens, head_size, beta, seed=seed) ** 2).sum() - 1
        Q, K = np.random.default_rng(seed).standard_normal((2, tokens, head_size))
        # The mean square of its logits has mean one: a control variate with the slope of e^b.
        logits = np.einsum("ij,ij->", Q.T @ Q, K.T @ K) / (head_size * tokens**2)
        shifts.append(size / theta - 1 - b * np.exp(b) / theta * (logits - 1))
    error = np.std(shifts, ddof=1) / np.sqrt(len(shifts))
    shift = frobenius_shift(tokens, head_size, beta)
    # What the first order leaves out is of the order of its square.
    assert np.mean(shifts) == pytest.approx(shift, abs=4 * error + 2 * shift**2)
    assert 4 * error + 2 * shift**2 < 0.8 * abs(shift)


@pytest.mark.parametrize("shape", [(30, 30), (20, 50), (50, 20)])
def test_participation_is_that_of_the_singular_values(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(1).standard_normal(shape) * 1e-120
    s = np.linalg.svd(matrix * 1e120, compute_uv=False)
    assert participation(matrix) == pytest.approx((s**2).sum() ** 2 / (s**4).sum(), rel=1e-12)
    assert np.isnan(participation(np.zeros(shape)))


def test_centring_takes_off_what_uniform_attention_is() -> None:
    A = random_attention(40, 8, 1.0, seed=2)
    assert A.sum(axis=1) == pytest.approx(np.ones(40))
    C = centred(A)
    assert C.sum(axis=0) == pytest.approx(np.zeros(40), abs=1e-13)
    assert C.sum(axis=1) == pytest.approx(np.zeros(40), abs=1e-13)
    masked = random_attention(40, 8, 1.0, seed=2, causal=True)
    assert np.all(masked[np.triu_indices(40, 1)] == 0)
    assert masked.sum(axis=1) == pytest.approx(np.ones(40))
    # The same queries and keys, each row over fewer tokens.
    assert masked[-1] == pytest.approx(A[-1], rel=1e-12)
    uniform = random_attention(40, 8, 0.0, seed=2, causal=True)
    assert centred(uniform, causal=True) == pytest.approx(np.zeros((40, 40)), abs=1e-15)


def test_null_participation_becomes_that_of_the_law() -> None:
    """PR/n tends to `m1^2/m2`; draws of two sizes are extrapolated in 1/n."""
    beta, ratio = 0.7, 0.5
    law = AttentionMatrixLaw(beta, ratio)
    small, large = (null_participation(n, int(ratio * n), beta, seed=5, draws=40) / n for n in (120, 240))
    assert small.error is not None
    assert large.error is not None
    error = np.hypot(2 * large.error, small.error)
    assert 2 * large.value - small.value == pytest.approx(law.mean**2 / law.moment(2), abs=4 * error)
    # Without the extrapolation the finite size shows.
    assert abs(small.value - law.mean**2 / law.moment(2)) > 4 * small.error


def test_null_participation_falls_with_the_temperature_and_holds_under_a_mask() -> None:
    soft, sharp = (null_participation(96, 32, beta, seed=0, draws=6) for beta in (0.5, 4.0))
    assert soft.value != sharp.value
    masked = null_participation(96, 32, 0.5, seed=0, draws=6, causal=True)
    expected = [
        participation(
            centred(random_attention(96, 32, 0.5, np.random.default_rng(seed), causal=True), causal=True)
        )
        for seed in np.random.SeedSequence(0).spawn(6)
    ]
    assert masked.value == pytest.approx(np.mean(expected))
    assert masked.value < soft.value
