"""The worst case of amplification, from the weights alone: products of factors (arXiv 2605.07297)."""

from __future__ import annotations

import os
from math import log
from typing import Any

from attnlaw.bounds.activations import lipschitz
from attnlaw.bounds.factors import log_alpha, log_layer_factor
from attnlaw.bounds.proxies import obstacle
from attnlaw.models.open import open_model
from attnlaw.spectra.measure import Selection, measure


def log10_worst_case(source: str | os.PathLike[str]) -> list[float] | None:
    """log10 of the product of the factors of layers k >= l, for each l; None where a checkpoint has none.

    It is alpha_{l-1} of arXiv 2605.07297. Measured amplification is in another norm, within sqrt(T).
    """
    network: Any = measure(open_model(source), Selection())
    if obstacle(network) is not None:
        return None
    constant = lipschitz(network.activation)
    factors = [log_layer_factor(network.layers[layer], constant) for layer in network.applications]
    return [(one + later) / log(10) for one, later in zip(factors, log_alpha(network), strict=True)]
