"""The same Transformers with every weight drawn: all numbers of tokens, in NumPy, many draws at once.

Written from the definitions of the layers, not from the chain: tokens are (draws, s, N).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erf, expit, log_softmax
from scipy.special import softmax as normalised

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.tokens import Tokens

PSI: dict[str, Any] = {
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * expit(x),
}


class Network:
    """D networks of one architecture and what they make of the same tokens."""

    def __init__(self, model: Architecture, tokens: Tokens, draws: int, seed: int) -> None:
        self.model, self.tokens, self.draws = model, tokens, draws
        self.rng = np.random.default_rng(seed)
        self.grams: list[Any] = []
        self.weights: list[Any] = []
        self.run()

    def matrix(self, rows: int, columns: int, std: float) -> Any:
        return std * self.rng.standard_normal((self.draws, rows, columns))

    def norm(self, x: Any) -> Any:
        if self.model.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.model.epsilon)

    def run(self) -> None:
        model, std, ids = self.model, self.model.deviations, list(self.tokens.ids)
        s, n = len(ids), model.width
        embedding = self.matrix(model.vocabulary, n, std.embedding)
        if model.padding is not None:
            embedding[:, model.padding] = 0
        x = model.embedding_scale * embedding[:, ids]
        if model.positions:
            x = x + self.matrix(s, n, std.position)
        if model.segments:
            x = x + self.matrix(2, n, std.position)[:, list(self.tokens.segments or [0] * s)]
        if model.first_norm:
            x = self.norm(x)
        self.grams.append(x @ x.swapaxes(1, 2) / n)
        for layer in range(model.depth):
            x = self.layer(x, layer)
            self.grams.append(x @ x.swapaxes(1, 2) / n)
        h = self.norm(x) if model.last_norm else x
        if model.head == "masked":
            h = self.norm(PSI[model.activation](h @ self.matrix(n, n, std.head)))
        head = embedding.swapaxes(1, 2) if model.tied else self.matrix(n, model.vocabulary, std.head)
        z = h @ head * model.logit_scale
        self.logits = z if model.logit_cap is None else model.logit_cap * np.tanh(z / model.logit_cap)
        places, targets = self.tokens.targets(model.causal)
        self.loss = -log_softmax(self.logits, axis=-1)[:, places, targets].mean(axis=-1)

    def layer(self, x: Any, layer: int) -> Any:
        order, scale = self.model.norms, self.model.residual_scale
        read = self.norm(x) if order.before else x
        out = self.attention(read, layer)
        if order.parallel:
            return x + out + self.mlp(read)
        x = x + scale * (self.norm(out) if order.output else out)
        x = self.norm(x) if order.after else x
        out = self.mlp(self.norm(x) if order.before else x)
        x = x + scale * (self.norm(out) if order.output else out)
        return self.norm(x) if order.after else x

    def attention(self, h: Any, layer: int) -> Any:
        model, std, n, d = self.model, self.model.deviations, self.model.width, self.model.head_width
        groups = model.heads // model.key_value_heads
        heads, weights = [], []
        for _group in range(model.key_value_heads):
            k = self.turned(h @ self.matrix(n, d, std.key))
            v = h @ self.matrix(n, d, std.value)
            for _ in range(groups):
                q = self.turned(h @ self.matrix(n, d, std.query))
                p = model.score_scales[layer] * q @ k.swapaxes(1, 2)
                p = p if model.score_cap is None else model.score_cap * np.tanh(p / model.score_cap)
                a = normalised(np.where(self.tokens.allowed(model.causal), p, -1e30), axis=-1)
                weights.append(a)
                heads.append(a @ v)
        self.weights.append(np.stack(weights, axis=1))
        return np.concatenate(heads, axis=-1) @ self.matrix(d * model.heads, n, std.residual)

    def turned(self, q: Any) -> Any:
        if self.model.query_key_norm:
            q = q / np.sqrt((q**2).mean(axis=-1, keepdims=True) + self.model.epsilon)
        f = len(self.model.frequencies)
        q = q.copy()
        for plane, theta in enumerate(self.model.frequencies):  # neighbours: the same law as halves
            a, b = q[..., 2 * plane].copy(), q[..., 2 * plane + 1].copy()
            angle = theta * np.arange(q.shape[1])
            q[..., 2 * plane] = a * np.cos(angle) - b * np.sin(angle)
            q[..., 2 * plane + 1] = a * np.sin(angle) + b * np.cos(angle)
        assert 2 * f <= q.shape[-1]
        return q

    def mlp(self, h: Any) -> Any:
        model = self.model
        if not model.experts:
            return self.one_mlp(h)
        logits = h @ self.matrix(model.width, model.experts, model.deviations.inner)
        chosen = np.argsort(logits, axis=-1)[..., -model.experts_per_token :]
        shares = normalised(np.take_along_axis(logits, chosen, axis=-1), axis=-1)
        total = 0.0
        for e in range(model.experts):
            total = total + (shares * (chosen == e)).sum(axis=-1, keepdims=True) * self.one_mlp(h)
        return total

    def one_mlp(self, h: Any) -> Any:
        model, std, n = self.model, self.model.deviations, self.model.width
        y = PSI[model.activation](h @ self.matrix(n, model.hidden, std.inner))
        if model.gated:
            y = y * (h @ self.matrix(n, model.hidden, std.inner))
        return y @ self.matrix(model.hidden, n, std.residual)
