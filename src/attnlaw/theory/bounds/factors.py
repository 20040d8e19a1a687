"""Amplification and sensitivity factors of a network, as natural logarithms because they overflow with depth.

The notation follows arXiv 2605.07297. Matrices act on row vectors, and c2 is the spectral norm.

| letter | here | meaning |
|---|---|---|
| L, N | `depth`, `hidden_size` | number of layers, hidden size |
| alpha_l | `log_alpha` | product of the Lipschitz factors of all layers after layer l; 1 for the last layer |
| gamma | `log_sensitivities` | how far an error in one matrix moves the output of its layer |
| scale | `log_scale` | gamma * alpha_l * L |
| Lphi | `lipschitz` | Lipschitz constant of the activation |

The factor of a layer is `Lphi c2(M_in) c2(M_out) * sum_h c2(VO_h) (1 + 4 c2(QK_h))`. The sensitivity gamma is
`2 c2(VO_h) c2(M_out) c2(M_in)` for QK, `c2(M_out) c2(M_in)` for VO, `c2(M_out)` for M_in and 1 for M_out.

**Extensions beyond the paper.** Every output that uses one of these extensions says so. As in the paper, the
tokens that a block reads have norm at most 1, and residuals, norm gains, biases, masks, rotary positions and
query/key norms are ignored. `log_alphas_applied` computes alpha from spectral norms with the gain of the norm
before each matrix folded in.

Grouped-query attention: query head h with key/value head floor(h H_kv / H) counts like any other head.

Gated feed-forward, (phi(x G) * x U) M with phi(0) = 0: both terms of the differential are at most `Lphi c2(G)
c2(U) |dx|`, so `Lphi c2(M_in) c2(M_out)` becomes `2 Lphi c2(G) c2(U) c2(M)`. Without Lphi, as in the paper,
gamma is `c2(G) c2(M)` for U, `c2(U) c2(M)` for G and 1 for M. In the gammas of QK and VO, `c2(M_out)
c2(M_in)` becomes `2 c2(G) c2(U) c2(M)`.

Cross attention, softmax(x QK m^T) m VO with memory m: it is at most `2 c2(QK) c2(VO)`-Lipschitz in x and
`c2(VO) (1 + 2 c2(QK))`-Lipschitz in m, together the factor of self attention. Encoder and decoder are one
chain. The factor of a decoder layer is the product of its attention and feed-forward factors, an upper bound
while these are at least 1. The gammas of self attention are multiplied by the factor of the cross attention
after it.

Shared layers: alpha counts every application. An error in a shared matrix enters at each application, so its
alpha is the sum of alpha over them. Sums over matrices count the matrix once. Results also give the other
count, in which every application is a layer.

Mixture of experts, y = F_0(x) + sum_e g_e F_e(x), with g_e >= 0 and sum_e g_e <= s: s is 1 for softmax
weights, times `routed_scaling_factor` if the config has one. The choice jumps where two experts tie, so **the
routing is held fixed**, and the router is not counted. Then |dy| <= (f_0 + s max_e f_e) |dx| with the factors
f of the blocks. This sum replaces `Lphi c2(M_in) c2(M_out)` and, without Lphi, `c2(M_out) c2(M_in)` in the
gammas of QK and VO. The gamma of a matrix of an expert is s times that of a block alone. Sums over matrices
count every expert.

Parallel attention and feed-forward, x + A(x) + F(x): they count as if one followed the other. The product of
the two factors bounds their sum while both are at least 2.

Latent attention: QK and VO of a head are products like any other; the norm inside is ignored.

**Lipschitz constants of activations** are rounded up to two decimals, as in the paper.

| activation | largest slope | constant |
|---|---|---|
| GELU, exact and tanh form | 1.12890, 1.12899 | 1.13 |
| SiLU; quick GELU, x sigmoid(1.702 x) | 1.09984 | 1.10 |
| Mish | 1.08850 | 1.09 |
| ReLU, tanh, identity | 1 | 1 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.checkpoints.network import KINDS, Heads, Layer, Maps, MatrixLocation, Network
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.logs import log_sum
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.log_errors import log_increase, with_spectral_norm, with_upper_norms

LIPSCHITZ: dict[str, float] = {
    **dict.fromkeys(("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh"), 1.13),
    **dict.fromkeys(("silu", "swish", "quick_gelu"), 1.10),
    "mish": 1.09,
    **dict.fromkeys(("relu", "tanh", "identity", "linear"), 1.0),
}


def lipschitz(activation: str) -> float:
    """Return the Lipschitz constant of an activation, given its Hugging Face name.

    >>> lipschitz("gelu")
    1.13
    """
    if activation not in LIPSCHITZ:
        raise InputError(
            f"activation {activation!r} has no known Lipschitz constant; choose one of {', '.join(LIPSCHITZ)}"
        )
    return LIPSCHITZ[activation]


@dataclass(frozen=True)
class MatrixFactors:
    """One matrix of a network, with the multipliers (gamma, alpha, L) of its term in a generalization bound.

    The error of a multiplier says how much larger the true value may be. It is None if the multiplier is
    exact. If layers are shared, every application of a matrix has the same location.
    """

    location: MatrixLocation
    spectrum: Spectrum  # singular values and norms of the matrix
    log_gamma: Estimate  # ln gamma, where gamma is the sensitivity to errors in this matrix
    log_alpha: Estimate  # ln alpha, where alpha is the amplification by the later layers

    @property
    def log_scale_error(self) -> float | None:
        if self.log_gamma.error is None or self.log_alpha.error is None:
            return None
        return self.log_gamma.error + self.log_alpha.error

    @property
    def log_norm_gamma(self) -> float:
        """ln gamma (the sensitivity) for norm-based bounds, which omit the factor 2 for QK matrices."""
        return self.log_gamma.value - (np.log(2.0) if KINDS[self.location.kind].scores else 0.0)


def matrix_factors(network: Network[Spectrum]) -> Network[MatrixFactors]:
    """Compute the multipliers of every matrix of a network.

    The multipliers have errors if spectral norms are approximate.

    Args:
        network: a network with spectra at its leaves and a known activation. A shared layer counts once. Pass
            `network.unroll()` to count every application.
    """
    logs, upper = _logs(network), with_upper_norms(network)
    highs = [(None, None)] * len(logs) if upper is None else _logs(upper)
    return network.with_leaves(
        MatrixFactors(
            location, spectrum, *(_estimate(value, high) for value, high in zip(log_pair, above, strict=True))
        )
        for (location, spectrum), log_pair, above in zip(network.leaves(), logs, highs, strict=True)
    )


def _estimate(value: float, high: float | None) -> Estimate:
    return Estimate(value, None if high is None else log_increase(high, value))


def _logs(network: Network[Spectrum]) -> list[tuple[float, float]]:
    """Return (ln gamma, ln alpha) of every matrix, with alpha summed over the applications of its layer."""
    sums = sum_alphas_by_layer(network, log_alpha(network))
    layers = zip(network.layers, sums, strict=True)
    return [(gamma, summed) for layer, summed in layers for _, gamma in log_sensitivities(layer).leaves()]


def layer_alphas(network: Network[Any], alphas: Sequence[Estimate]) -> list[Estimate]:
    """Return ln alpha (the amplification) of each layer, from its values after each application."""
    values = sum_alphas_by_layer(network, [alpha.value for alpha in alphas])
    if any(alpha.error is None for alpha in alphas):
        return [Estimate(value) for value in values]
    highs = sum_alphas_by_layer(network, [alpha.value + (alpha.error or 0.0) for alpha in alphas])
    return [_estimate(value, high) for value, high in zip(values, highs, strict=True)]


def sum_alphas_by_layer(network: Network[Any], alpha: Sequence[float]) -> list[float]:
    """Return the logarithm of the amplification alpha of each layer, summed over the layer's applications."""
    used = network.applications
    return [
        log_sum([alpha[depth] for depth, layer in enumerate(used) if layer == number])
        for number in range(len(network.layers))
    ]


def log_alphas(network: Network[Spectrum]) -> tuple[Estimate, ...]:
    """Return the logarithm of the amplification alpha after each application of a layer, with its error."""
    values, upper = log_alpha(network), with_upper_norms(network)
    highs: list[None] | list[float] = [None] * len(values) if upper is None else log_alpha(upper)
    return tuple(_estimate(value, high) for value, high in zip(values, highs, strict=True))


def log_alphas_applied(network: Network[Spectrum]) -> tuple[Estimate, ...] | None:
    """Return the same as `log_alphas`, but with the norm before each matrix folded into it."""
    norms = [
        None if spectrum.applied is None else spectrum.applied.spectral for _, spectrum in network.leaves()
    ]
    known = [norm for norm in norms if norm is not None]
    if len(known) < len(norms):
        return None
    spectra = [spectrum for _, spectrum in network.leaves()]
    values, highs = (
        log_alpha(network.with_leaves(map(with_spectral_norm, spectra, sizes)))
        for sizes in ([norm.value for norm in known], [norm.value + (norm.error or 0.0) for norm in known])
    )
    exact = all(norm.error is None for norm in known)
    return tuple(_estimate(value, None if exact else high) for value, high in zip(values, highs, strict=True))


def log_alpha(network: Network[Spectrum]) -> list[float]:
    """Return ln alpha after each application of a layer: the sum of the log factors of later ones."""
    assert network.activation is not None
    constant = lipschitz(network.activation)
    factors = [log_layer_factor(layer, constant) for layer in network.layers]
    later = [factors[layer] for layer in network.applications[1:]] + [0.0]
    return [float(value) for value in np.cumsum(later[::-1])[::-1]]


def log_layer_factor(layer: Layer[Spectrum], lipschitz: float) -> float:
    """Return the logarithm of one layer's Lipschitz factor, given the constant of the activation."""
    has_feed_forward = layer.feed_forward is not None or layer.experts
    feed_forward = _log_feed_forward(layer) + (np.log(lipschitz) if has_feed_forward else 0.0)
    return feed_forward + _log_attention(layer.attention) + _log_attention(layer.cross)


def log_sensitivities(layer: Layer[Spectrum]) -> Layer[float]:
    """Return the logarithm of the sensitivity gamma of every matrix of a layer."""
    after, routed = _log_feed_forward(layer), float(np.log(layer.router_sum))
    return Layer(
        layer.index,
        _head_sensitivities(layer.attention, after + _log_attention(layer.cross)),
        None if layer.cross is None else _head_sensitivities(layer.cross, after),
        None if layer.feed_forward is None else _feed_forward_sensitivities(layer.feed_forward, 0.0),
        tuple(_feed_forward_sensitivities(expert, routed) for expert in layer.experts),
        layer.stack,
        layer.router_sum,
    )


def _head_sensitivities(block: Heads[Spectrum], after: float) -> Heads[float]:
    qk = tuple(float(np.log(2.0)) + _log_norm(vo) + after for vo in block.vo)
    return Heads(qk, (after,) * len(block.vo))


def _feed_forward_sensitivities(block: Maps[Spectrum], routed: float) -> Maps[float]:
    outer, gate = _log_norm(block.outer), block.gate
    return Maps(
        inner=routed + (outer + _log_norm(gate)),
        outer=routed,
        gate=None if gate is None else routed + (outer + _log_norm(block.inner)),
    )


def _log_feed_forward(layer: Layer[Spectrum]) -> float:
    """Return ln of the feed-forward factor without Lphi, with experts ln(f_0 + s max_e f_e)."""
    experts = [_log_block(expert) for expert in layer.experts]
    if not experts:
        return 0.0 if layer.feed_forward is None else _log_block(layer.feed_forward)
    routed = float(np.log(layer.router_sum)) + max(experts)
    shared = layer.feed_forward
    return routed if shared is None else float(np.logaddexp(_log_block(shared), routed))


def _log_block(block: Maps[Spectrum]) -> float:
    """Return ln c2(M_in) c2(M_out), or ln 2 c2(G) c2(U) c2(M) if the block has a gate."""
    gate = 0.0 if block.gate is None else float(np.log(2.0)) + _log_norm(block.gate)
    return _log_norm(block.inner) + _log_norm(block.outer) + gate


def _log_attention(block: Heads[Spectrum] | None) -> float:
    """Return ln sum_h c2(VO_h) (1 + 4 c2(QK_h)), or 0 if there is no block."""
    if block is None:
        return 0.0
    return log_sum(
        [
            _log_norm(vo) + float(np.logaddexp(0.0, np.log(4.0) + _log_norm(qk)))
            for qk, vo in zip(block.qk, block.vo, strict=True)
        ]
    )


def _log_norm(spectrum: Spectrum | None) -> float:
    """Return ln of the spectral norm: 0 if there is no matrix, -inf if the matrix is zero."""
    if spectrum is None:
        return 0.0
    return float(np.log(spectrum.spectral)) if spectrum.spectral > 0 else -np.inf
