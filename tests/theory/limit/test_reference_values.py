"""Closed forms, published or checked figures, and rates; tolerances are 4 standard errors plus rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import ks_2samp, norm
from theory.limit.layer_draws import sample
from theory.limit.limit_covariances import conditional_covariance, gaussian_covariance, score_covariance

from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.distance import distances
from attnlaw.theory.limit.heads import score_matrices, score_row
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, ScoreSettings, WeightVariances
from attnlaw.theory.limit.limit import compare_widths
from attnlaw.theory.limit.mixture import gaussian_law
from attnlaw.theory.limit.sampler import output_law
from attnlaw.theory.limit.wishart import streams

SIGMA = np.array([[1.0, 0.6, -0.3], [0.6, 1.5, 0.2], [-0.3, 0.2, 0.8]])


def moments_of_two_tokens() -> tuple[float, float]:
    """E v and E v^2 for s = 2, Sigma = I, H = 1, by quadrature: a_1 = sigmoid(g), g ~ N(0, 2)."""

    def power(k: int) -> float:
        def integrand(g: float) -> float:
            a = 1 / (1 + math.exp(-g))
            return (a * a + (1 - a) ** 2) ** k * norm.pdf(g, scale=math.sqrt(2))

        return quad(integrand, -14, 14, epsabs=1e-13)[0]

    return power(1), power(2)


def test_two_tokens_by_quadrature():
    mean, square = moments_of_two_tokens()
    assert mean == pytest.approx(0.636838, abs=5e-7)
    law = output_law(AttentionLayer(RandomInputs(2)), 200_000, seed=1)
    assert law.variance().value == pytest.approx(mean, abs=4 * law.variance().error)
    kurtosis = law.kurtosis()
    assert kurtosis.value == pytest.approx(3 * square / mean**2, abs=4 * kurtosis.error)


@pytest.mark.parametrize(("tokens", "mean", "r"), [(4, 0.3918, 0.0810), (8, 0.2323, 0.1176)])
def test_mean_and_kurtosis_of_the_limit(tokens, mean, r):
    for heads in (1, 4):
        law = output_law(AttentionLayer(RandomInputs(tokens), heads=heads), 100_000, seed=2)
        assert law.variance().value == pytest.approx(mean, abs=4 * law.variance().error + 2e-4)
        kurtosis = law.kurtosis()
        expected = 3 + 3 * r / heads
        assert kurtosis.value == pytest.approx(expected, abs=4 * kurtosis.error + 3 * 5e-4 / heads)


@pytest.mark.parametrize("n", [2, 16, 10**9])
def test_score_variances_at_finite_width(n):
    layer = AttentionLayer(RandomInputs(4), width=n)
    exact = (1 + 2 / n) ** 2
    variance = output_law(layer, 100_000, seed=3).score_variance()
    assert variance.value == pytest.approx(exact, abs=4 * variance.error)
    p = sample(layer, 100_000, seed=4).scores[:, 0]
    for scores, expected in ((p[:, 0, 0], exact), (p[:, 0, 1], 1 + 2 / n)):
        squares = scores**2
        error = squares.std() / math.sqrt(len(squares))
        assert squares.mean() == pytest.approx(expected, abs=4 * error)


def test_relu_inputs():
    layer = AttentionLayer(RandomInputs(4, "relu"))
    root = layer.inputs.limit_root()
    expected = np.full((4, 4), 1 / (2 * math.pi)) + (0.5 - 1 / (2 * math.pi)) * np.eye(4)
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-14)
    law = output_law(layer, 200_000, seed=5)
    assert law.score_variance().value == pytest.approx(0.25, abs=1e-14)
    assert law.variance().value == pytest.approx(0.2548, abs=4 * law.variance().error + 5e-5)
    assert law.kurtosis().value == pytest.approx(3.004, abs=4 * law.kurtosis().error + 5e-4)
    covariance = score_covariance(layer)
    assert covariance[0, 0, 0, 1] == pytest.approx(1 / (4 * math.pi), rel=1e-12)


@pytest.mark.slow
def test_kl_to_the_limit():
    stack = Depth(AttentionLayer(RandomInputs(4), heads=2))
    rows = compare_widths(stack, (16, 64), 200_000, seed=6)
    for row, published in zip(rows, (0.0222, 0.00213), strict=True):
        digit = 5e-5 if row.width == 16 else 5e-6
        assert row.kl_to_limit.value == pytest.approx(published, abs=4 * row.kl_to_limit.error + digit)
        assert row.residual_of_distances < 1e-8


@pytest.mark.slow
def test_kl_falls_like_the_inverse_square_of_the_width():
    # KL = c / n^2 (1 + b / n + ...): between n = 256 and 1024 the second term moves the slope by
    # about b (1/256 - 1/1024) / log 4 = 0.002 b, with b about -9 from n = 16 and 64 above.
    stack = Depth(AttentionLayer(RandomInputs(4), heads=2))
    rows = compare_widths(stack, (256, 1024), 400_000, seed=7)
    first, second = (row.kl_to_limit for row in rows)
    slope = math.log(second.value / first.value) / math.log(4)
    error = math.hypot(first.error / first.value, second.error / second.value) / math.log(4)
    assert error < 0.06
    assert slope == pytest.approx(-2, abs=4 * error + 0.03)


def test_errors_of_the_gaussian_covariance_are_the_spread_of_repeated_runs():
    runs, layer = 60, AttentionLayer(RandomInputs(2))
    values, errors = zip(*(gaussian_covariance(layer, 500, seed) for seed in range(runs)), strict=True)
    ratio = np.std(values, axis=0, ddof=1) / np.sqrt(np.mean(np.square(errors), axis=0))
    # chi_59 / sqrt(59) lies in (0.69, 1.34) with probability 1 - 6e-4; 3 entries.
    assert ((ratio > 0.69) & (ratio < 1.34)).all()


def test_the_error_of_two_draws_is_half_their_distance():
    """The standard deviation of a and b is |a - b| / sqrt(2), that of their mean |a - b| / 2."""
    layer = AttentionLayer(RandomInputs(2))
    value, error = gaussian_covariance(layer, 2, seed=3)
    p = score_matrices(layer, layer.inputs.limit_root()[None], 2, streams(3, 0))
    a, b = conditional_covariance(layer, p)
    np.testing.assert_allclose(value, (a + b) / 2, rtol=1e-14)
    # The squares are subtracted from each other: rounding of 1e-16 over a variance of about 0.01.
    np.testing.assert_allclose(error, abs(a - b) / 2, rtol=1e-12)


@pytest.mark.slow
def test_many_heads_are_gaussian():
    # The mixture's variance has relative deviation ~ H^(-1/2): KL to the Gaussian falls like H^(-2).
    layer = AttentionLayer(RandomInputs(4))
    covariance, _ = gaussian_covariance(layer, 400_000, seed=8)
    divergences = {}
    for heads in (4, 16):
        law = output_law(AttentionLayer(RandomInputs(4), heads=heads), 100_000, seed=9)
        divergences[heads] = distances(law, gaussian_law(float(law.variances.mean()))).kl
        assert law.variance().value == pytest.approx(covariance[0, 0], abs=4 * law.variance().error + 5e-4)
    slope = math.log(divergences[16].value / divergences[4].value) / math.log(4)
    error = math.hypot(*(kl.error / kl.value for kl in divergences.values())) / math.log(4)
    # Next order: a relative correction of order skewness / H, below 0.2 at H = 4 and a quarter at 16.
    assert slope == pytest.approx(-2, abs=4 * error + 0.15)


@pytest.mark.slow
def test_coordinates_are_uncorrelated_and_dependent():
    # Given the scores coordinates are independent N(0, v): Cov(y_1, y_1') = 0, Cov(y_1^2, y_1'^2) = Var v.
    for width in (8, math.inf):
        layer = AttentionLayer(RandomInputs(4), width=width)
        law = output_law(layer, 200_000, seed=10)
        y = sample(layer, 200_000, seed=11, coordinates=2).outputs[:, 0]
        product = y[:, 0] * y[:, 1]
        assert abs(product.mean()) < 4 * product.std() / math.sqrt(len(y))
        squares = (y[:, 0] ** 2 - (y[:, 0] ** 2).mean()) * (y[:, 1] ** 2 - (y[:, 1] ** 2).mean())
        centred = (law.variances - law.variances.mean()) ** 2
        error = math.hypot(squares.std(), centred.std()) / math.sqrt(len(y))
        assert squares.mean() == pytest.approx(centred.mean(), abs=4 * error)
        assert squares.mean() > 8 * error


def test_conditional_covariance_is_that_of_the_outputs():
    layer = AttentionLayer(GivenInputs(SIGMA), heads=2, variances=WeightVariances(1.5, 1.0, 2.0, 0.7))
    drawn = sample(layer, 100_000, seed=12)
    y = drawn.outputs[..., 0]
    products = y[:, :, None] * y[:, None, :] - conditional_covariance(layer, drawn.scores)
    error = products.std(axis=0) / math.sqrt(len(y))
    assert (np.abs(products.mean(axis=0)) < 4.5 * error).all()


@pytest.mark.parametrize("width", [8, math.inf])
@pytest.mark.parametrize("frequencies", [(), (0.5, 1.3)])
def test_score_covariance_holds_at_every_width(width, frequencies):
    layer = AttentionLayer(GivenInputs(SIGMA), width=width, scores=ScoreSettings(frequencies=frequencies))
    p = sample(layer, 100_000, seed=13).scores[:, 0].reshape(-1, 9)
    products = p[:, :, None] * p[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(p))
    expected = score_covariance(layer).reshape(9, 9)
    assert (np.abs(products.mean(axis=0) - expected) < 5 * error).all()  # 81 entries


def test_special_limits():
    uniform = output_law(AttentionLayer(RandomInputs(4), scores=ScoreSettings(scaling="1/n")), 100, seed=14)
    np.testing.assert_allclose(uniform.variances, 0.25, rtol=1e-12)
    first = output_law(AttentionLayer(RandomInputs(4), scores=ScoreSettings(mask="causal")), 100, seed=15)
    np.testing.assert_allclose(first.variances, 1.0, rtol=1e-12)
    assert uniform.score_variance().value == 0.0


@pytest.mark.parametrize(
    "scores", [ScoreSettings(), ScoreSettings(frequencies=(0.4, 2.0)), ScoreSettings("relu", mask="band:1")]
)
def test_the_limit_is_the_law_at_an_enormous_width(scores):
    layer = AttentionLayer(GivenInputs(SIGMA), heads=2, width=4 * 10**9, scores=scores)
    wide = sample(layer, 20_000, seed=16, coordinates=2)
    limit = sample(layer.at_width(math.inf), 20_000, seed=17, coordinates=2)
    pairs = [
        (wide.outputs[:, i, 0] * wide.outputs[:, j, k], limit.outputs[:, i, 0] * limit.outputs[:, j, k])
        for i, j, k in ((0, 0, 1), (0, 1, 0), (2, 2, 0))
    ]
    pairs += [(wide.scores[:, 0, 0, 1], limit.scores[:, 0, 0, 1])]
    assert min(ks_2samp(wide_values, two).pvalue for wide_values, two in pairs) > 1e-3 / (3 * len(pairs))


@pytest.mark.parametrize("frequencies", [(), (0.7,)])
@pytest.mark.parametrize("inner", [2, None])
def test_one_row_of_scores_is_a_row_of_all_scores(inner, frequencies):
    layer = AttentionLayer(
        GivenInputs(SIGMA), width=10**6, head_width=inner, scores=ScoreSettings(frequencies=frequencies)
    )
    root, token, draws = layer.inputs.limit_root()[None], 1, 100_000
    row = score_row(layer, root, token, draws, streams(21))[:, :, 0]
    full = score_matrices(layer, root, draws, streams(22))[:, 0, token]
    pairs = [
        (row[:, 0], full[:, 0]),
        (row[:, 1], full[:, 1]),
        (row[:, 0] * row[:, 2], full[:, 0] * full[:, 2]),
    ]
    pairs += [(row[:, 1] ** 2 + row[:, 2] ** 2, full[:, 1] ** 2 + full[:, 2] ** 2)]
    assert min(ks_2samp(row_values, two).pvalue for row_values, two in pairs) > 1e-3 / (4 * len(pairs))


def test_softmax_temperature_is_a_query_variance():
    # T = 2 halves the scores.
    cold, warm = (
        sample(AttentionLayer(GivenInputs(SIGMA), variances=WeightVariances(query=q)), 50, seed=18).scores
        for q in (1.0, 0.25)
    )
    np.testing.assert_allclose(warm, cold / 2, rtol=1e-12)


def test_cross_attention_is_a_mask():
    # One query over two keys: only the query's own length and the keys' Gram matrix enter.
    sees = np.array([[0, 1, 1], [0, 1, 0], [0, 0, 1]], dtype=bool)
    other = SIGMA.copy()
    other[0, 1:] = other[1:, 0] = 0.0
    laws = [
        output_law(
            AttentionLayer(GivenInputs(gram), scores=ScoreSettings(mask=sees)), 50_000, seed=seed
        ).variances
        for gram, seed in ((SIGMA, 19), (other, 20))
    ]
    assert ks_2samp(*laws).pvalue > 1e-3
