"""The Lipschitz claims behind the factors, held against finite differences of the blocks themselves.

Tokens are rows of norm at most 1; the distance of two token arrays is the largest distance of two rows,
the distance of two matrices is spectral. A claim is an upper bound, so differences may stay far below it,
but never above; inputs include the directions that come closest.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import erf
from theory.bounds.plain_numbers import log_gamma

from attnlaw.checkpoints.network import Heads, Layer, Maps, Network
from attnlaw.spectra import matrix_spectrum
from attnlaw.theory.bounds.factors import lipschitz, log_alpha, log_layer_factor

N, WIDTH, HEADS, TOKENS = 6, 10, 2, 5
ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
}


def into_ball(x):
    """Project rows to the unit ball: 1-Lipschitz, and what normalisation does for the paper."""
    return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))


def attend(x, memory, qk, vo):
    """sum_h softmax(x QK_h m^T) m VO_h."""
    total = 0
    for a, b in zip(qk, vo, strict=True):
        scores = x @ a @ memory.T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        total = total + weights / weights.sum(axis=1, keepdims=True) @ memory @ b
    return total


def feed_forward(x, layer, phi):
    if layer.gate is None:
        return phi(x @ layer.inner) @ layer.outer
    return (phi(x @ layer.gate) * (x @ layer.inner)) @ layer.outer


def run_layer(x, memory, layer, phi):
    x = into_ball(attend(x, x, layer.qk, layer.vo))
    if layer.cross_qk is not None:
        x = into_ball(attend(x, memory, layer.cross_qk, layer.cross_vo))
    return into_ball(feed_forward(x, layer, phi))


def made_layer(rng, gated=False, cross=False, gain=1.0):
    def matrix(*shape):
        return gain * rng.standard_normal(shape) / np.sqrt(N)

    return SimpleNamespace(
        qk=matrix(HEADS, N, N),
        vo=matrix(HEADS, N, N),
        cross_qk=matrix(HEADS, N, N) if cross else None,
        cross_vo=matrix(HEADS, N, N) if cross else None,
        inner=matrix(N, WIDTH),
        gate=matrix(N, WIDTH) if gated else None,
        outer=matrix(WIDTH, N),
    )


def spectra(layer, index=0):
    def heads(qk, vo):
        return None if qk is None else Heads(*(tuple(matrix_spectrum(m) for m in part) for part in (qk, vo)))

    def whole(matrix):
        return None if matrix is None else matrix_spectrum(matrix)

    maps = Maps(whole(layer.inner), whole(layer.outer), whole(layer.gate))
    return Layer(index, heads(layer.qk, layer.vo), heads(layer.cross_qk, layer.cross_vo), maps)


def tokens(rng, like=None):
    """Random tokens in the unit ball, half of them on its surface; or tokens close to given ones."""
    if like is not None:
        return into_ball(like + 1e-5 * rng.standard_normal(like.shape))
    x = into_ball(rng.standard_normal((TOKENS, N)) * rng.choice([0.3, 3.0], (TOKENS, 1)))
    return x * rng.choice([1.0, rng.uniform()], (TOKENS, 1))


def distance(x, y):
    return np.linalg.norm(x - y, axis=1).max()


def nudged(rng, matrix, size=1e-4):
    """The matrix with a random error of the given spectral norm."""
    error = rng.standard_normal(matrix.shape)
    return matrix + error * size / np.linalg.norm(error, 2)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward_factor_bounds_differences_in_its_input(activation, gated):
    rng = np.random.default_rng(0)
    phi = ACTIVATIONS[activation]
    worst = 0.0
    for _ in range(200):
        layer = made_layer(rng, gated, gain=rng.choice([0.3, 1.0, 5.0]))
        norms = [np.linalg.norm(m, 2) for m in (layer.inner, layer.gate, layer.outer) if m is not None]
        claim = (2 if gated else 1) * lipschitz(activation) * np.prod(norms)
        x = tokens(rng)
        top = np.linalg.svd(layer.inner)[0][:, 0]
        for other in (tokens(rng), tokens(rng, like=x), into_ball(x + 1e-4 * top)):
            moved = distance(feed_forward(x, layer, phi), feed_forward(other, layer, phi))
            worst = max(worst, moved / (claim * distance(x, other)))
    assert worst <= 1


def test_a_gate_of_aligned_rank_one_matrices_nearly_attains_its_factor():
    """x along the common direction, phi nearly linear there: the factor 2 is not slack to be dropped."""
    e, f = np.eye(N)[0], np.eye(WIDTH)[0]
    layer = SimpleNamespace(inner=np.outer(e, f), gate=50 * np.outer(e, f), outer=np.outer(f, e))
    x, other = e[None], (1 - 1e-6) * e[None]
    moved = distance(*(feed_forward(point, layer, ACTIVATIONS["silu"]) for point in (x, other)))
    claim = 2 * lipschitz("silu") * 50
    assert 0.9 < moved / (claim * 1e-6) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gated_sensitivities_bound_differences_in_each_matrix(activation):
    """gamma leaves out Lphi, as the paper does, so the claim for the inner matrices is Lphi gamma |dW|."""
    rng = np.random.default_rng(1)
    phi, constant = ACTIVATIONS[activation], lipschitz(activation)
    for _ in range(200):
        layer = made_layer(rng, gated=True, gain=rng.choice([0.3, 1.0, 5.0]))
        measured = spectra(layer)
        for part, kind in (("inner", "ffn_in"), ("gate", "ffn_gate"), ("outer", "ffn_out")):
            x = tokens(rng)
            other = SimpleNamespace(**vars(layer) | {part: nudged(rng, getattr(layer, part))})
            moved = distance(feed_forward(x, layer, phi), feed_forward(x, other, phi))
            if kind == "ffn_out":  # what M_out reads is not in the ball: scale its claim to what it reads
                read = phi(x @ layer.gate) * (x @ layer.inner)
                size = np.linalg.norm(read, axis=1).max()
            else:
                size = constant
            assert moved <= np.exp(log_gamma(measured, kind, None)) * size * 1e-4 * (1 + 1e-7)


@pytest.mark.slow
def test_cross_attention_factor_bounds_differences_in_tokens_and_memory():
    """2 c2(QK) c2(VO) in x, c2(VO) (1 + 2 c2(QK)) in m, c2(VO) (1 + 4 c2(QK)) in the larger of both."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        layer = made_layer(rng, cross=True, gain=rng.choice([0.3, 1.0, 8.0]))
        qk, vo = layer.cross_qk, layer.cross_vo
        norms = [(np.linalg.norm(a, 2), np.linalg.norm(b, 2)) for a, b in zip(qk, vo, strict=True)]
        in_x = sum(2 * a * b for a, b in norms)
        in_m = sum(b * (1 + 2 * a) for a, b in norms)
        both = sum(b * (1 + 4 * a) for a, b in norms)
        x, m = tokens(rng), tokens(rng)
        y, k = tokens(rng, like=x), tokens(rng, like=m)
        base = attend(x, m, qk, vo)
        assert distance(base, attend(y, m, qk, vo)) <= in_x * distance(x, y)
        assert distance(base, attend(x, k, qk, vo)) <= in_m * distance(m, k)
        larger = max(distance(x, y), distance(m, k))
        assert distance(base, attend(y, k, qk, vo)) <= both * larger
        one_matrix = np.stack([nudged(rng, qk[0]), qk[1]])
        moved = distance(base, attend(x, m, one_matrix, vo))
        assert moved <= 2 * norms[0][1] * 1e-4 * (1 + 1e-7)
        moved = distance(base, attend(x, m, qk, np.stack([nudged(rng, vo[0]), vo[1]])))
        assert moved <= 1e-4 * (1 + 1e-7)


def network_of(layers, applications, activation):
    measured = tuple(spectra(layer, index) for index, layer in enumerate(layers))
    return Network(measured, applications, (N,), activation)


def run(layers, applications, encoder, source, target, activation):
    """Encoder layers read `source`; decoder layers (from depth `encoder` on) read `target` and the memory."""
    x, phi = source, ACTIVATIONS[activation]
    memory = None
    for depth, index in enumerate(applications):
        if depth == encoder:
            memory, x = x, target
        x = run_layer(x, memory, layers[index], phi)
    return x


@pytest.mark.slow
def test_alpha_and_gamma_bound_what_an_error_in_one_matrix_does_to_an_encoder_decoder():
    """Errors in every kind of matrix, of encoder and decoder, move the output by at most Lphi gamma alpha."""
    rng = np.random.default_rng(3)
    activation = "silu"
    for _ in range(10):
        layers = [made_layer(rng, gated=True, cross=depth >= 2, gain=2.0) for depth in range(4)]
        network = network_of(layers, (0, 1, 2, 3), activation)
        assert all(log_layer_factor(layer, lipschitz(activation)) > 0 for layer in network.layers)
        alpha = log_alpha(network)
        source, target = tokens(rng), tokens(rng)
        base = run(layers, range(4), 2, source, target, activation)
        for index, measured in enumerate(network.layers):
            for location, _ in measured.leaves():
                kind, head = location.kind, location.head
                part = {"ffn_in": "inner", "ffn_gate": "gate", "ffn_out": "outer"}.get(kind, kind)
                whole = getattr(layers[index], part)
                if head is None:
                    changed = nudged(rng, whole)
                else:
                    changed = whole.copy()
                    changed[head] = nudged(rng, whole[head])
                others = list(layers)
                others[index] = SimpleNamespace(**vars(layers[index]) | {part: changed})
                moved = distance(base, run(others, range(4), 2, source, target, activation))
                gamma = log_gamma(measured, kind, head)
                # M_out reads a vector that is not in the ball but at most Lphi c2(G) c2(U) long.
                read = 1.0
                if kind == "ffn_out":
                    read = measured.feed_forward.gate.spectral * measured.feed_forward.inner.spectral
                bound = lipschitz(activation) * read * np.exp(gamma + alpha[index]) * 1e-4
                assert moved <= bound * (1 + 1e-6)


def test_the_sum_of_alpha_over_applications_bounds_an_error_in_a_shared_matrix():
    rng = np.random.default_rng(4)
    activation, applications = "gelu", (0, 0, 1, 1)
    for _ in range(20):
        layers = [made_layer(rng, gain=1.5) for _ in range(2)]
        network = network_of(layers, applications, activation)
        alpha = np.exp(log_alpha(network))
        x = tokens(rng)
        base = run(layers, applications, None, x, None, activation)
        for index in range(2):
            others = list(layers)
            others[index] = SimpleNamespace(
                **vars(layers[index]) | {"inner": nudged(rng, layers[index].inner)}
            )
            moved = distance(base, run(others, applications, None, x, None, activation))
            summed = sum(alpha[depth] for depth, used in enumerate(applications) if used == index)
            gamma = np.exp(log_gamma(network.layers[index], "ffn_in"))
            assert moved <= lipschitz(activation) * gamma * summed * 1e-4 * (1 + 1e-6)


def test_a_layer_without_feed_forward_has_factors_of_one_there():
    layer = made_layer(np.random.default_rng(6))
    measured = spectra(layer)
    bare = Layer(0, measured.attention)
    attention = sum(
        np.linalg.norm(b, 2) * (1 + 4 * np.linalg.norm(a, 2)) for a, b in zip(layer.qk, layer.vo, strict=True)
    )
    assert np.exp(log_layer_factor(bare, 1.13)) == pytest.approx(attention, rel=1e-12)
    assert log_gamma(bare, "vo", 0) == 0
    assert np.exp(log_gamma(bare, "qk", 1)) == pytest.approx(2 * np.linalg.norm(layer.vo[1], 2))


def test_sensitivities_of_a_gated_decoder_layer_by_hand():
    layer = made_layer(np.random.default_rng(7), gated=True, cross=True)
    measured = spectra(layer)
    inner, gate, outer = (np.linalg.norm(m, 2) for m in (layer.inner, layer.gate, layer.outer))
    feed_forward = 2 * gate * inner * outer
    cross = sum(
        np.linalg.norm(b, 2) * (1 + 4 * np.linalg.norm(a, 2))
        for a, b in zip(layer.cross_qk, layer.cross_vo, strict=True)
    )
    expected = {
        "qk": 2 * np.linalg.norm(layer.vo[1], 2) * cross * feed_forward,
        "vo": cross * feed_forward,
        "cross_qk": 2 * np.linalg.norm(layer.cross_vo[1], 2) * feed_forward,
        "cross_vo": feed_forward,
        "ffn_in": outer * gate,
        "ffn_gate": outer * inner,
        "ffn_out": 1.0,
    }
    for kind, gamma in expected.items():
        head = None if kind.startswith("ffn") else 1
        assert np.exp(log_gamma(measured, kind, head)) == pytest.approx(gamma, rel=1e-12), kind
