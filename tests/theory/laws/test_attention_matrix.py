"""The attention-matrix law: published equation, edges, limits, and softmax attention on random inputs."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest
from theory.laws.attention_draws import attention_sample, attention_spectrum

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw, random_attention
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur

CASES = [
    (1.0, 1.0),
    (0.5, 1.0),
    (1.0, 0.064),
    (0.1, 0.1),
    (0.01, 0.5),
    (1e-3, 2.0),
    (3.0, 0.2),
    (2.0, 50.0),
    (1.0, 1e-3),
]


def test_reference_edges() -> None:
    assert AttentionMatrixLaw(1.0, 1.0).support[1] == pytest.approx(9.0095, abs=5e-5)
    assert AttentionMatrixLaw(0.5, 1.0).support[1] == pytest.approx(1.7906, abs=5e-5)
    (zero, first), (second, third) = AttentionMatrixLaw(1.0, 0.064).intervals
    assert zero == 0.0
    assert first == pytest.approx(2.6797, abs=5e-5)
    assert (second, third) == pytest.approx((8.01, 31.1), rel=2e-3)


@pytest.mark.parametrize(("beta", "t"), CASES)
def test_transform_solves_the_published_equation(beta: float, t: float) -> None:
    law = AttentionMatrixLaw(beta, t)
    theta = np.expm1(beta**2)
    c = beta**2 / theta
    x = np.concatenate([low + (high - low) * np.array([0.05, 0.4, 0.9]) for low, high in law.intervals])
    z = x / theta
    w = 1 - x * law.stieltjes(x)
    terms = [z**2 * w, z * (1 - c * w / t) * (1 - w) ** 2, -(c * (1 - c) / t) * (1 - w) ** 4]
    # 1 - c loses digits here, not in the law, at small beta.
    tolerance = 1e-9 + 1e-15 / (1 - c)
    assert np.abs(sum(terms)) / np.max(np.abs(terms), axis=0) == pytest.approx(0.0, abs=tolerance)
    assert np.all(law.density(x) > 0)


@pytest.mark.parametrize(("beta", "t"), CASES)
def test_edges_are_where_the_density_ends(beta: float, t: float) -> None:
    law = AttentionMatrixLaw(beta, t)
    theta = np.expm1(beta**2)
    r, k = law._letters
    ends = [end for pair in law.intervals for end in pair if end > 0]
    for end in ends:
        xi = np.sqrt(end / theta)
        quartic = np.array([1.0, -xi, 1 - r, r * xi, -k])
        tau = np.roots(quartic)
        # A double root: a pair at a distance of the square root of rounding.
        gaps = np.abs(tau[:, None] - tau[None, :])
        assert gaps[np.triu_indices(4, 1)].min() < 1e-5 * np.abs(tau).max()
    assert law.density(np.array(ends) * (1 + 1e-9)).min() == 0.0


@pytest.mark.parametrize(("beta", "t"), CASES)
def test_mass_and_moments(beta: float, t: float) -> None:
    law = AttentionMatrixLaw(beta, t)
    theta = np.expm1(beta**2)
    x, w = law.nodes()
    expected = [1.0, theta, 2 * theta**2 + beta**4 / t]
    assert [w @ x**k for k in range(3)] == pytest.approx(expected, rel=1e-11)
    assert [law.moment(k) for k in range(3)] == pytest.approx(expected, rel=1e-12)


def test_density_at_the_hard_edge_goes_like_the_inverse_root() -> None:
    law = AttentionMatrixLaw(1.0, 1.0)
    x = np.array([1e-200, 1e-100, 1e-20, 1e-12])
    scaled = law.density(x) * np.sqrt(x)
    assert scaled == pytest.approx(np.full(4, scaled[0]), rel=1e-5)


@pytest.mark.slow
def test_a_gap_opens_continuously() -> None:
    # At beta = 1 the gap opens between these ratios; the mass must not notice.
    counts = []
    for t in np.linspace(0.05, 0.5, 46):
        law = AttentionMatrixLaw(1.0, float(t))
        counts.append(len(law.intervals))
        # Where the gap is about to open the density has a cusp of power 1/3, which costs the nodes digits.
        assert law.nodes()[1].sum() == pytest.approx(1.0, abs=1e-7)
    assert counts == sorted(counts, reverse=True)
    assert set(counts) == {1, 2}


def has_gap(beta: float, t: float) -> bool:
    """Whether the cubic of the edges has three positive roots, by its exact discriminant and signs."""
    b, theta = Fraction(beta) ** 2, Fraction(float(np.expm1(beta**2)))
    r, k = b / theta / Fraction(t), b / theta * (1 - b / theta) / Fraction(t)
    p, q, s = -(1 + 2 * r), 3 * k - r * (1 - r), -k * r
    return q > 0 and 18 * p * q * s - 4 * p**3 * s + p**2 * q**2 - 4 * q**3 - 27 * s**2 > 0


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1.0, 4.0, 5.0])
def test_gaps_are_those_of_the_discriminant(beta: float) -> None:
    for t in 10.0 ** np.arange(-8, 8.1, 0.5):
        law = AttentionMatrixLaw(beta, float(t))
        assert len(law.intervals) == 1 + has_gap(beta, float(t))
        x, w = law.nodes()
        assert [w.sum(), w @ x / law.theta] == pytest.approx([1.0, 1.0], abs=1e-7)


def test_betas_that_rounding_spoils_are_refused() -> None:
    for beta in (5.1, 6.0, 19.0):  # 6.0 showed a second interval at a ratio of 0.3, which has no gap
        with pytest.raises(
            InputError, match=r"^attention matrix: found beta [^\n]* at most 5, because the law"
        ):
            AttentionMatrixLaw(beta, 0.3)
    assert not has_gap(6.0, 0.3)


def test_wide_heads_are_marchenko_pastur() -> None:
    # d_K -> infinity makes S itself Gaussian noise: ratio-one Marchenko-Pastur of mean theta.
    law, plain = AttentionMatrixLaw(0.7, 1e6), MarchenkoPastur(1.0, np.expm1(0.49))
    x = plain.support[1] * np.array([0.01, 0.3, 0.8])
    assert law.density(x) == pytest.approx(plain.density(x), rel=1e-5)


def test_equivalent_gaussian_matrix_follows_the_law() -> None:
    n, d, beta = 400, 120, 0.8
    rng = np.random.default_rng(3)
    S = rng.normal(size=(n, d)) @ rng.normal(size=(d, n)) / np.sqrt(d)
    rest = np.sqrt(np.expm1(beta**2) - beta**2) * rng.normal(size=(n, n))
    values = np.linalg.svd((beta * S + rest) / np.sqrt(n), compute_uv=False) ** 2
    # Eigenvalues are rigid: the distance is of order log(n)/n.
    assert kstest(values, AttentionMatrixLaw(beta, d / n).cdf).statistic < 3 * np.log(n) / n


@pytest.mark.slow
def test_softmax_attention_follows_the_law_and_not_marchenko_pastur() -> None:
    drawn = attention_sample(1000, 1000, 1.0, seed=0)
    # Other draws of this size gave .013 to .019 and .060 to .066; a third of their width on either side.
    assert 0.011 < drawn.law_distance < 0.021
    assert 0.058 < drawn.marchenko_pastur_distance < 0.068
    assert drawn.edge == pytest.approx(9.0095, abs=5e-5)
    assert drawn.marchenko_pastur_edge == pytest.approx(4 * np.expm1(1.0))
    assert drawn.beyond == int((drawn.values > drawn.edge).sum())
    assert drawn.warnings == ()


def test_small_heads_are_far_from_the_law_and_say_so() -> None:
    drawn = attention_sample(600, 38, 1.0, seed=0)
    assert drawn.law_distance > 0.05
    assert len(drawn.warnings) == 1
    assert "heads × head size × (head size + 1) / (2 × tokens) is 1.2, below 5" in drawn.warnings[0]
    assert "draw random matrices of this shape instead" in drawn.warnings[0]
    assert float(re.search(r"is ([\d.]+), below", drawn.warnings[0])[1]) == round(38 * 39 / (2 * 600), 1)


def test_attention_rows_sum_to_one_and_lose_their_mean() -> None:
    A = random_attention(50, 8, 1.0, seed=4)
    assert A.sum(axis=1) == pytest.approx(np.ones(50))
    values = attention_spectrum(A)
    assert values.sum() == pytest.approx(50 * ((A - A.mean(axis=0)) ** 2).sum())
    assert np.all(np.diff(values) >= 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AttentionMatrixLaw(0.0, 1.0),
        lambda: AttentionMatrixLaw(30.0, 1.0),
        lambda: AttentionMatrixLaw(1.0, 0.0),
    ],
)
def test_bad_parameters_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
