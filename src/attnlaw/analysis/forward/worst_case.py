"""The worst case, from the weights alone: products of factors over layers (arXiv 2605.07297)."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

from attnlaw.checkpoints.network import Network
from attnlaw.numerics.logs import LN10
from attnlaw.theory.bounds.activations import lipschitz
from attnlaw.theory.bounds.factors import log_alpha, log_layer_factor, matrix_factors
from attnlaw.theory.bounds.proxies import why_no_proxies


def log10_worst_case(spectra: Network[Any]) -> list[float] | None:
    """log10 of the product of the factors of layers k >= l, for each l; None where a network has none.

    It is alpha_{l-1} of arXiv 2605.07297. Measured amplification is in another norm, within sqrt(T).
    """
    if why_no_proxies(spectra) is not None or spectra.activation is None:
        return None
    constant = lipschitz(spectra.activation)
    factors = [log_layer_factor(spectra.layers[layer], constant) for layer in spectra.applications]
    return [(factor + later) / LN10 for factor, later in zip(factors, log_alpha(spectra), strict=True)]


def log_worst_scales(spectra: Network[Any]) -> list[float] | None:
    """ln of scale = gamma alpha L of every matrix, in the order of rows; None where a network has none."""
    if why_no_proxies(spectra) is not None:
        return None
    leaf_factors = [factors for _, factors in matrix_factors(replace(spectra, outside_layers=())).leaves()]
    return [
        factors.log_gamma.value + factors.log_alpha.value + log(spectra.depth) for factors in leaf_factors
    ]
