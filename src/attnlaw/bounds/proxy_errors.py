"""The errors of all proxies where spectra are approximate: d ln(sum C) = sum (C / sum C) d ln C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnlaw.bounds.adaptivity import adaptivity_error
from attnlaw.bounds.errors import LogError, combined, raised, rise
from attnlaw.bounds.factors import log_alpha
from attnlaw.bounds.network import Network
from attnlaw.bounds.norm_based import NORMS, log_norm_based_error
from attnlaw.bounds.spectrum_adaptive import Contribution, proxy


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of the numbers of the same names in `Proxies`, of logarithms where these are logarithms."""

    log_alpha: tuple[float, ...]
    spectrum_adaptive: float
    continuous: float
    fixed: dict[int, float]
    norm_based: dict[str, float]
    adaptivity: float | None
    per_layer_adaptivity: tuple[float | None, ...]


def proxy_errors(network: Network, parts: Sequence[Contribution]) -> Errors | None:
    """The errors of every proxy, from the contributions of its matrices; None where all spectra are exact."""
    upper = raised(network)
    if upper is None:
        return None
    depth, hidden_size = network.depth, network.hidden_size

    def summed(logs: Sequence[float], errors: Sequence[LogError | None]) -> float:
        """Of ln(sum of exponentials + sqrt(L))."""
        weights = np.exp(np.array(logs) - proxy(np.array(logs), depth))
        terms = zip(parts, weights, errors, strict=True)
        return combined((part.factors.place, float(w), error) for part, w, error in terms if error)

    middle = parts[0].log_curve.size // 2
    return Errors(
        log_alpha=tuple(
            rise(high, value) for high, value in zip(log_alpha(upper), log_alpha(network), strict=True)
        ),
        spectrum_adaptive=summed([part.log_value for part in parts], [part.log_error for part in parts]),
        continuous=summed(
            [part.continuous_log_value for part in parts], [part.continuous_log_error for part in parts]
        ),
        fixed={
            p: summed(
                [part.log_curve[p * middle] for part in parts], [part.fixed_log_errors[p] for part in parts]
            )
            for p in (0, 1, 2)
        },
        norm_based={
            name: log_norm_based_error([part.factors for part in parts], norm) for name, norm in NORMS.items()
        },
        adaptivity=adaptivity_error(parts, depth, hidden_size),
        per_layer_adaptivity=tuple(
            adaptivity_error([part for part in parts if part.factors.layer == layer], depth, hidden_size)
            for layer in range(len(network.layers))
        ),
    )
