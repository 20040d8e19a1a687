"""The parts of one forward pass as affine maps of hidden states.

A block takes X (s x D, one row for each token) to `linear(X) + offset`. Attention probabilities, scales of
norms and slopes of activations depend on the input. They are frozen at the values of one measured pass. So
the map gives exactly what the network gives at the measured X (TensorLens, arXiv 2601.17958). T is the matrix
of `linear` on stacked hidden states.

| symbol | here | shape |
|---|---|---|
| A_h | `FrozenAttention.probabilities` | H x s x s |
| W_V, b_V of all heads side by side | `FrozenAttention.value, value_bias` | D x H d, H d |
| W_O, b_O | `FrozenAttention.output, output_bias` | H d x D, D |
| g, b, 1/sigma_i | `FrozenNorm.gain, shift, scales` | D, D, s |
| W_in, b_in, W_out, b_out | `FrozenFeedForward.inner, inner_bias, outer, outer_bias` | D x F, F, F x D, D |
| diag D_i | `FrozenFeedForward.slopes` | s x F |

Matrices act on row vectors. `linear` and `transpose` accept any leading axes: (..., s, D) to (..., s, D).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from attnlaw.core.arrays import Reals


class FrozenBlock(Protocol):
    """An affine map of hidden states, `linear(X) + offset`."""

    def linear(self, x: Reals) -> Reals:
        """Apply the linear part to hidden states of shape (..., s, D)."""

    def transpose(self, y: Reals) -> Reals:
        """Apply the adjoint of the linear part."""

    @property
    def offset(self) -> Reals:
        """The constant part, s x D."""


@dataclass(frozen=True, eq=False)
class FrozenAttention:
    """X -> sum_h A_h (X W_V + b_V)_h W_O,h + b_O, so T = sum_h (W_V W_O)_h^T kron A_h."""

    probabilities: Reals
    value: Reals
    value_bias: Reals
    output: Reals
    output_bias: Reals

    def linear(self, x: Reals) -> Reals:
        return self._mix(x @ self.value, self.probabilities) @ self.output

    def transpose(self, y: Reals) -> Reals:
        return self._mix(y @ self.output.T, self.probabilities.swapaxes(-1, -2)) @ self.value.T

    @property
    def offset(self) -> Reals:
        tokens = self.probabilities.shape[-1]
        values = np.broadcast_to(self.value_bias, (tokens, self.value_bias.size))
        offset: Reals = self._mix(values, self.probabilities) @ self.output + self.output_bias
        return offset

    def _mix(self, values: Reals, weights: Reals) -> Reals:
        """Mix values (..., s, H d) over tokens. Each head uses its own s x s weights."""
        by_head = values.reshape(*values.shape[:-1], len(weights), -1).swapaxes(-2, -3)
        return (weights @ by_head).swapaxes(-2, -3).reshape(values.shape)


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A norm: x_i -> g * (x_i - mean x_i) / sigma_i + b. RMSNorm does not subtract the mean.

    T = (diag(g) (I - 11^T/D)) kron diag(1/sigma_i), with the measured sigma_i, which include epsilon.
    """

    gain: Reals
    shift: Reals
    scales: Reals
    centred: bool

    def linear(self, x: Reals) -> Reals:
        return self._centre(x) * self.scales[:, None] * self.gain

    def transpose(self, y: Reals) -> Reals:
        return self._centre(y * self.gain) * self.scales[:, None]

    @property
    def offset(self) -> Reals:
        return np.broadcast_to(self.shift, (self.scales.size, self.shift.size))

    def _centre(self, x: Reals) -> Reals:
        centred: Reals = x - x.mean(axis=-1, keepdims=True) if self.centred else x
        return centred


@dataclass(frozen=True, eq=False)
class FrozenFeedForward:
    """A feed-forward block: x_i -> (D_i (x_i W_in + b_in)) W_out + b_out.

    The operator is T = sum_i (W_in D_i W_out)^T kron e_i e_i^T. The diagonal matrix D_i has the entries
    phi(z)/z at the measured z = x_i W_in + b_in. In a gated block, the entries of D_i are the measured gate.
    """

    inner: Reals
    inner_bias: Reals
    slopes: Reals
    outer: Reals
    outer_bias: Reals

    def linear(self, x: Reals) -> Reals:
        return ((x @ self.inner) * self.slopes) @ self.outer

    def transpose(self, y: Reals) -> Reals:
        return ((y @ self.outer.T) * self.slopes) @ self.inner.T

    @property
    def offset(self) -> Reals:
        return (self.inner_bias * self.slopes) @ self.outer + self.outer_bias


@dataclass(frozen=True, eq=False)
class BlockChain:
    """Blocks that run one after another: two have T = T_2 T_1 and c = T_2 c_1 + c_2."""

    blocks: tuple[FrozenBlock, ...]

    def linear(self, x: Reals) -> Reals:
        for block in self.blocks:
            x = block.linear(x)
        return x

    def transpose(self, y: Reals) -> Reals:
        for block in reversed(self.blocks):
            y = block.transpose(y)
        return y

    @property
    def offset(self) -> Reals:
        first, *rest = self.blocks
        offset = first.offset
        for block in rest:
            offset = block.linear(offset) + block.offset
        return offset


@dataclass(frozen=True, eq=False)
class Residual:
    """A branch with its output added to its input: T = I + T_branch."""

    branch: FrozenBlock

    def linear(self, x: Reals) -> Reals:
        return x + self.branch.linear(x)

    def transpose(self, y: Reals) -> Reals:
        return y + self.branch.transpose(y)

    @property
    def offset(self) -> Reals:
        return self.branch.offset


def attentions(block: FrozenBlock) -> Iterator[FrozenAttention]:
    """Yield every attention block inside a block, first to last."""
    if isinstance(block, FrozenAttention):
        yield block
    for inner in block.blocks if isinstance(block, BlockChain) else ():
        yield from attentions(inner)
    if isinstance(block, Residual):
        yield from attentions(block.branch)
