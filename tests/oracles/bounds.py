"""The proxies of arXiv 2605.07297 by the slow road: matrices formed, dense SVDs, sums as they are written.

C(p) is plain float arithmetic where it does not overflow and mpmath where it does. Nothing here is shared
with the package. A network is a list of plain layers (dicts of dense matrices that act on row vectors) and
the order in which they are applied.
"""

from __future__ import annotations

import math

import numpy as np
from mpmath import mp, mpf

TOLERANCE = 1e-10


class Dense:
    """A formed matrix with its dense SVD."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=np.float64)
        self.values = np.linalg.svd(self.matrix, compute_uv=False)

    @property
    def counted(self):
        """Singular values above the rank tolerance; the rest is round-off."""
        limit = TOLERANCE * len(self.values) * max(self.values[0], 1.0)
        return self.values[self.values > limit]


# --- reading state dicts (names -> arrays); every nn.Linear.weight is stored (out, in) -------------------


def _heads(q, k, v, o, heads, kv_heads=None):
    """QK = W_Q[h].T @ W_K[g], VO = W_V[g].T @ (W_O.T)[h rows], formed, for every head."""
    q, k, v, o = (np.asarray(w, dtype=np.float64) for w in (q, k, v, o))
    d = q.shape[0] // heads
    group = heads // (kv_heads or heads)
    qk, vo = [], []
    for h in range(heads):
        g = h // group
        qk.append(Dense(q[h * d : (h + 1) * d].T @ k[g * d : (g + 1) * d]))
        vo.append(Dense(v[g * d : (g + 1) * d].T @ o.T[h * d : (h + 1) * d]))
    return {"qk": qk, "vo": vo}


def _linear(weight):
    return Dense(np.asarray(weight).T)


def bert(state, layers, heads, prefix="bert."):
    """Layers of a BERT state dict."""
    network = []
    for index in range(layers):
        at = f"{prefix}encoder.layer.{index}."
        qkv = [state[f"{at}attention.self.{part}.weight"] for part in ("query", "key", "value")]
        layer = _heads(*qkv, state[f"{at}attention.output.dense.weight"], heads)
        layer["in"] = _linear(state[f"{at}intermediate.dense.weight"])
        layer["out"] = _linear(state[f"{at}output.dense.weight"])
        network.append(layer)
    return network


def albert(state, heads, prefix="albert."):
    """The one shared layer of an ALBERT state dict."""
    at = f"{prefix}encoder.albert_layer_groups.0.albert_layers.0."
    qkvo = [state[f"{at}attention.{part}.weight"] for part in ("query", "key", "value", "dense")]
    layer = _heads(*qkvo, heads)
    layer["in"], layer["out"] = _linear(state[f"{at}ffn.weight"]), _linear(state[f"{at}ffn_output.weight"])
    return [layer]


def llama(state, layers, heads, kv_heads, prefix="model."):
    """Layers of a LLaMA state dict: grouped queries, gated feed-forward."""
    network = []
    for index in range(layers):
        at = f"{prefix}layers.{index}."
        qkvo = [state[f"{at}self_attn.{part}_proj.weight"] for part in "qkvo"]
        layer = _heads(*qkvo, heads, kv_heads)
        for name, part in (("in", "up"), ("gate", "gate"), ("out", "down")):
            layer[name] = _linear(state[f"{at}mlp.{part}_proj.weight"])
        network.append(layer)
    return network


def whisper(state, encoder_layers, decoder_layers, heads):
    """Encoder, then decoder layers of a Whisper state dict by OpenAI's names."""
    network = []
    for stack, depth in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for index in range(depth):
            at = f"{stack}.blocks.{index}."
            parts = ("query", "key", "value", "out")
            layer = _heads(*(state[f"{at}attn.{part}.weight"] for part in parts), heads)
            if stack == "decoder":
                cross = _heads(*(state[f"{at}cross_attn.{part}.weight"] for part in parts), heads)
                layer |= {f"cross_{kind}": matrices for kind, matrices in cross.items()}
            layer["in"], layer["out"] = (
                _linear(state[f"{at}mlp.0.weight"]),
                _linear(state[f"{at}mlp.2.weight"]),
            )
            network.append(layer)
    return network


# --- the formulas ----------------------------------------------------------------------------------------


def c2(dense):
    return mpf(float(dense.values[0]))


def attention_factor(layer, prefix=""):
    pairs = zip(layer[prefix + "qk"], layer[prefix + "vo"], strict=True)
    return sum((c2(vo) * (1 + 4 * c2(qk)) for qk, vo in pairs), mpf(0))


def feed_forward_norms(layer):
    """c2(M_in) c2(M_out), and with a gate 2 c2(G) c2(U) c2(M)."""
    if "in" not in layer:
        return mpf(1)
    plain = c2(layer["in"]) * c2(layer["out"])
    return 2 * c2(layer["gate"]) * plain if "gate" in layer else plain


def layer_factor(layer, lipschitz):
    factor = feed_forward_norms(layer) * attention_factor(layer)
    if "in" in layer:
        factor *= mpf(str(lipschitz))
    return factor * attention_factor(layer, "cross_") if "cross_qk" in layer else factor


def matrices_of(layer):
    """(kind, head, matrix, gamma) in the order of an audit."""
    ffn = feed_forward_norms(layer)
    cross = attention_factor(layer, "cross_") if "cross_qk" in layer else mpf(1)
    for prefix, after in (("", ffn * cross), ("cross_", ffn)):
        qks, vos = layer.get(prefix + "qk", []), layer.get(prefix + "vo", [])
        for head, (qk, vo) in enumerate(zip(qks, vos, strict=True)):
            yield prefix + "qk", head, qk, 2 * c2(vo) * after
        for head, vo in enumerate(vos):
            yield prefix + "vo", head, vo, after
    if "in" in layer:
        gate = c2(layer["gate"]) if "gate" in layer else mpf(1)
        yield "ffn_in", None, layer["in"], c2(layer["out"]) * gate
        if "gate" in layer:
            yield "ffn_gate", None, layer["gate"], c2(layer["out"]) * c2(layer["in"])
        yield "ffn_out", None, layer["out"], mpf(1)


def curve_of(values, scale, n, grid):
    """C(p) on the grid from the singular values that count."""
    if len(values) == 0:
        return [mpf(0)] * len(grid)
    schatten = [float(len(values)) if p == 0 else float(np.sum(values**p)) for p in grid]
    if scale < 1e290:
        number, base, size = float, float(scale), float(n)
    else:
        number, base, size = mpf, scale, mpf(n)
    return [
        mpf(
            number(total) ** (1 / (p + 2))
            * (base ** (number(p) / (p + 2)) if p > 0 else 1)
            * size ** ((p + 1) / number(p + 2))
        )
        for p, total in zip(grid, schatten, strict=True)
    ]


def evaluate(layers, applications, n, lipschitz, per_application=False):
    """All proxies as mpf numbers, with one row per matrix."""
    depth = len(applications)
    factors = [layer_factor(layer, lipschitz) for layer in layers]
    alpha = [mp.fprod(factors[k] for k in applications[step + 1 :]) for step in range(depth)]
    if per_application:
        placed = [(index, alpha[step]) for step, index in enumerate(applications)]
    else:
        placed = [
            (index, mp.fsum(alpha[step] for step in range(depth) if applications[step] == index))
            for index in range(len(layers))
        ]
    m = math.ceil(depth + math.log(n))
    grid = [i / m for i in range(2 * m + 1)]
    rows, norms_21, norms_11 = [], mpf(0), mpf(0)
    for index, amplification in placed:
        for kind, head, dense, gamma in matrices_of(layers[index]):
            scale = gamma * amplification * depth
            curve = curve_of(dense.counted, scale, n, grid)
            best = min(range(len(grid)), key=lambda i: curve[i])
            rows.append(
                {
                    "layer": index,
                    "kind": kind,
                    "head": head,
                    "gamma": gamma,
                    "alpha": amplification,
                    "scale": scale,
                    "curve": curve,
                    "p": grid[best],
                    "value": curve[best],
                }
            )
            weight = amplification * gamma / (2 if kind.endswith("qk") else 1)
            norm_21 = sum(math.sqrt(float(column @ column)) for column in dense.matrix.T)
            norms_21 += (weight * mpf(norm_21)) ** (mpf(2) / 3)
            norms_11 += (weight * mpf(float(np.abs(dense.matrix).sum()))) ** (mpf(2) / 3)
    total = mp.fsum(row["value"] for row in rows)
    common = [mp.fsum(row["curve"][i] for row in rows) for i in range(len(grid))]
    root = mp.sqrt(depth)
    return {
        "rows": rows,
        "alpha": alpha,
        "spectrum_adaptive": total + root,
        "edelman": (1 + norms_21) ** (mpf(3) / 2),
        "trauger_tewari": (1 + norms_11) ** (mpf(3) / 2),
        "fixed": {p: common[p * m] + root for p in (0, 1, 2)},
        "adaptivity": min(common) / total if total else None,
    }
