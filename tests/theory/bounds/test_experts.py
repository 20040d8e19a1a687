"""Mixtures of experts: the factors against finite differences with the routing held fixed, and by hand.

Tokens are rows of norm at most 1 and distances are spectral, as in `test_factors`. A claim is an upper
bound: differences may stay below it, never above.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from theory.bounds.plain_numbers import log_gamma

from attnlaw import audit
from attnlaw.checkpoints.network import Heads, Layer, Maps, Network
from attnlaw.spectra import matrix_spectrum
from attnlaw.theory.bounds.factors import lipschitz, log_layer_factor
from attnlaw.theory.bounds.proxies import proxies

N, WIDTH, TOKENS, EXPERTS = 6, 10, 5, 4
EYE = matrix_spectrum(np.eye(N))
# One head whose QK is zero and whose VO is the identity: the attention factor is one.
IDENTITY_HEADS = Heads((matrix_spectrum(np.zeros((N, N))),), (EYE,))


def silu(x):
    return x / (1 + np.exp(-x))


def made_block(rng, gain):
    """Inner, gate and outer maps."""
    shapes = ((N, WIDTH), (N, WIDTH), (WIDTH, N))
    return [gain * rng.standard_normal(shape) / np.sqrt(N) for shape in shapes]


def apply(x, block):
    inner, gate, outer = block
    return (silu(x @ gate) * (x @ inner)) @ outer


def mixture(x, shared, experts, weights):
    """F_0(x) + sum_e g_e F_e(x), the weights g given token by token."""
    routed = sum(weights[:, [e]] * apply(x, block) for e, block in enumerate(experts))
    return routed + (apply(x, shared) if shared is not None else 0)


def spectra(shared, experts, router_sum):
    def of(block):
        return Maps(**dict(zip(("inner", "gate", "outer"), (matrix_spectrum(m) for m in block), strict=True)))

    return Layer(
        0,
        IDENTITY_HEADS,
        feed_forward=None if shared is None else of(shared),
        experts=tuple(of(block) for block in experts),
        router_sum=router_sum,
    )


def into_ball(x):
    return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))


def routing(rng, top, router_sum):
    """Weights of the `top` best experts for each token, adding up to `router_sum`."""
    logits = rng.standard_normal((TOKENS, EXPERTS)) * 3
    logits[logits < np.sort(logits, axis=1)[:, [EXPERTS - top]]] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return router_sum * weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("router_sum", [1.0, 2.5])
@pytest.mark.parametrize("has_shared", [False, True])
@pytest.mark.parametrize("top", [1, 2])
def test_the_layer_factor_bounds_differences_in_the_input(router_sum, has_shared, top):
    rng = np.random.default_rng(top)
    for _ in range(100):
        gain = rng.choice([0.3, 1.0, 4.0])
        shared = made_block(rng, gain) if has_shared else None
        experts = [made_block(rng, gain * rng.uniform(0.5, 2)) for _ in range(EXPERTS)]
        weights = routing(rng, top, router_sum)
        claim = np.exp(log_layer_factor(spectra(shared, experts, router_sum), lipschitz("silu")))
        x = into_ball(rng.standard_normal((TOKENS, N)))
        for other in (
            into_ball(rng.standard_normal((TOKENS, N))),
            into_ball(x + 1e-5 * rng.standard_normal(N)),
        ):
            moved = mixture(x, shared, experts, weights) - mixture(other, shared, experts, weights)
            ratio = np.linalg.norm(moved, axis=1) / np.linalg.norm(x - other, axis=1)
            assert ratio.max() <= claim * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("router_sum", [1.0, 2.5])
def test_gamma_bounds_what_an_error_in_one_expert_does(router_sum):
    """The paper's gamma leaves out Lphi; M_out reads at most Lphi c2(G) c2(U), which gamma takes as 1."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        shared, experts = made_block(rng, 1.0), [made_block(rng, 1.0) for _ in range(EXPERTS)]
        weights = routing(rng, 2, router_sum)
        layer = spectra(shared, experts, router_sum)
        x = into_ball(rng.standard_normal((TOKENS, N)))
        base = mixture(x, shared, experts, weights)
        for expert in range(EXPERTS):
            for part, kind in enumerate(("ffn_in", "ffn_gate", "ffn_out")):
                error = rng.standard_normal(experts[expert][part].shape)
                error *= 1e-4 / np.linalg.norm(error, 2)
                changed = [list(block) for block in experts]
                changed[expert][part] = changed[expert][part] + error
                moved = np.linalg.norm(mixture(x, shared, changed, weights) - base, axis=1).max()
                claim = np.exp(log_gamma(layer, kind, expert=expert)) * lipschitz("silu")
                if kind == "ffn_out":
                    claim *= np.prod([np.linalg.norm(m, 2) for m in experts[expert][:2]])
                assert moved <= claim * 1e-4 * (1 + 1e-7)


def test_the_factor_is_attained_by_the_largest_expert_alone():
    """ReLU, no gate: a token on the top direction of one expert moves by exactly c2(M_in) c2(M_out)."""
    small, large = np.eye(N), 3 * np.eye(N)
    experts = tuple(Maps(matrix_spectrum(m), matrix_spectrum(m)) for m in (small, large))
    layer = Layer(0, IDENTITY_HEADS, experts=experts)
    assert np.exp(log_layer_factor(layer, lipschitz("relu"))) == pytest.approx(9)
    x = np.eye(N)[:1]
    routed_to_large = np.maximum(x @ large, 0) @ large - np.maximum(0.5 * x @ large, 0) @ large
    assert np.linalg.norm(routed_to_large) / 0.5 == pytest.approx(9)


def test_one_expert_with_weight_one_is_a_plain_feed_forward():
    rng = np.random.default_rng(1)
    inner, gate, outer = (matrix_spectrum(m) for m in made_block(rng, 1.0))
    block = Maps(inner, outer, gate)
    plain = Layer(0, Heads((EYE,), (EYE,)), feed_forward=block)
    routed = Layer(0, Heads((EYE,), (EYE,)), experts=(block,))
    first, second = (proxies(Network((layer,) * 3, (0, 1, 2), (N,), "silu")) for layer in (plain, routed))
    assert first.values == second.values
    assert first.log_alpha == second.log_alpha
    assert [part.factors.location.expert for part in second.parts[:5]] == [None, None, 0, 0, 0]


def norm(matrix):
    return np.linalg.norm(matrix, 2)


def test_a_whole_model_with_experts_against_dense_matrices(tmp_path):
    """Two layers, a shared expert and three routed ones in the second, from files to the proxies.

    The reference forms every matrix, takes dense SVDs and follows the formulas with plain numbers; its
    ranks are full but for the heads, whose d_head values are kept.
    """
    rng = np.random.default_rng(9)
    hidden, heads, size, width, s = 8, 2, 4, 6, 2.5
    state, blocks, attention = {}, [], []
    for layer in range(2):
        at = f"layers.{layer}."
        q, k, v, o = (rng.standard_normal((hidden, hidden)) for _ in range(4))
        state |= {f"{at}self_attn.{n}_proj.weight": w for n, w in zip("qkvo", (q, k, v, o), strict=True)}
        head_slices = [slice(h * size, (h + 1) * size) for h in range(heads)]
        attention.append([(q[i].T @ k[i], v[i].T @ o[:, i].T) for i in head_slices])
        names = ["mlp"] if layer == 0 else ["mlp.shared_experts", *(f"mlp.experts.{e}" for e in range(3))]
        blocks.append([])
        for name in names:
            gate, inner = (rng.standard_normal((width, hidden)) for _ in range(2))
            outer = rng.standard_normal((hidden, width))
            parts = {"gate": gate, "up": inner, "down": outer}
            state |= {f"{at}{name}.{part}_proj.weight": w for part, w in parts.items()}
            blocks[-1].append((inner.T, gate.T, outer.T))

    def factor(layer, constant):
        f = [2 * constant * norm(i) * norm(g) * norm(m) for i, g, m in blocks[layer]]
        return f[0] + (s * max(f[1:]) if f[1:] else 0.0)

    def attend(layer):
        return sum(norm(vo) * (1 + 4 * norm(qk)) for qk, vo in attention[layer])

    total = 0.0
    m = int(np.ceil(2 + np.log(hidden)))
    for layer, alpha in ((0, factor(1, 1.1) * attend(1)), (1, 1.0)):
        placed = [(vo, factor(layer, 1.0), size) for _, vo in attention[layer]]
        placed += [(qk, 2 * norm(vo) * factor(layer, 1.0), size) for qk, vo in attention[layer]]
        for number, (inner, gate, outer) in enumerate(blocks[layer]):
            weight = s if number else 1.0
            placed.append((inner, weight * norm(outer) * norm(gate), width))
            placed.append((gate, weight * norm(outer) * norm(inner), width))
            placed.append((outer, weight, width))
        for matrix, gamma, rank in placed:
            values, scale = np.linalg.svd(matrix)[1][:rank], gamma * alpha * 2
            p = np.arange(2 * m + 1)[:, None] / m
            sums = (values**p).sum(axis=1, keepdims=True)
            total += ((sums * scale**p * hidden ** (p + 1)) ** (1 / (p + 2))).min()
    save_file(state, tmp_path / "model.safetensors")
    config = {"num_attention_heads": heads, "routed_scaling_factor": s, "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    summary = audit(tmp_path, jobs=1).summary
    assert summary["matrices"] == 2 * 2 * heads + 3 + 4 * 3
    log10 = summary["proxies"]["spectrum_adaptive"]["log10"]
    assert log10 == pytest.approx(np.log10(total + np.sqrt(2)), abs=1e-11)


def test_a_shared_expert_by_hand():
    """Norms 2 and 3 shared, 1 and 5 in the one expert, s = 2: the block's factor is 6 + 2 * 5."""
    shared = Maps(matrix_spectrum(2 * np.eye(N)), matrix_spectrum(3 * np.eye(N)))
    expert = Maps(EYE, matrix_spectrum(5 * np.eye(N)))
    layer = Layer(0, IDENTITY_HEADS, feed_forward=shared, experts=(expert,), router_sum=2.0)
    assert np.exp(log_layer_factor(layer, 1.0)) == pytest.approx(16)
    assert np.exp(log_gamma(layer, "vo", 0)) == pytest.approx(16)
    assert np.exp(log_gamma(layer, "qk", 0)) == pytest.approx(32)
    assert np.exp(log_gamma(layer, "ffn_in")) == pytest.approx(3)
    assert np.exp(log_gamma(layer, "ffn_in", expert=0)) == pytest.approx(10)
    assert np.exp(log_gamma(layer, "ffn_out", expert=0)) == pytest.approx(2)
