"""Stacks: reference figures, the limit against enormous widths, rank collapse."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp
from theory.limit.layer_draws import sample_stack

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.depth import Depth, stack_law
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.sampler import output_law
from attnlaw.theory.limit.wishart import bartlett, compress

DEEP = Depth(AttentionLayer(RandomInputs(3, shared=False)), depth=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("residual", "mean", "deviations"),
    [
        (False, 0.388, {128: 0.127, 256: 0.0965, math.inf: 0.0514}),
        (True, 2.437, {128: 0.534, 256: 0.417, math.inf: 0.251}),
    ],
)
def test_two_layers(residual, mean, deviations):
    for width, deviation in deviations.items():
        stack = replace(DEEP, layer=DEEP.layer.at_width(width), residual=residual)
        gram = stack_law(stack, 60_000, seed=1).squared_lengths[:, -1]
        error = gram.std() / math.sqrt(len(gram))
        assert gram.mean() == pytest.approx(mean, abs=4 * error + 1e-3)
        centred = (gram - gram.mean()) ** 2
        spread = centred.std() / math.sqrt(len(gram)) / (2 * gram.std())
        assert gram.std() == pytest.approx(deviation, abs=4 * spread + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stack",
    [
        Depth(AttentionLayer(RandomInputs(3, "relu"), heads=2, width=1000), 2, residual=True),
        Depth(AttentionLayer(RandomInputs(3), heads=2, width=10**9), 3),
        Depth(AttentionLayer(GivenInputs(np.diag([1.0, 2.0, 0.5])), width=1000), 2, True, "relu", True),
        Depth(AttentionLayer(RandomInputs(3), width=1000), 2, mlp="gelu"),
        Depth(AttentionLayer(RandomInputs(3), heads=2, width=10**9, head_width=2), 2, residual=True),
    ],
)
def test_the_limit_is_the_law_at_an_enormous_width(stack):
    # At n = 1000 laws differ from the limit by about 1/n, far below what 4000 draws resolve (0.03).
    limit = replace(stack, layer=replace(stack.layer, width=math.inf))
    wide = sample_stack(stack, 4000, seed=2, coordinates=2)
    two = sample_stack(limit, 4000, seed=3, coordinates=2)
    pairs = [
        (wide.outputs[:, 0, 0], two.outputs[:, 0, 0]),
        (wide.outputs[:, 0, 0] * wide.outputs[:, 1, 0], two.outputs[:, 0, 0] * two.outputs[:, 1, 0]),
        (wide.outputs[:, 2, 0] * wide.outputs[:, 2, 1], two.outputs[:, 2, 0] * two.outputs[:, 2, 1]),
        (wide.scores[:, 0, 0, 1], two.scores[:, 0, 0, 1]),
    ]
    assert min(ks_2samp(a, b).pvalue for a, b in pairs) > 1e-3 / (5 * len(pairs))


def test_mlp_of_infinite_width_is_the_kernel_map():
    stack = Depth(AttentionLayer(GivenInputs(np.eye(2)), heads=1), 1, mlp="relu")
    grams = sample_stack(stack, 50, seed=4).grams
    # relu halves squared lengths: E relu(u)^2 = Var u / 2, before which attention gives A A^T.
    plain = sample_stack(replace(stack, mlp=None), 50, seed=4).grams
    np.testing.assert_allclose(grams[:, 1, 0, 0], plain[:, 1, 0, 0] / 2, rtol=1e-12)
    linear = sample_stack(replace(stack, mlp="identity"), 50, seed=4).grams
    np.testing.assert_allclose(linear, plain, rtol=1e-6, atol=1e-9)


def test_one_layer_is_the_layer():
    layer = AttentionLayer(RandomInputs(4), heads=2, width=8)
    law, two = stack_law(Depth(layer), 20_000, seed=5).law, output_law(layer, 20_000, seed=6)
    assert ks_2samp(law.variances, two.variances).pvalue > 1e-3


def test_the_mixture_agrees_with_the_draws():
    stack = Depth(AttentionLayer(RandomInputs(3, "relu"), heads=2, width=5), 2, residual=True)
    law = stack_law(stack, 20_000, seed=7, token=1).law
    drawn = sample_stack(stack, 20_000, seed=8).outputs[:, 1, 0]
    centred = (drawn - drawn.mean()) ** 2
    error = math.hypot(centred.std() / math.sqrt(len(drawn)), law.variance().error)
    assert law.variance().value == pytest.approx(drawn.var(), abs=4 * error)
    y = np.array([-1.0, 0.0, 0.5, 2.0])
    empirical = (drawn[:, None] <= y).mean(axis=0)
    error = np.sqrt(empirical * (1 - empirical) / len(drawn))
    assert (np.abs(law.distribution(y).mean(axis=0) - empirical) < 5 * error).all()


def test_rank_collapses_without_a_residual():
    layer = AttentionLayer(RandomInputs(4))
    plain = stack_law(Depth(layer, 8), 2000, seed=9)
    kept = stack_law(Depth(layer, 8, residual=True), 2000, seed=9)
    plain_mean, kept_mean = plain.cosines.mean(axis=0), kept.cosines.mean(axis=0)
    assert plain_mean[0] == pytest.approx(0, abs=1e-12)
    assert (np.diff(plain_mean) > -1e-12).all()
    assert plain_mean[-1] > 0.99
    assert (kept_mean[1:] < plain_mean[1:]).all()
    np.testing.assert_allclose(
        stack_law(Depth(layer, 2, normalise=True), 50, seed=1).law.score_variances, 1.0
    )


def test_grams_and_coordinates_belong_together():
    # With all n coordinates in view the Gram matrix is their mean product.
    stack = Depth(AttentionLayer(RandomInputs(3), heads=2, width=5, head_width=1), 3, residual=True)
    drawn = sample_stack(stack, 20, seed=10, coordinates=5)
    gram = drawn.outputs @ np.swapaxes(drawn.outputs, 1, 2) / 5
    np.testing.assert_allclose(gram, drawn.grams[:, -1], atol=1e-10)


def test_bartlett_is_wishart():
    # E W = df I; E (W_12)^2 = df; E W_11^2 = df (df + 2); for df below and above the dimension.
    for df in (1, 2, 5):
        factor = bartlett(3, df, (100_000,), np.random.default_rng(11))
        w = factor @ np.swapaxes(factor, 1, 2)
        for values, mean in (
            (w[:, 2, 2], df),
            (w[:, 2, 2] ** 2, df * (df + 2)),
            (w[:, 1, 2] ** 2, df),
            (w[:, 0, 2], 0),
            (w[:, 1, 1] * w[:, 2, 2], df * df),
        ):
            assert values.mean() == pytest.approx(mean, abs=4.5 * values.std() / math.sqrt(len(values)))


def test_compress_survives_rank_deficiency():
    wide = np.ones((4, 2, 7))
    narrow = compress(wide)
    assert narrow.shape == (4, 2, 2)
    np.testing.assert_allclose(narrow @ np.swapaxes(narrow, 1, 2), 7 * np.ones((4, 2, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth: found 0"),
        ({"depth": 2, "mlp": "tanh"}, "mlp: found 'tanh', expected one of identity, relu, gelu"),
    ],
)
def test_bad_stacks_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Depth(AttentionLayer(RandomInputs(2)), **options)


def test_one_token_has_lengths_and_no_cosines():
    path = stack_law(Depth(AttentionLayer(RandomInputs(1)), depth=2), 100, seed=0)
    assert path.cosines is None
    assert path.squared_lengths.shape == (100, 3)
    assert (path.squared_lengths > 0).all()
