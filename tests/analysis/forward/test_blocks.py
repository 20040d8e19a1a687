"""Each block against its Kronecker product, its adjoint, and the composition of dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from attnlaw.analysis.forward.blocks import (
    BlockChain,
    FrozenAttention,
    FrozenFeedForward,
    FrozenNorm,
    Residual,
    attentions,
)

S, D, F, H = 3, 4, 5, 2
RNG = np.random.default_rng(0)


def attention() -> FrozenAttention:
    probabilities = softmax(RNG.standard_normal((H, S, S)), axis=-1)
    return FrozenAttention(probabilities, *(RNG.standard_normal(shape) for shape in ((D, 6), 6, (6, D), D)))


def norm(centred: bool) -> FrozenNorm:
    return FrozenNorm(RNG.standard_normal(D), RNG.standard_normal(D), RNG.uniform(0.5, 2, S), centred)


def feed_forward() -> FrozenFeedForward:
    return FrozenFeedForward(*(RNG.standard_normal(shape) for shape in ((D, F), F, (S, F), (F, D), D)))


BLOCKS = {
    "attention": attention(),
    "layer norm": norm(centred=True),
    "rms norm": norm(centred=False),
    "feed-forward": feed_forward(),
    "residual": Residual(BlockChain((norm(centred=True), attention()))),
    "chain": BlockChain(
        (Residual(attention()), norm(centred=True), Residual(feed_forward()), norm(centred=False))
    ),
}


def vec(matrix):
    return matrix.T.reshape(-1)


def dense(block) -> np.ndarray:
    """T by its columns, one unit vector at a time."""
    columns = []
    for position in range(S * D):
        unit = np.zeros(S * D)
        unit[position] = 1
        columns.append(vec(block.linear(unit.reshape(D, S).T)))
    return np.array(columns).T


def kron(block) -> np.ndarray:
    """T by the Kronecker products of the formulas, vec stacking columns."""
    if isinstance(block, FrozenAttention):
        size = block.value.shape[1] // H
        heads = [slice(h * size, (h + 1) * size) for h in range(H)]
        return sum(
            np.kron((block.value[:, head] @ block.output[head]).T, a)
            for head, a in zip(heads, block.probabilities, strict=True)
        )
    if isinstance(block, FrozenNorm):
        centre = np.eye(D) - np.ones((D, D)) / D if block.centred else np.eye(D)
        return np.kron(np.diag(block.gain) @ centre, np.diag(block.scales))
    if isinstance(block, FrozenFeedForward):
        return sum(
            np.kron((block.inner @ np.diag(block.slopes[i]) @ block.outer).T, np.diag(np.eye(S)[i]))
            for i in range(S)
        )
    if isinstance(block, Residual):
        return np.eye(S * D) + kron(block.branch)
    product = np.eye(S * D)
    for inner in block.blocks:
        product = kron(inner) @ product
    return product


@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_its_kronecker_product(name):
    expected = kron(BLOCKS[name])
    np.testing.assert_allclose(dense(BLOCKS[name]), expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("name", BLOCKS)
def test_transpose_is_the_adjoint(name):
    u, v = RNG.standard_normal((2, S, D))
    left, right = (u * BLOCKS[name].linear(v)).sum(), (BLOCKS[name].transpose(u) * v).sum()
    scale = np.linalg.norm(u) * np.linalg.norm(BLOCKS[name].linear(v))
    assert abs(left - right) < 1e-14 * S * D * scale


@pytest.mark.parametrize("name", BLOCKS)
def test_leading_axes_are_a_batch(name):
    x = RNG.standard_normal((2, 3, S, D))
    for apply in (BLOCKS[name].linear, BLOCKS[name].transpose):
        run_each_case = np.array([[apply(x[i, j]) for j in range(3)] for i in range(2)])
        np.testing.assert_allclose(apply(x), run_each_case, rtol=1e-12, atol=1e-12)


def test_offsets_are_what_the_blocks_add():
    """Each block written out with its biases, at a random input."""
    x = RNG.standard_normal((S, D))
    block = BLOCKS["attention"]
    values = (x @ block.value + block.value_bias).reshape(S, H, -1)
    mixed = np.stack([a @ values[:, h] for h, a in enumerate(block.probabilities)], axis=1).reshape(S, -1)
    expected = {"attention": mixed @ block.output + block.output_bias}
    block = BLOCKS["feed-forward"]
    hidden = (x @ block.inner + block.inner_bias) * block.slopes
    expected["feed-forward"] = hidden @ block.outer + block.outer_bias
    block = BLOCKS["layer norm"]
    centred = (x - x.mean(axis=1, keepdims=True)) * block.scales[:, None]
    expected["layer norm"] = centred * block.gain + block.shift
    for name, value in expected.items():
        output = BLOCKS[name].linear(x) + BLOCKS[name].offset
        np.testing.assert_allclose(output, value, rtol=1e-12, atol=1e-12)


def test_a_chain_applies_its_blocks_in_turn():
    x = RNG.standard_normal((S, D))
    chain = BLOCKS["chain"]
    state = x
    for block in chain.blocks:
        state = block.linear(state) + block.offset
    np.testing.assert_allclose(chain.linear(x) + chain.offset, state, rtol=1e-12, atol=1e-12)


def test_attentions_are_found_in_order():
    first, second = attention(), attention()
    nested = BlockChain((Residual(BlockChain((norm(True), first))), feed_forward(), Residual(second)))
    assert list(attentions(nested)) == [first, second]
