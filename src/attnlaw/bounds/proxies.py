"""All proxies of a network at once: post hoc, fixed index, norm-based, and the value of adaptivity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.bounds.adaptivity import value_of_adaptivity
from attnlaw.bounds.factors import log_alpha, matrix_factors
from attnlaw.bounds.network import Network
from attnlaw.bounds.norm_based import NORMS, log_norm_based
from attnlaw.bounds.proxy_errors import Errors, proxy_errors
from attnlaw.bounds.spectrum_adaptive import Contribution, contribution, proxy


@dataclass(frozen=True, eq=False)
class Proxies:
    """Leading complexity factors of a network, as natural logarithms; each includes its sqrt(L).

    `adaptivity` is the value of adaptivity over the whole network; `per_layer_adaptivity` by layer.
    `rank_count` is True when p = 0 won for every matrix that contributes: the proxy then only counts
    ranks, and the rest of the spectrum played no part. `errors` is None where all spectra are exact.
    """

    contributions: tuple[Contribution, ...]
    log_alpha: tuple[float, ...]
    spectrum_adaptive: float
    continuous: float
    fixed: dict[int, float]
    norm_based: dict[str, float]
    adaptivity: float | None
    per_layer_adaptivity: tuple[float | None, ...]
    rank_count: bool
    errors: Errors | None


def proxies(network: Network, per_application: bool = False) -> Proxies:
    """Evaluate every proxy of a network; see `factors` for the conventions."""
    matrices = matrix_factors(network, per_application)
    depth, hidden_size = network.depth, network.hidden_size
    parts = tuple(contribution(matrix, depth, hidden_size) for matrix in matrices)
    curves = np.array([part.log_curve for part in parts])
    return Proxies(
        contributions=parts,
        log_alpha=tuple(log_alpha(network)),
        spectrum_adaptive=proxy(np.array([part.log_value for part in parts]), depth),
        continuous=proxy(np.array([part.continuous_log_value for part in parts]), depth),
        # The grid {0, 1/m, ..., 2} holds 0, 1 and 2 at its ends and its middle.
        fixed={p: proxy(curves[:, p * (curves.shape[1] // 2)], depth) for p in (0, 1, 2)},
        norm_based={name: log_norm_based(matrices, norm) for name, norm in NORMS.items()},
        adaptivity=value_of_adaptivity(parts),
        per_layer_adaptivity=tuple(
            value_of_adaptivity([part for part in parts if part.factors.layer == layer])
            for layer in range(len(network.layers))
        ),
        rank_count=all(part.p == 0 for part in parts if part.log_value > -np.inf),
        errors=proxy_errors(network, parts),
    )
