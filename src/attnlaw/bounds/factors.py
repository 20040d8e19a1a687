"""Amplification and sensitivity factors, in natural logarithms throughout (they pass float64 with depth).

Notation of arXiv 2605.07297, matrices on row vectors, c2 the spectral norm:

| letter | here | meaning |
|---|---|---|
| L, N | `depth`, `hidden_size` | layers, hidden size |
| alpha_l | `log_alpha` | product over layers k > l of the layer's Lipschitz factor; 1 for the last |
| gamma | `log_sensitivity` | how far an error in one matrix moves the output of its own layer |
| scale | `log_scale` | gamma * alpha_l * L |

A layer's factor is `Lphi c2(M_in) c2(M_out) * sum_h c2(VO_h) (1 + 4 c2(QK_h))`, and gamma is
`2 c2(VO_h) c2(M_out) c2(M_in)` for QK, `c2(M_out) c2(M_in)` for VO, `c2(M_out)` for M_in, 1 for M_out.

Extensions beyond the paper (every output that uses one says so)
----------------------------------------------------------------
Throughout, as in the paper, tokens have norm at most 1 where a block reads them, and residuals, norm
gains (pre- or post-norm), biases, masks, rotary positions and query/key norms are ignored.

Grouped-query attention: query head h with key/value head floor(h H_kv / H) is a head like any other.

Gated feed-forward, (phi(x G) * x U) M with phi(0) = 0: the differential is
`(phi'(xG) * dx G) * xU + phi(xG) * (dx U)`, and with |x| <= 1, |phi(t)| <= Lphi |t| both terms are at
most `Lphi c2(G) c2(U) |dx|`. So `Lphi c2(M_in) c2(M_out)` becomes `2 Lphi c2(G) c2(U) c2(M)`. An error
dU moves the output by at most `Lphi c2(G) c2(M) |dU|`; the paper leaves Lphi out of gamma, and so do
we: gamma is `c2(G) c2(M)` for U, `c2(U) c2(M)` for G, 1 for M, and `c2(M_out) c2(M_in)` becomes
`2 c2(G) c2(U) c2(M)` in the gammas of QK and VO. (As for M_out in the paper, gamma = 1 takes what M
reads to have norm at most 1.)

Cross attention, softmax(x QK m^T) m VO with memory m: it is at most `2 c2(QK) c2(VO)`-Lipschitz in x
and `c2(VO) (1 + 2 c2(QK))` in m, together `c2(VO) (1 + 4 c2(QK))` in the larger of the two errors: the
factor of self attention. Encoder and decoder are one chain of L = L_enc + L_dec layers; a decoder
layer's factor is the product of both attention factors and the feed-forward's (an upper bound while
these factors are at least 1, so that the memory's own error never dominates). The gammas of self
attention are multiplied by the cross attention's factor, which comes after it.

Shared layers: alpha counts every application. An error in a shared matrix enters at each of them, so
its alpha is the sum of alpha over its applications; the sums over matrices count it once. The other
count, every application as a layer of its own, is given beside it.

Mixture of experts, y = F_0(x) + sum_e g_e F_e(x): a router gives each token weights g_e >= 0 with
sum_e g_e <= s (1 for softmax weights, all or renormalised over the chosen; times `routed_scaling_factor`
where a config has one), F_0 is the shared expert if there is one. The choice jumps where two experts tie,
so no network of this kind is Lipschitz: **the routing is held fixed**, and the router's own map is not
counted. Then |dy| <= (f_0 + sum_e g_e f_e) |dx| <= (f_0 + s max_e f_e) |dx|, f the factor of a
feed-forward block as above: that sum replaces `Lphi c2(M_in) c2(M_out)`, and without Lphi it replaces
`c2(M_out) c2(M_in)` in the gammas of QK and VO. An error in a matrix of expert e moves the output by at
most g_e <= s times what it moves F_e: gamma is s times that of a block alone. The sums over matrices
count every expert, used by few tokens or by many.

Parallel attention and feed-forward, x + A(x) + F(x): counted as if one followed the other. The product of
the two factors bounds their sum while both are at least 2.

Latent attention: QK and VO of a head are products like any other; the norm inside is ignored.

No feed-forward: its factors are 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attnlaw.bounds.errors import raised, rise
from attnlaw.bounds.network import ExpertSpectra, Heads, LayerSpectra, Network
from attnlaw.numerics.logs import log_sum
from attnlaw.spectra import Spectrum


@dataclass(frozen=True)
class MatrixFactors:
    """One matrix with its place, its spectrum and the logarithms of its gamma and alpha.

    `log_gamma_error` and `log_alpha_error` bound how far these may lie above where spectral norms are
    approximate; None where all are exact.
    """

    layer: int
    kind: str
    head: int | None
    spectrum: Spectrum
    log_gamma: float
    log_alpha: float
    expert: int | None = None
    log_gamma_error: float | None = None
    log_alpha_error: float | None = None

    @property
    def place(self) -> tuple[int, str, int | None, int | None]:
        """What tells this matrix from others; its applications have one place."""
        return self.layer, self.kind, self.head, self.expert

    @property
    def log_scale_error(self) -> float | None:
        if self.log_gamma_error is None or self.log_alpha_error is None:
            return None
        return self.log_gamma_error + self.log_alpha_error

    @property
    def log_norm_gamma(self) -> float:
        """The norm-based bounds' gamma: the same without the 2 of QK."""
        return self.log_gamma - (np.log(2.0) if self.kind in ("qk", "cross_qk") else 0.0)


def matrix_factors(network: Network, per_application: bool = False) -> list[MatrixFactors]:
    """Every matrix with its factors and their errors: distinct matrices once, or once per application."""
    found = _matrix_factors(network, per_application)
    upper = raised(network)
    if upper is None:
        return found
    return [
        replace(
            one,
            log_gamma_error=rise(high.log_gamma, one.log_gamma),
            log_alpha_error=rise(high.log_alpha, one.log_alpha),
        )
        for one, high in zip(found, _matrix_factors(upper, per_application), strict=True)
    ]


def _matrix_factors(network: Network, per_application: bool) -> list[MatrixFactors]:
    alpha = log_alpha(network)
    if per_application:
        placed = [(layer, alpha[depth]) for depth, layer in enumerate(network.applications)]
    else:
        placed = [
            (
                layer,
                log_sum([alpha[depth] for depth, used in enumerate(network.applications) if used == layer]),
            )
            for layer in range(len(network.layers))
        ]
    return [
        MatrixFactors(
            layer=layer,
            kind=kind,
            head=head,
            spectrum=spectrum,
            log_gamma=log_sensitivity(network.layers[layer], kind, head, expert),
            log_alpha=log_alpha_l,
            expert=expert,
        )
        for layer, log_alpha_l in placed
        for kind, head, expert, spectrum in network.layers[layer].matrices()
    ]


def log_alpha(network: Network) -> list[float]:
    """ln alpha after each application of a layer: the product of the factors of all later ones."""
    factors = [log_layer_factor(layer, network.lipschitz) for layer in network.layers]
    later = [factors[layer] for layer in network.applications[1:]] + [0.0]
    return [float(value) for value in np.cumsum(later[::-1])[::-1]]


def log_layer_factor(layer: LayerSpectra, lipschitz: float) -> float:
    """ln of the Lipschitz factor of one layer."""
    has_feed_forward = layer.inner is not None or layer.experts
    feed_forward = _log_feed_forward(layer) + (np.log(lipschitz) if has_feed_forward else 0.0)
    return feed_forward + _log_attention(layer.attention) + _log_attention(layer.cross)


def log_sensitivity(layer: LayerSpectra, kind: str, head: int | None, expert: int | None = None) -> float:
    """ln gamma of one matrix: spectral norms of what comes after it in its layer."""
    if expert is not None:
        return float(np.log(layer.router_sum)) + _log_inside(layer.experts[expert], kind)
    if kind.startswith("ffn_"):
        return _log_inside(layer, kind)
    block = layer.cross if kind.startswith("cross_") else layer.attention
    assert block is not None
    assert head is not None
    after = _log_feed_forward(layer) + (0.0 if block is layer.cross else _log_attention(layer.cross))
    if kind.endswith("vo"):
        return after
    return float(np.log(2.0)) + _log_norm(block.vo[head]) + after


def _log_inside(block: LayerSpectra | ExpertSpectra, kind: str) -> float:
    """ln gamma of one matrix of a feed-forward block on its own."""
    if kind == "ffn_out":
        return 0.0
    return _log_norm(block.outer) + _log_norm(block.gate if kind == "ffn_in" else block.inner)


def _log_feed_forward(layer: LayerSpectra) -> float:
    """ln of (the shared block's norms + s times the largest of the experts'); no Lphi, 0 without any."""
    experts = [_log_block(expert) for expert in layer.experts]
    if not experts:
        return _log_block(layer)
    routed = float(np.log(layer.router_sum)) + max(experts)
    return routed if layer.inner is None else float(np.logaddexp(_log_block(layer), routed))


def _log_block(block: LayerSpectra | ExpertSpectra) -> float:
    """ln c2(M_in) c2(M_out), or ln 2 c2(G) c2(U) c2(M) with a gate; 0 for a block that is not there."""
    gate = 0.0 if block.gate is None else float(np.log(2.0)) + _log_norm(block.gate)
    return _log_norm(block.inner) + _log_norm(block.outer) + gate


def _log_attention(block: Heads | None) -> float:
    """ln sum_h c2(VO_h) (1 + 4 c2(QK_h)); 0 where there is no such block."""
    if block is None:
        return 0.0
    return log_sum(
        [
            _log_norm(vo) + float(np.logaddexp(0.0, np.log(4.0) + _log_norm(qk)))
            for qk, vo in zip(block.qk, block.vo, strict=True)
        ]
    )


def _log_norm(spectrum: Spectrum | None) -> float:
    """ln c2; 0 for a matrix that is not there, -inf for a zero matrix."""
    if spectrum is None:
        return 0.0
    return float(np.log(spectrum.spectral)) if spectrum.spectral > 0 else -np.inf
