"""Layers that raise an error, each with one clear line, and layers that are accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory.limit.layer_draws import sample

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import SCORES, AttentionLayer, ScoreSettings, WeightVariances
from attnlaw.theory.limit.limit import compare_widths
from attnlaw.theory.limit.sampler import output_law
from attnlaw.theory.limit.wishart import streams


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], r"not symmetric: entry \(1, 2\) is 0.5 and \(2, 1\) is 0.4"),
        ([[1.0, 2.0], [2.0, 1.0]], "not positive semi-definite: its lowest eigenvalue is -1"),
        ([[1.0, math.nan], [math.nan, 1.0]], "NaN"),
        ([[1.0, 2.0]], r"shape \(1, 2\)"),
        ([1.0, 2.0], r"shape \(2,\)"),
    ],
)
def test_bad_gram_matrices(gram, message):
    with pytest.raises(InputError, match=message) as caught:
        GivenInputs(np.array(gram))
    assert "\n" not in str(caught.value)


SHORT = np.array([1.0, 1e-9, 0.0, 1e-4, 30.0])
UNIT = np.random.default_rng(3).standard_normal((5, 8))


def test_short_tokens_are_kept():
    """Each entry of L L^T is right to the rounding of its two tokens; a zero token stays zero."""
    gram = GivenInputs.from_tokens(SHORT[:, None] * UNIT).gram
    root = GivenInputs(gram).limit_root()
    assert root.shape == (5, 4)
    assert (root[2] == 0).all()
    lengths = np.sqrt(np.diagonal(gram))
    assert (np.abs(root @ root.T - gram) <= 1e-14 * np.outer(lengths, lengths)).all()
    with pytest.raises(InputError, match="rank 4, and tokens of width 3"):
        AttentionLayer(GivenInputs(gram), width=3)


@pytest.mark.parametrize("width", [math.inf, 6])
def test_a_normalised_layer_does_not_see_lengths(width):
    shown = np.delete(UNIT, 2, axis=0)
    layers = [
        AttentionLayer(GivenInputs.from_tokens(x), width=width)
        for x in (shown, SHORT[[0, 1, 3, 4], None] * shown)
    ]
    plain, scaled = (output_law(layer, 100, seed=0, token=1, normalise=True).variances for layer in layers)
    np.testing.assert_allclose(scaled, plain, rtol=1e-11)


def test_orthogonal_tokens_of_very_different_lengths_have_the_closed_form():
    variance = output_law(
        AttentionLayer(GivenInputs(np.diag([1.0, 1e-13]))), 20_000, seed=0, normalise=True
    ).variance()
    assert abs(variance.value - 0.636838) < 4 * variance.error + 1e-6


def test_products_that_short_tokens_cannot_have_are_refused():
    with pytest.raises(
        InputError, match="not positive semi-definite: its lowest eigenvalue is -9 after tokens"
    ):
        GivenInputs(np.array([[1.0, 1e-9], [1e-9, 1e-20]]))


def test_bad_tokens():
    tokens = np.ones((3, 8))
    tokens[1, 2] = math.nan
    with pytest.raises(InputError, match="token 2 of 3 holds a NaN"):
        GivenInputs.from_tokens(tokens)
    with pytest.raises(InputError, match="shape"):
        GivenInputs.from_tokens(np.ones(3))
    with pytest.raises(InputError, match="tokens: found 0"):
        RandomInputs(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width: found 0"),
        ({"width": -3}, "width: found -3"),
        ({"width": 2.5}, "width: found 2.5"),
        ({"width": math.nan}, "width: found nan"),
        ({"heads": 0}, "heads: found 0"),
        ({"width": 16, "head_width": 5}, "head_width: found 5, expected a divisor of the width, 16"),
        ({"width": 16, "head_width": 0}, "head_width: found 0"),
        ({"width": 6, "scores": ScoreSettings(frequencies=(1.0, 2.0))}, "not a multiple of 4"),
        ({"scores": ScoreSettings(mask=np.eye(3, dtype=bool))}, r"shape \(3, 3\)"),
        ({"scores": ScoreSettings(mask=np.diag([True, False]))}, "hides every token from token 2"),
        (
            {"width": 10**400},
            r"width: found 10+, expected a whole number of at least 1 and of at most 1e\+18",
        ),
        ({"width": 1e300}, r"width: found 1e\+300"),
        ({"heads": 10**400}, r"heads: found 10+"),
    ],
)
def test_bad_layers(options, message):
    with pytest.raises(InputError, match=message):
        AttentionLayer(RandomInputs(2), **options)


def test_a_gram_matrix_needs_room():
    with pytest.raises(InputError, match="rank 3, and tokens of width 2"):
        AttentionLayer(GivenInputs(np.eye(3)), width=2)
    assert AttentionLayer(GivenInputs(np.ones((3, 3))), width=1).tokens == 3


def test_other_bad_options():
    with pytest.raises(InputError, match="value variance: found 0, expected a number of at least 1e-15"):
        WeightVariances(value=0.0)
    with pytest.raises(InputError, match=f"function: found 'tanh', expected one of {', '.join(SCORES)}$"):
        ScoreSettings("tanh")
    with pytest.raises(InputError, match="scaling: found 'n', expected one of"):
        ScoreSettings(scaling="n")
    for mask in ("diagonal", "band", "band:", "band:-1", "band:x", f"band:{'9' * 5000}", "band:K"):
        with pytest.raises(
            InputError, match=r"expected one of none, causal, .*band:K.*, for example .*band:2"
        ):
            ScoreSettings(mask=mask)
    with pytest.raises(InputError, match="not all finite"):
        ScoreSettings(frequencies=(math.inf,))
    layer = AttentionLayer(RandomInputs(2), width=4)
    for draws in (0, 10**400):
        with pytest.raises(InputError, match=rf"draws: found {draws}, expected .* of at most 100000000"):
            output_law(layer, draws, 0)
    with pytest.raises(InputError, match=r"depth: found 10+"):
        Depth(layer, 10**400)
    with pytest.raises(
        InputError, match="token: found 3, expected a whole number of at least 1 and of at most 2"
    ):
        output_law(layer, 100, 0, token=2)


@given(st.integers(1, 6), st.sampled_from(["none", "causal", "band:0", "band:2"]), st.integers(0, 2**20))
def test_softmax_weights_sum_to_one_under_every_mask(tokens, mask, seed):
    scores = ScoreSettings(mask=mask)
    allowed = scores.allowed(tokens)
    p = 300 * np.random.default_rng(seed).standard_normal((3, tokens, tokens))
    weights = scores.attention(p, allowed)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)
    assert (weights[:, ~allowed] == 0).all()


def test_equal_seeds_repeat_and_share_their_normals():
    layer = AttentionLayer(RandomInputs(4), heads=3, width=10**9)
    first, again = (sample(layer, 500, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.outputs, again.outputs)
    assert not np.array_equal(first.outputs, sample(layer, 500, seed=2).outputs)
    limit = output_law(layer.at_width(math.inf), 500, seed=1).variances
    np.testing.assert_allclose(output_law(layer, 500, seed=1).variances, limit, rtol=1e-3)


def test_progress_and_order_of_a_comparison():
    seen = []
    rows = compare_widths(
        Depth(AttentionLayer(RandomInputs(3)), depth=2, residual=True),
        (math.inf, 8),
        draws=100,
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [row.width for row in rows] == [math.inf, 8]
    assert rows[0].kl_to_limit is None
    assert rows[1].path is not None
    assert seen == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("token", [-1, 3, 4])
def test_a_token_that_is_not_there_is_refused(token):
    with pytest.raises(InputError, match="token"):
        output_law(AttentionLayer(RandomInputs(3)), 40, seed=0, token=token)


def test_a_coordinates_own_normals_are_not_those_of_its_scores():
    law = output_law(AttentionLayer(RandomInputs(3)), 200, seed=5)
    normals = law.draw(5) / np.sqrt(law.variances)
    taken = streams(5, 0).normals.standard_normal(4000)
    assert not np.isclose(normals[:, None], taken[None, :], rtol=1e-12).any()


@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_sizes_are_taken_as_far_as_fourth_powers_reach(size):
    beyond = size**1.01
    assert GivenInputs(size * np.eye(2)).tokens == 2
    with pytest.raises(InputError, match=r"entries of size .* at most 1e\+15 and at least 1e-15"):
        GivenInputs(beyond * np.eye(2))
    assert WeightVariances(key=size).key == size
    with pytest.raises(InputError, match=r"key variance: found .* of at least 1e-15 and of at most 1e\+15"):
        WeightVariances(key=beyond)


@pytest.mark.parametrize(
    ("function", "weights"),
    [
        ("softmax", [[1.0, 0.0], [math.e / (1 + math.e), 1 / (1 + math.e)]]),
        ("relu", [[0.0, 0.0], [0.5, 0.0]]),
        ("sigmoid", [[1 / (1 + math.e), 0.0], [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))]]),
        ("linear", [[-1.0, 0.0], [0.5, -0.5]]),
    ],
)
def test_every_function_of_the_scores(function, weights):
    scores = ScoreSettings(function, mask="causal")
    attention = scores.attention(np.array([[-1.0, 7.0], [0.5, -0.5]]), scores.allowed(2))
    assert attention == pytest.approx(np.array(weights), rel=1e-14)
