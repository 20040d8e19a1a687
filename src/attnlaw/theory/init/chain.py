"""The layers of an untrained Transformer of finite width, on Gram matrices of its tokens alone.

The chain is exact in law and never draws a matrix of the model. All weights are rotation invariant, and
LayerNorm breaks this symmetry only along the all-ones vector 1. So it is enough to keep 1 as a row of the
state. At width N the tokens need r <= min(N, S) coordinates, where S is the number of rows of the state.

| here     | means                                                                                       |
|----------|---------------------------------------------------------------------------------------------|
| s, u     | tokens, and different ids among them                                                        |
| root     | (draws, S, r): `[X; fixed] = sqrt(N) root U`, U with orthonormal rows, uniform given root and 1 |
| fixed    | rows that do not change: the all-ones vector (LayerNorm), the u embeddings (a tied head)    |
| h        | normalised tokens in the same coordinates; T = its compressed root, (draws, s, m)           |
| R        | (draws, s, k): a block adds `R Z`, Z standard k x N                                         |
| Bart     | Bartlett's factor (`theory.limit.wishart`)                                                |

An MLP needs the Gram matrix y y^T of its F hidden units, which are drawn:

| here  | means                                                                                   |
|-------|-----------------------------------------------------------------------------------------|
| T     | (draws, s, m): root of the Gram matrix of what the block reads                          |
| y     | hidden units, `psi(g T Z)`, gated `psi(g T Z) o (g T Z')`; Z standard m x F             |
| K     | E y y^T of one unit                                                                     |
| e     | sqrt(units / F)                                                                         |

If the user asks for fewer `units`, `F ((1 - e) K + e y_m y_m^T / m)` with m drawn units replaces `y y^T`.
This is an approximation: mean and covariance are exact, higher cumulants are not. Its cost does not depend
on F.

Units are drawn in single precision, a few draws at a time. So 1 - cos of two tokens does not fall below
about 1e-7, as in networks of that precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.inputs import gram_of, side_by_side
from attnlaw.theory.limit.kernels import apply, kernel_map
from attnlaw.theory.limit.layer import softmax
from attnlaw.theory.limit.wishart import Array, bartlett, compress, symmetric_root

_CHUNK = 2**18  # hidden units, of all tokens, that are drawn at once


def hidden_gram(model: Architecture, t: Array, units: int, rng: np.random.Generator) -> Array:
    """Return the Gram matrix y y^T of the hidden units y of an MLP, of shape (draws, s, s)."""
    count = units if 0 < units < model.hidden else model.hidden
    grams = np.empty((len(t), t.shape[1], t.shape[1]))
    size = max(1, _CHUNK // (t.shape[1] * count))
    for start in range(0, len(t), size):
        y = _units(model, t[start : start + size], count, rng)
        grams[start : start + size] = gram_of(y)
    if count == model.hidden:
        return grams
    e = math.sqrt(count / model.hidden)
    return np.asarray(model.hidden * ((1 - e) * unit_kernel(model, gram_of(t)) + e * grams / count))


def unit_kernel(model: Architecture, gram: Array) -> Array:
    """Return the mean of y y^T for one hidden unit, given the Gram matrix of the normalised tokens over N."""
    inner = model.width * model.deviations.inner**2 * gram
    kernel = kernel_map(model.activation, inner)
    return kernel * inner if model.gated else kernel


def _units(model: Architecture, t: Array, count: int, rng: np.random.Generator) -> Array:
    gain = np.float32(math.sqrt(model.width) * model.deviations.inner)
    single = gain * t.astype(np.float32)
    shape = (len(t), t.shape[-1], count)
    y = apply(model.activation, single @ rng.standard_normal(shape, dtype=np.float32))
    if model.gated:
        y *= single @ rng.standard_normal(shape, dtype=np.float32)
    return y


def experts_gram(model: Architecture, t: Array, units: int, rng: np.random.Generator) -> Array:
    """Return the Gram matrix of the experts' output, from router weights w_e and hidden units y_e."""
    weights = router_weights(model, t, rng)
    total = np.zeros((len(t), t.shape[1], t.shape[1]))
    for e in range(model.experts):
        w = weights[..., e]
        total += w[..., :, None] * w[..., None, :] * hidden_gram(model, t, units, rng)
    return total


def router_weights(model: Architecture, t: Array, rng: np.random.Generator) -> Array:
    """Return the router's weights: a softmax over the best experts of each token, and 0 for all others."""
    gain = math.sqrt(model.width) * model.deviations.inner
    logits = gain * t @ rng.standard_normal((len(t), t.shape[-1], model.experts))
    least = np.sort(logits, axis=-1)[..., -model.experts_per_token, None]
    weights = np.where(logits >= least, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


class Chain:
    """Several random draws of a model at its width. `root` is a square root of the tokens' Gram matrix."""

    limit = False  # whether the width is infinite

    def __init__(
        self, model: Architecture, tokens: Tokens, draws: int, rng: np.random.Generator, units: int = 0
    ) -> None:
        self.model, self.tokens, self.draws, self.rng, self.units = model, tokens, draws, rng, units
        self.allowed = tokens.allowed(model.causal)
        self.root = self._initial_root()

    def _initial_root(self) -> Array:
        """Return the root of the fixed rows and of the first tokens (embedding, position and segment)."""
        model, std = self.model, self.model.deviations
        s, ids = len(self.tokens), self.tokens.distinct
        u = len(ids)
        places = s if model.positions else 0
        segments = self.tokens.segments or (0,) * s
        kinds = max(segments) + 1 if model.segments else 0
        k = u + places + kinds
        z = self._frames(k)
        embedded = std.embedding * z[:, :u]
        if model.padding in ids:
            embedded[:, ids.index(model.padding)] = 0.0
        token = model.embedding_scale * embedded[:, [ids.index(token) for token in self.tokens.ids]]
        if places:
            token += std.position * z[:, u : u + s]
        if kinds:
            token += std.position * z[:, [u + places + kind for kind in segments]]
        ones = np.zeros((self.draws, 1, z.shape[-1]))
        ones[..., 0] = 1.0
        fixed = [ones] if model.centred else []
        fixed += [embedded] if model.tied else []
        return compress(np.concatenate([token, *fixed], axis=1))

    def _frames(self, k: int) -> Array:
        """Return k normal rows over sqrt(N) in coordinates that span them, the first along all ones."""
        n = self.model.width
        if not self.model.centred:
            return bartlett(k, n, (self.draws,), self.rng) / math.sqrt(n)
        along = self.rng.standard_normal((self.draws, k, 1))
        across = bartlett(k, n - 1, (self.draws,), self.rng)
        return np.concatenate([along, across], axis=-1) / math.sqrt(n)

    @property
    def x(self) -> Array:
        """The tokens in the coordinates of the state, an array of shape (draws, s, r)."""
        return self.root[:, : len(self.tokens)]

    @property
    def embeddings(self) -> Array:
        """The embeddings of the different token ids in the coordinates of the state, for a tied head."""
        return self.root[:, self.root.shape[1] - len(self.tokens.distinct) :]

    @property
    def ones(self) -> Array:
        """The all-ones vector divided by sqrt(N), in the coordinates of the state. LayerNorm needs it."""
        return self.root[:, len(self.tokens), None]

    def norm(self, x: Array) -> Array:
        """Return x divided by its root mean square (with epsilon). LayerNorm first subtracts the mean."""
        if self.model.centred:
            wider = np.zeros((self.draws, 1, x.shape[-1] - self.ones.shape[-1]))
            ones = np.concatenate([self.ones, wider], -1)
            x = x - (x @ np.swapaxes(ones, -1, -2)) * ones
        return np.asarray(x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + self.model.epsilon))

    def attention(self, h: Array, layer: int) -> tuple[Array, Array, Array]:
        """Return scores and attention weights (draws, H, s, s), and the factor R of the output `R Z`."""
        model, std, t = self.model, self.model.deviations, compress(h)
        scale = model.score_scales[layer]
        p = capped(self.head_scores(t) * scale, model.score_cap)
        weights = softmax(p, self.allowed, -1)
        draws, m, d = self.draws, t.shape[-1], model.head_width
        values = t[:, None] @ bartlett(m, d, (draws, model.key_value_heads), self.rng)
        joined = side_by_side(weights @ self._repeat_for_heads(values))
        gain = math.sqrt(model.width) * std.value * std.residual
        return p, weights, gain * symmetric_root(gram_of(joined))

    def head_scores(self, t: Array) -> Array:
        """Return the unscaled products of queries and keys in heads of finite width, (draws, H, s, s)."""
        turned = self.model.frequencies or self.model.query_key_norm
        return self._rotary_scores(t) if turned else self._plain_scores(t)

    def _repeat_for_heads(self, shared: Array) -> Array:
        return np.repeat(shared, self.model.heads // self.model.key_value_heads, axis=1)

    def _plain_scores(self, t: Array) -> Array:
        """Return scores without rotary positions, `N std_Q std_K T N_a B_g^T T^T`."""
        model, draws, m = self.model, self.draws, t.shape[-1]
        keys = self._repeat_for_heads(bartlett(m, model.head_width, (draws, model.key_value_heads), self.rng))
        core = self.rng.standard_normal((draws, model.heads, m, keys.shape[-1])) @ np.swapaxes(keys, -1, -2)
        left = model.width * model.deviations.query * model.deviations.key * t[:, None]
        return np.asarray(left @ core @ np.swapaxes(t[:, None], -1, -2))

    def _rotary_scores(self, t: Array) -> Array:
        """Return scores for normalised or rotated queries and keys, by drawing all of their entries."""
        model, root_n = self.model, math.sqrt(self.model.width)
        q = self._rotary_rows(root_n * model.deviations.query, t, model.heads)
        k = self._repeat_for_heads(self._rotary_rows(root_n * model.deviations.key, t, model.key_value_heads))
        return np.asarray(q @ np.swapaxes(k, -1, -2))

    def _rotary_rows(self, gain: float, t: Array, heads: int) -> Array:
        d, planes = self.model.head_width, len(self.model.frequencies)
        rows = gain * t[:, None] @ self.rng.standard_normal((self.draws, heads, t.shape[-1], d))
        if self.model.query_key_norm:
            rows /= np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + self.model.epsilon)
        if planes:
            angles = np.arange(len(self.tokens))[:, None] * np.asarray(self.model.frequencies)
            cos, sin = np.cos(angles), np.sin(angles)
            first, second = rows[..., :planes].copy(), rows[..., planes : 2 * planes].copy()
            rows[..., :planes] = first * cos - second * sin
            rows[..., planes : 2 * planes] = second * cos + first * sin
        return rows

    def mlp(self, h: Array) -> Array:
        """Return the factor R of the output `R Z` of the MLP or the experts."""
        gram = experts_gram if self.model.experts else hidden_gram
        root = symmetric_root(gram(self.model, compress(h), self.units, self.rng))
        return root * self.model.deviations.residual

    def add(self, r: Array) -> None:
        """Add the output `R Z` of a block to the tokens."""
        n, k, rank = self.model.width, r.shape[-1], self.root.shape[-1]
        # Z is drawn only along the old tokens. Bartlett's factor replaces all other directions.
        along = r @ self.rng.standard_normal((self.draws, k, rank))
        across = r @ bartlett(k, n - rank, (self.draws,), self.rng)
        added = np.concatenate([along, across], axis=-1) / math.sqrt(n)
        if self.model.norms.output:
            added = self.norm(added)
        wide = np.zeros((self.draws, self.root.shape[1], added.shape[-1]))
        wide[..., :rank] = self.root
        wide[:, : len(self.tokens)] += self.model.residual_scale * added
        self.root = compress(wide)

    def replace(self, x: Array) -> None:
        """Replace the tokens by other tokens in the same coordinates."""
        self.root = np.concatenate([x, self.root[:, len(self.tokens) :]], axis=1)


def capped(values: Array, cap: float | None) -> Array:
    return values if cap is None else cap * np.tanh(values / cap)


@dataclass(frozen=True, eq=False)
class LayerState:
    """The tokens after a layer, and the scores and attention weights of its heads."""

    gram: Array  # gram matrix of the tokens over N, (draws, s, s)
    scores: Array | None = None  # (draws, H, s, s); None for the embeddings, before the first layer
    weights: Array | None = None  # softmax of the scores, with the same shape


def run_layers(state: Chain) -> Iterator[LayerState]:
    """Yield the state after the embeddings and after every layer."""
    if state.model.first_norm:
        state.replace(state.norm(state.x))
    yield LayerState(gram_of(state.x))
    for layer in range(state.model.depth):
        scores, weights = _layer(state, layer)
        yield LayerState(gram_of(state.x), scores, weights)


def _layer(state: Chain, layer: int) -> tuple[Array, Array]:
    norms = state.model.norms
    h = state.norm(state.x) if norms.before else state.x
    scores, weights, r = state.attention(h, layer)
    if norms.parallel:
        state.add(np.concatenate([r, state.mlp(h)], axis=-1))
        return scores, weights
    state.add(r)
    if norms.after:
        state.replace(state.norm(state.x))
    state.add(state.mlp(state.norm(state.x) if norms.before else state.x))
    if norms.after:
        state.replace(state.norm(state.x))
    return scores, weights
