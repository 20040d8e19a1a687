"""Exact draws of stacks of layers at every width, as a Markov chain on roots of Gram matrices.

| here  | means                                                                                |
|-------|--------------------------------------------------------------------------------------|
| n, s  | width, number of tokens                                                              |
| m     | coordinates of the tokens that the chain keeps                                       |
| X, F  | the tokens (s x n), and m fixed rows F_k = `sqrt(n) e_k`                              |
| L     | state: root of the Gram matrix over n of the tokens and the fixed rows, (s + m) x r   |
| L_x   | the rows of L that belong to the tokens                                               |
| R     | root (s x k) of a block's output covariance: the block adds `R Z`                     |
| Z     | standard normal, k x n                                                                |
| P     | standard normal, r x k: the part of Z along the old tokens                            |

Coordinate k of token i is `sqrt(n) (L L^T)_{i, F_k}`. Blocks are attention and, with `mlp`, `W_2 psi(W_1 x)`
with N(0, 1/n) entries and n hidden units.

Only the root R of a block matters. Write `[X; F] = L U` with `U U^T = n I`. Then
`Z = P^T U / sqrt(n) + (rest)` and `Z Z^T = P^T P + W W^T` with `W = Bart(k, n - r)` (see `wishart`). The new
tokens are `[L_x + R P^T / sqrt(n), R W / sqrt(n)]`, where L_x is only added with a residual. In the limit of
infinite width, `L <- [L_x, R]`. The cost does not depend on n, except for MLP blocks (O(s n)) and for inputs
that are not Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnlaw.core.settings import check_value
from attnlaw.theory.limit.heads import attention_root, score_matrices
from attnlaw.theory.limit.inputs import LARGEST_SIZE, cosine_matrix, gram_of, mean_cosine
from attnlaw.theory.limit.kernels import ACTIVATIONS, apply, kernel_map
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.mixture import OutputLaw
from attnlaw.theory.limit.sampler import check_token, chunks, score_variance, token_roots, unit_rows
from attnlaw.theory.limit.wishart import (
    Array,
    Streams,
    bartlett,
    compress,
    root_of_rows,
    streams,
    symmetric_root,
)

# MLP blocks need a kernel in closed form.
MLPS = {name: entry for name, entry in ACTIVATIONS.items() if entry.kernel is not None}


@dataclass(frozen=True, eq=False)
class Depth:
    """A stack of `depth` layers with equal settings and independent random weights.

    Args:
        mlp: the activation of an MLP block after each attention block, a name from `MLPS`. None means no MLP
            blocks.
        normalise: whether each block first divides the tokens by their root mean square (RMSNorm).

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> Depth(AttentionLayer(RandomInputs(3)), depth=2, residual=True).blocks
    ('attention', 'attention')
    """

    layer: AttentionLayer
    depth: int = 1
    residual: bool = False
    mlp: str | None = None
    normalise: bool = False

    def __post_init__(self) -> None:
        check_value("depth", self.depth, int, minimum=1, maximum=LARGEST_SIZE)
        if self.mlp is not None:
            check_value("mlp", self.mlp, str, choices=MLPS)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks, in order."""
        return ("attention",) * self.depth if self.mlp is None else ("attention", "mlp") * self.depth

    @property
    def is_layer(self) -> bool:
        """Whether the stack is a single attention layer, without an MLP or a residual connection."""
        return self.depth == 1 and self.mlp is None and not self.residual


@dataclass(frozen=True, eq=False)
class StackLaw:
    """The distribution of one output coordinate of a stack, and the tokens' lengths and cosines by layer."""

    law: OutputLaw
    squared_lengths: Array  # Sigma_ii of the token to read, (draws, depth + 1)
    cosines: Array | None  # mean cosine of different tokens, (draws, depth + 1); None for one token


@dataclass
class _State:
    """One chunk of draws on its way through the blocks.

    At finite width, `root` also contains the m kept coordinates. At infinite width, `in_view` contains them.
    `scores` are the scores of the last attention block, and `read` is the root of the tokens that it read.
    `r` is the root R of the last block, and `before` are the coordinates before that block.
    """

    stack: Depth
    draws: int
    draw: Streams
    m: int

    def __post_init__(self) -> None:
        layer, s = self.stack.layer, self.stack.layer.tokens
        self.finite = layer.width != math.inf
        tokens = token_roots(layer, self.draws, self.draw, self.m)
        tokens = np.broadcast_to(tokens, (self.draws, *tokens.shape[1:]))
        self.scores = np.empty((self.draws, layer.heads, s, s))
        if self.finite:
            fixed = np.zeros((self.draws, self.m, tokens.shape[-1]))
            fixed[:, range(self.m), range(self.m)] = 1.0
            self.root = compress(np.concatenate([tokens, fixed], axis=1))
        else:
            self.root = compress(tokens)
            self.in_view = layer.inputs.limit_coordinates(self.draws, self.m, self.draw)

    @property
    def tokens(self) -> Array:
        return self.root[:, : self.stack.layer.tokens]

    def coordinates(self) -> Array:
        """Return the m coordinates of every token that are kept, an array of shape (draws, s, m)."""
        if not self.finite:
            return self.in_view
        fixed = self.root[:, self.stack.layer.tokens :]
        return np.asarray(math.sqrt(self.stack.layer.width) * (self.tokens @ np.swapaxes(fixed, -1, -2)))

    def block_input(self) -> Array:
        return unit_rows(self.tokens) if self.stack.normalise else self.tokens

    def block(self, kind: str) -> Array:
        """Return the root R of the covariance of the next block's output, of shape (draws, s, k)."""
        return {"attention": self._attention, "mlp": self._mlp}[kind]()

    def _attention(self) -> Array:
        layer, self.read = self.stack.layer, self.block_input()
        self.scores = score_matrices(layer, self.read, self.draws, self.draw)
        return compress(attention_root(layer, self.read, self.scores, self.draw))

    def _mlp(self) -> Array:
        assert self.stack.mlp is not None
        seen = self.block_input()
        if not self.finite:
            return symmetric_root(kernel_map(self.stack.mlp, seen @ np.swapaxes(seen, -1, -2)))
        n = int(self.stack.layer.width)
        hidden = seen @ self.draw.inputs.standard_normal((self.draws, seen.shape[-1], n))
        return root_of_rows(apply(self.stack.mlp, hidden)) / math.sqrt(n)

    def pass_blocks(self) -> Array:
        """Pass the tokens through all blocks. Return their Gram matrices, (draws, depth + 1, s, s)."""
        path = [gram_of(self.tokens)]
        for i, kind in enumerate(self.stack.blocks, 1):
            self.r, self.before = self.block(kind), self.coordinates()
            self.advance(self.r)
            if i % (len(self.stack.blocks) // self.stack.depth) == 0:
                path.append(gram_of(self.tokens))
        return np.stack(path, axis=1)

    def advance(self, r: Array) -> None:
        """Add the output `R Z` of a block to the tokens, or replace them if there is no residual."""
        k, old = r.shape[-1], self.tokens
        if not self.finite:
            noise = r @ self.draw.normals.standard_normal((self.draws, k, self.m))
            self.in_view = self.in_view + noise if self.stack.residual else noise
            self.root = compress(np.concatenate([old, r], axis=-1) if self.stack.residual else r)
            return
        n, rank = int(self.stack.layer.width), self.root.shape[-1]
        p = self.draw.normals.standard_normal((self.draws, k, rank))
        along = r @ p / math.sqrt(n)
        across = r @ bartlett(k, n - rank, (self.draws,), self.draw.widths) / math.sqrt(n)
        fixed = self.root[:, self.stack.layer.tokens :]
        fixed = np.concatenate([fixed, np.zeros((self.draws, self.m, across.shape[-1]))], axis=-1)
        tokens = np.concatenate([old + along if self.stack.residual else along, across], axis=-1)
        self.root = compress(np.concatenate([tokens, fixed], axis=1))


def stack_law(stack: Depth, draws: int, seed: int, token: int = 0) -> StackLaw:
    """Compute the distribution of one output coordinate of a stack.

    Given all except the last block's output weights, the coordinate has the normal distribution
    N(mu, (R R^T)_ii). Here mu is its value before that block, or zero without a residual connection.
    """
    check_token(token, stack.layer.tokens)
    m = 1 if stack.residual else 0
    parts: list[tuple[Array, ...]] = []
    for number, size in enumerate(chunks(draws, stack.layer.heads * stack.layer.tokens**2)):
        state = _State(stack, size, streams(seed, number), m)
        grams = state.pass_blocks()
        variances = np.einsum("dk,dk->d", state.r[:, token], state.r[:, token])
        before = state.before[:, token, 0] if m else np.zeros(size)
        lengths, alike = grams[:, :, token, token], mean_cosine(cosine_matrix(grams))
        parts.append((variances, before, score_variance(stack.layer, state.read, token), lengths, alike))
    v, mu, scores, lengths, cosines = (np.concatenate(column) for column in zip(*parts, strict=True))
    law = OutputLaw(v, mu if m else None, scores)
    return StackLaw(law, lengths, cosines if stack.layer.tokens > 1 else None)
