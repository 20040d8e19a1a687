"""Stacks of layers: a Markov chain on roots of Gram matrices, exact at every width.

| here  | means                                                                                |
|-------|--------------------------------------------------------------------------------------|
| L     | state: root (S x r) of the Gram matrix over n of s tokens and m fixed rows F          |
| F_k   | `sqrt(n) e_k`, so that coordinate k of token i is `sqrt(n) (L L^T)_{i, F_k}`          |
| R     | root of the block's output covariance: the block adds `R Z`, Z standard k x n         |
| P     | Z seen from the old tokens: `Z = P^T U / sqrt(n) + (rest)`, `[X; F] = L U`, `U U^T = n I` |

Blocks are attention and, with `mlp`, `W_2 psi(W_1 x)` with N(0, 1/n) entries and n hidden units. A
block only shows its R; then `Z Z^T = P^T P + W W^T` with `W = Bart(k, n - r)`, and the new tokens are
`[L_x + R P^T / sqrt(n), R W / sqrt(n)]` (L_x only with a residual). In the limit `L <- [L_x, R]`.
The cost does not depend on n, except for MLP blocks (O(s n)) and inputs that need it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value
from attnlaw.theory.limit.finite import check_token, chunks, score_variance, token_roots, unit_rows
from attnlaw.theory.limit.heads import attention_root, score_matrices
from attnlaw.theory.limit.inputs import LARGEST_SIZE, cosine_matrix, gram_of, mean_cosine
from attnlaw.theory.limit.kernels import ACTIVATIONS, apply, kernel_map
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.mixture import OutputLaw, mean_of
from attnlaw.theory.limit.wishart import (
    Array,
    Streams,
    bartlett,
    compress,
    root_of_rows,
    streams,
    symmetric_root,
)

# Activations of MLP blocks: those with a kernel in closed form.
MLPS = {name: entry for name, entry in ACTIVATIONS.items() if entry.kernel is not None}


@dataclass(frozen=True, eq=False)
class Depth:
    """`depth` copies of a layer with fresh weights; optional residual, MLP blocks and RMSNorm before blocks.

    With `mlp` (one of MLPS), each attention block is followed by an MLP block with the same residual.

    >>> from attnlaw.theory.limit import RandomInputs
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
        """The names of the blocks in order."""
        return ("attention",) * self.depth if self.mlp is None else ("attention", "mlp") * self.depth

    @property
    def is_layer(self) -> bool:
        """Whether this is the layer alone, whose law needs one token's own row of scores only."""
        return self.depth == 1 and self.mlp is None and not self.residual


@dataclass(frozen=True, eq=False)
class StackSample:
    """Draws of a stack: Gram matrices (draws, depth + 1, s, s), last scores and outputs (draws, s, m)."""

    grams: Array
    scores: Array
    outputs: Array


@dataclass(frozen=True)
class PathPoint:
    """The tokens after `depth` layers: Sigma_ii of the token read, and the mean cosine between tokens."""

    depth: int
    squared_length: Estimate
    cosine: Estimate | None


@dataclass(frozen=True, eq=False)
class StackLaw:
    """The law of one output coordinate, and per draw and depth 0..D two numbers of the Gram matrix.

    `squared_lengths` is Sigma_ii of the token, `cosines` the mean cosine between different tokens (1
    when all tokens have become parallel; None for a single token): each (draws, depth + 1).
    """

    law: OutputLaw
    squared_lengths: Array
    cosines: Array | None

    def path(self) -> tuple[PathPoint, ...]:
        """Means over the draws at each depth, with standard errors.

        >>> from attnlaw.theory.limit import RandomInputs
        >>> found = stack_law(Depth(AttentionLayer(RandomInputs(3)), 4), 100, seed=0)
        >>> [round(point.cosine.value) for point in found.path()]
        [0, 1, 1, 1, 1]
        """
        lengths = [mean_of(column) for column in self.squared_lengths.T]
        cosines = [None] * len(lengths) if self.cosines is None else [mean_of(c) for c in self.cosines.T]
        return tuple(PathPoint(i, *pair) for i, pair in enumerate(zip(lengths, cosines, strict=True)))


@dataclass
class _State:
    """One chunk of a run: the root, and at infinite width the coordinates in view beside it.

    `scores` are those of the last attention block, `read` the tokens that it read.
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
        """The m coordinates of every token, (draws, s, m)."""
        if not self.finite:
            return self.in_view
        fixed = self.root[:, self.stack.layer.tokens :]
        coordinates: Array = math.sqrt(self.stack.layer.width) * (self.tokens @ np.swapaxes(fixed, -1, -2))
        return coordinates

    def block_input(self) -> Array:
        """What the next block reads: the tokens, of length 1 if normalised."""
        return unit_rows(self.tokens) if self.stack.normalise else self.tokens

    def block(self, kind: str) -> Array:
        """R (draws, s, k) of the next block."""
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

    def advance(self, r: Array) -> None:
        """Add the block's output `R Z` to the tokens (or put it in their place)."""
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


def sample_stack(stack: Depth, draws: int, seed: int, coordinates: int = 1) -> StackSample:
    """Joint draws of a stack: Gram matrices over n at every depth, last scores, output coordinates.

    >>> from attnlaw.theory.limit import RandomInputs
    >>> drawn = sample_stack(Depth(AttentionLayer(RandomInputs(3), width=10**9), depth=2), 5, seed=0)
    >>> drawn.grams.shape, drawn.scores.shape, drawn.outputs.shape
    ((5, 3, 3, 3), (5, 1, 3, 3), (5, 3, 1))
    """
    check_value("coordinates", coordinates, int, minimum=1, maximum=stack.layer.width)
    grams, scores, outputs = [], [], []
    for number, size in enumerate(chunks(draws, stack.layer.heads * stack.layer.tokens**2)):
        state = _State(stack, size, streams(seed, number), coordinates)
        path = [gram_of(state.tokens)]
        for i, kind in enumerate(stack.blocks):
            state.advance(state.block(kind))
            if (i + 1) % (len(stack.blocks) // stack.depth) == 0:
                path.append(gram_of(state.tokens))
        grams.append(np.stack(path, axis=1))
        scores.append(state.scores)
        outputs.append(state.coordinates())
    return StackSample(np.concatenate(grams), np.concatenate(scores), np.concatenate(outputs))


def stack_law(stack: Depth, draws: int, seed: int, token: int = 0) -> StackLaw:
    """The law of one output coordinate of one token after the last block, and the path of its tokens.

    Given everything before the last block's output weights, the coordinate is N(mu, (R R^T)_ii) with mu
    its value before that block (zero without a residual).

    >>> from attnlaw.theory.limit import RandomInputs
    >>> found = stack_law(Depth(AttentionLayer(RandomInputs(3)), depth=2, residual=True), 100, seed=0)
    >>> found.law.variances.shape, found.squared_lengths.shape
    ((100,), (100, 3))
    """
    check_token(token, stack.layer.tokens)
    m = 1 if stack.residual else 0
    parts: list[tuple[Array, ...]] = []
    for number, size in enumerate(chunks(draws, stack.layer.heads * stack.layer.tokens**2)):
        state = _State(stack, size, streams(seed, number), m)
        path = [gram_of(state.tokens)]
        for i, kind in enumerate(stack.blocks):
            r = state.block(kind)
            before = state.coordinates()[:, token, 0] if m else np.zeros(size)
            state.advance(r)
            if (i + 1) % (len(stack.blocks) // stack.depth) == 0:
                path.append(gram_of(state.tokens))
        variances = np.einsum("dk,dk->d", r[:, token], r[:, token])
        grams = np.stack(path, axis=1)
        lengths, alike = grams[:, :, token, token], mean_cosine(cosine_matrix(grams))
        parts.append((variances, before, score_variance(stack.layer, state.read, token), lengths, alike))
    v, mu, scores, lengths, cosines = (np.concatenate(column) for column in zip(*parts, strict=True))
    law = OutputLaw(v, mu if m else None, scores)
    return StackLaw(law, lengths, cosines if stack.layer.tokens > 1 else None)
