"""Hidden units of an MLP: the Gram matrix of psi(g T Z) over its F units, exactly or by matched units.

| here  | means                                                                                   |
|-------|-----------------------------------------------------------------------------------------|
| T     | (draws, s, m): root of the Gram matrix of what the block reads                          |
| y     | hidden units, `psi(g T Z)`, gated `psi(g T Z) o (g T Z')`; Z standard m x F             |
| K     | E y y^T of one unit                                                                     |
| e     | sqrt(units / F)                                                                         |

Matched units take `F ((1 - e) K + e y_m y_m^T / m)` with m drawn units for `y y^T`: mean and covariance are
exact, higher cumulants are not, and the cost does not depend on F. An approximation, off unless asked for.

Units are drawn in single precision, a few draws at a time: 1 - cos of tokens levels off near 1e-7 with them,
as it does in networks of that precision.
"""

from __future__ import annotations

import math

import numpy as np

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.limit.grams import gram_of
from attnlaw.theory.limit.kernels import apply, kernel_map
from attnlaw.theory.limit.wishart import Array

_CHUNK = 2**18  # hidden units of all tokens that are drawn together


def hidden_gram(model: Architecture, t: Array, units: int, rng: np.random.Generator) -> Array:
    """y y^T over the F units of an MLP, (draws, s, s); with `units`, of so many matched ones."""
    count = units if 0 < units < model.hidden else model.hidden
    grams = np.empty((len(t), t.shape[1], t.shape[1]))
    size = max(1, _CHUNK // (t.shape[1] * count))
    for start in range(0, len(t), size):
        y = _units(model, t[start : start + size], count, rng)
        grams[start : start + size] = gram_of(y)
    if count == model.hidden:
        return grams
    e = math.sqrt(count / model.hidden)
    gram: Array = model.hidden * ((1 - e) * unit_kernel(model, gram_of(t)) + e * grams / count)
    return gram


def unit_kernel(model: Architecture, gram: Array) -> Array:
    """K of one hidden unit for normalised tokens of a Gram matrix (over N)."""
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
    """The same of experts, weighted by the router: sum_e (w_e w_e^T) o (y_e y_e^T)."""
    weights = router_weights(model, t, rng)
    total = np.zeros((len(t), t.shape[1], t.shape[1]))
    for e in range(model.experts):
        w = weights[..., e]
        total += w[..., :, None] * w[..., None, :] * hidden_gram(model, t, units, rng)
    return total


def router_weights(model: Architecture, t: Array, rng: np.random.Generator) -> Array:
    """Weights of all experts (draws, s, experts): a softmax over the best of each token, zero elsewhere."""
    gain = math.sqrt(model.width) * model.deviations.inner
    logits = gain * t @ rng.standard_normal((len(t), t.shape[-1], model.experts))
    least = np.sort(logits, axis=-1)[..., -model.experts_per_token, None]
    weights = np.where(logits >= least, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
