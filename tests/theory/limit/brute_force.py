"""The oracle: it draws every weight matrix and forms every product, directly from the definitions.

It shares nothing with the package except the records that describe a layer.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, expit
from theory.limit.layer_draws import Sample

from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer


def psi(name: str, x: np.ndarray) -> np.ndarray:
    """Apply an activation, written a second time."""
    if name == "relu":
        return x * (x > 0)
    if name == "gelu":
        return x * (1 + erf(x / math.sqrt(2))) / 2
    if name.startswith("clip:"):
        bound = float(name[5:])
        return np.minimum(np.maximum(x, -bound), bound)
    return x


def tokens(layer: AttentionLayer, draws: int, rng: np.random.Generator) -> np.ndarray:
    """X, (draws, s, n)."""
    n, inputs = int(layer.width), layer.inputs
    if isinstance(inputs, RandomInputs) and inputs.shared:
        h = rng.standard_normal((draws, n))
        w = rng.standard_normal((draws, inputs.tokens, n, n)) / math.sqrt(n)
        return psi(inputs.activation, np.einsum("dikl,dl->dik", w, h))
    if isinstance(inputs, RandomInputs):
        return psi(inputs.activation, rng.standard_normal((draws, inputs.tokens, n)))
    assert isinstance(inputs, GivenInputs)
    s = inputs.tokens
    values, vectors = np.linalg.eigh(inputs.gram)
    flat = np.zeros((s, n))
    flat[:, : min(s, n)] = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, : min(s, n)] * math.sqrt(n)
    rotation, upper = np.linalg.qr(rng.standard_normal((draws, n, n)))
    rotation *= np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    return flat @ rotation


def attention(
    layer: AttentionLayer, x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (draws, H, s, s) and the layer's output (draws, s, n) for tokens x."""
    draws, _, n = x.shape
    heads, inner = layer.heads, int(layer.inner_width)
    deviation = {k: math.sqrt(getattr(layer.variances, k)) for k in ("query", "key", "value", "output")}
    w_q, w_k, w_v = (
        rng.standard_normal((draws, heads, inner, n)) * (deviation[k] / math.sqrt(n))
        for k in ("query", "key", "value")
    )
    w_o = rng.standard_normal((draws, heads, n, inner)) * (deviation["output"] / math.sqrt(inner))
    queries, keys, values = (np.einsum("dhkl,dil->dhik", w, x) for w in (w_q, w_k, w_v))
    if layer.scores.frequencies:
        queries, keys = rotate(layer, queries), rotate(layer, keys)
    p = np.einsum("dhik,dhjk->dhij", queries, keys)
    p /= inner if layer.scores.scaling == "1/n" else math.sqrt(inner)
    weights = weigh(layer, p)
    y = np.einsum("dhij,dhjk,dhlk->dil", weights, values, w_o, optimize=True) / math.sqrt(heads)
    return p, y


def rotate(layer: AttentionLayer, z: np.ndarray) -> np.ndarray:
    """Turn plane f of each vector at position i by i theta_f (rotary positions)."""
    thetas = np.repeat(layer.scores.frequencies, z.shape[-1] // (2 * len(layer.scores.frequencies)))
    angles = np.arange(z.shape[-2])[:, None] * thetas
    even, odd = z[..., 0::2], z[..., 1::2]
    turned = np.empty_like(z)
    turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def weigh(layer: AttentionLayer, p: np.ndarray) -> np.ndarray:
    """Return attention weights, computed row by row."""
    s = p.shape[-1]
    weights = np.zeros_like(p)
    for i in range(s):
        for j in range(s):
            if seen(layer, i, j):
                value = p[..., i, j]
                if layer.scores.function == "softmax":
                    weights[..., i, j] = np.exp(value)
                elif layer.scores.function == "sigmoid":
                    weights[..., i, j] = expit(value)
                elif layer.scores.function == "relu":
                    weights[..., i, j] = value * (value > 0)
                else:
                    weights[..., i, j] = value
        if layer.scores.function == "softmax":
            weights[..., i, :] /= weights[..., i, :].sum(axis=-1, keepdims=True)
    return weights


def seen(layer: AttentionLayer, i: int, j: int) -> bool:
    """Whether token i may look at token j."""
    mask = layer.scores.mask
    if not isinstance(mask, str):
        return bool(mask[i, j])
    if mask == "causal":
        return j <= i
    if mask.startswith("band:"):
        return abs(i - j) <= int(mask[5:])
    return True


def brute_force(stack: Depth, draws: int, seed: int, coordinates: int = 2) -> Sample:
    """Draw the last scores and the first output coordinates of a stack of layers."""
    rng = np.random.default_rng(seed)
    layer, n = stack.layer, int(stack.layer.width)
    x = tokens(layer, draws, rng)
    for _ in range(stack.depth):
        p, y = attention(layer, normed(stack, x), rng)
        x = x + y if stack.residual else y
        if stack.mlp is not None:
            w_1, w_2 = (rng.standard_normal((draws, n, n)) / math.sqrt(n) for _ in range(2))
            hidden = psi(stack.mlp, np.einsum("dkl,dil->dik", w_1, normed(stack, x)))
            z = np.einsum("dkl,dil->dik", w_2, hidden)
            x = x + z if stack.residual else z
    return Sample(p, x[..., :coordinates])


def normed(stack: Depth, x: np.ndarray) -> np.ndarray:
    """RMSNorm, if the stack has it."""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True)) if stack.normalise else x
