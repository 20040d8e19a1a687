"""The memory that a law needs: predicted and traced, and an error before too much is allocated."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.depth import Depth, stack_law
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.limit import compare_widths, peak_bytes
from attnlaw.theory.limit.sampler import output_law

ROOT = np.random.default_rng(0).standard_normal((200, 300)) / 17


def traced_peak(stack: Depth, draws: int) -> int:
    tracemalloc.start()
    try:
        if stack.is_layer:
            output_law(stack.layer, draws, seed=0, normalise=stack.normalise)
        else:
            stack_law(stack, draws, seed=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "draws"),
    [
        (Depth(AttentionLayer(RandomInputs(500), heads=2)), 40),
        (Depth(AttentionLayer(RandomInputs(300), width=1000)), 40),
        (Depth(AttentionLayer(RandomInputs(300), width=50), normalise=True), 400),
        (Depth(AttentionLayer(RandomInputs(4, "relu"), width=10**6)), 4),
        (Depth(AttentionLayer(RandomInputs(4), heads=10**5)), 40),
        (Depth(AttentionLayer(RandomInputs(100), heads=8), depth=2), 4),
        (Depth(AttentionLayer(RandomInputs(100), heads=8, width=1000), depth=2, residual=True), 4),
        (Depth(AttentionLayer(RandomInputs(100)), depth=20, residual=True), 4),
        (Depth(AttentionLayer(GivenInputs(ROOT @ ROOT.T), width=500), residual=True), 4),
        (Depth(AttentionLayer(RandomInputs(20), width=10**4), mlp="relu"), 80),
    ],
)
def test_the_peak_is_told_beforehand(stack, draws):
    traced, predicted_peak = traced_peak(stack, draws), peak_bytes(stack, draws)
    assert traced < predicted_peak < 3 * traced


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomInputs(20_000),
            "tokens: found 20000, expected at most 8757: .* more than 4 GiB of memory",
        ),
        (lambda: RandomInputs(10**12), "more than 4 GiB"),
        (
            lambda: law(AttentionLayer(RandomInputs(4, "relu"), width=10**9)),
            "4 tokens with .*width 1000000000 .* 120 GiB of memory, more than 4:",
        ),
        (
            lambda: law(AttentionLayer(RandomInputs(2000), heads=64), depth=2),
            "2000 tokens with 64 heads, 2 layers and infinite width",
        ),
        (lambda: law(AttentionLayer(RandomInputs(6000, "relu"), width=10**5)), "choose fewer tokens"),
    ],
)
def test_more_than_the_memory_is_refused_before_it_is_taken(make, message):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            make()
        # The mask, one byte a pair of tokens, is there before.
        assert tracemalloc.get_traced_memory()[1] < 1.2 * 6000**2
    finally:
        tracemalloc.stop()


def law(layer: AttentionLayer, depth: int = 1) -> object:
    return compare_widths(Depth(layer, depth), (layer.width, math.inf), 50_000, seed=0)
