"""All proxies of a network, with the errors that approximate spectra cause.

The proxies are spectrum-adaptive, with a fixed index, or norm-based. The value of adaptivity compares the
first two. The error of a sum over matrices follows from d ln(sum C) = sum (C / sum C) d ln C, where C are the
contributions of the matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlaw.checkpoints.network import Network
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.factors import lipschitz, log_alphas, log_alphas_applied, matrix_factors
from attnlaw.theory.bounds.log_errors import LogError, combine_log_errors
from attnlaw.theory.bounds.norm_based import log_norm_based
from attnlaw.theory.bounds.spectrum_adaptive import Contribution, contribution, proxy, value_of_adaptivity


@dataclass(frozen=True, eq=False)
class Proxies:
    """The natural logarithms of all proxies of a network.

    The module `factors` defines the number of layers L and the amplification alpha. The module
    `spectrum_adaptive` defines the contribution of a matrix and its Schatten index p. All proxies except the
    norm-based ones include the term sqrt(L). The error of an estimate is None if all spectra are exact.

    Args:
        contributions: the contribution of each matrix, in the tree of the network.
        log_alpha: logarithm of the amplification alpha for each application of a layer.
        log_alpha_applied: the same for matrices that include the gain of the norm before them. It is None if
            one of these spectral norms is unknown. No proxy uses this value.
        values: logarithm of each proxy in `BOUNDS`, by name.
        adaptivity: value of adaptivity of the whole network.
        per_layer_adaptivity: value of adaptivity of each layer.
        rank_count: whether p = 0 is the best index of every matrix that contributes. If so, the
            spectrum-adaptive proxy depends only on the ranks of the matrices.
    """

    contributions: Network[Contribution]
    log_alpha: tuple[Estimate, ...]
    log_alpha_applied: tuple[Estimate, ...] | None
    values: dict[str, Estimate]
    adaptivity: Estimate | None
    per_layer_adaptivity: tuple[Estimate | None, ...]
    rank_count: bool

    @property
    def parts(self) -> list[Contribution]:
        """The contributions of all matrices as a list, in the order of the table rows."""
        return [part for _, part in self.contributions.leaves()]


def why_no_proxies(network: Network[Spectrum | None]) -> str | None:
    """Return the reason why attnlaw cannot compute proxies of a network, or None if it can."""
    if not network.layers or network.activation is None:
        return "an adapter alone is not a network; audit its base model with --adapter"
    if any(spectrum is None for layer in network.layers for _, spectrum in layer.leaves()):
        return "the proxies need every matrix of every layer"
    if network.towers:
        return f"{' and '.join(tower.name for tower in network.towers)} are separate networks"
    if network.unread is not None:
        return network.unread
    if network.hidden_size is None:
        return f"the proxies need one hidden size, but the layers have {', '.join(map(str, network.widths))}"
    try:
        lipschitz(network.activation)
    except InputError as error:
        return str(error)
    return None


def proxies(network: Network[Any]) -> Proxies:
    """Compute every proxy of a network.

    A shared matrix counts once. To count every application, call `proxies(network.unroll())`. The docstring
    of the module `factors` lists the conventions.
    """
    layers: Network[Spectrum] = replace(network, outside_layers=())
    depth, hidden_size = network.depth, network.hidden_size
    assert hidden_size is not None
    contributions = matrix_factors(layers).map(lambda _, factors: contribution(factors, depth, hidden_size))
    by_layer = [[part for _, part in layer.leaves()] for layer in contributions.layers]
    parts = [part for group in by_layer for part in group]
    return Proxies(
        contributions=contributions,
        log_alpha=log_alphas(layers),
        log_alpha_applied=log_alphas_applied(layers),
        values=_values(parts, depth),
        adaptivity=value_of_adaptivity(parts, depth, hidden_size),
        per_layer_adaptivity=tuple(value_of_adaptivity(group, depth, hidden_size) for group in by_layer),
        rank_count=all(part.p == 0 for part in parts if part.log_value > -np.inf),
    )


def _values(parts: Sequence[Contribution], depth: int) -> dict[str, Estimate]:
    values = {
        f"spectrum_adaptive{end}": _log_proxy(
            parts,
            [getattr(part, f"{start}log_value") for part in parts],
            [getattr(part, f"{start}log_error") for part in parts],
            depth,
        )
        for start, end in (("", ""), ("continuous_", "_continuous"))
    }
    # The grid {0, 1/m, ..., 2} has 0 and 2 at its ends and 1 in the middle.
    middle = parts[0].log_curve.size // 2
    for bound in BOUNDS.values():
        if bound.index is not None:
            values[bound.name] = _log_proxy(
                parts,
                [float(part.log_curve[bound.index * middle]) for part in parts],
                [part.fixed_log_errors[bound.index] for part in parts],
                depth,
            )
        elif bound.norm is not None:
            values[bound.name] = log_norm_based([part.factors for part in parts], bound.norm)
    return values


def _log_proxy(
    parts: Sequence[Contribution], logs: Sequence[float], errors: Sequence[LogError | None], depth: int
) -> Estimate:
    """Return ln(sum of contributions + sqrt(L)) with its error, from the logarithms of all contributions."""
    total = proxy(np.array(logs), depth)
    if all(error is None for error in errors):
        return Estimate(total)
    weights = np.exp(np.array(logs) - total)
    terms = zip(parts, weights, errors, strict=True)
    return Estimate(
        total,
        combine_log_errors((part.factors.location, float(w), error) for part, w, error in terms if error),
    )
