"""Towers beside each other (text and image): each is a network, with proxies of its own."""

from __future__ import annotations

from typing import Any

from attnlaw.auditing.rows import log10
from attnlaw.auditing.summary import entries
from attnlaw.bounds.proxies import Proxies, obstacle, proxies
from attnlaw.models.model import Model
from attnlaw.models.network import Network
from attnlaw.spectra.spectrum import Spectrum


def tower_proxies(spectra: Network[Spectrum | None]) -> dict[str, Proxies]:
    """The proxies of every tower that has them."""
    towers = {tower.name: spectra.tower(tower) for tower in spectra.towers}
    return {name: proxies(tower) for name, tower in towers.items() if obstacle(tower) is None}


def tower_summaries(model: Model, found: dict[str, Proxies]) -> list[dict[str, Any]]:
    """The entries of `towers` in summary.json: sizes and proxies of each."""
    summaries = []
    for tower in model.network.towers:
        bounds = found.get(tower.name)
        named = {} if bounds is None else {name: log10(value) for name, value in bounds.values.items()}
        own = model.network.tower(tower)
        summaries.append(
            {
                "tower": tower.name,
                "layers": own.depth,
                "hidden_size": own.hidden_size,
                "heads": model.layers[tower.layers[0]].attention.heads,
                "activation": tower.activation,
                "proxies": entries(named, ""),
            }
        )
    return summaries


def in_words(found: dict[str, Proxies]) -> str:
    """The spectrum-adaptive proxy of every tower."""
    shown = {name: log10(bounds.values["spectrum_adaptive"]) for name, bounds in found.items()}
    return ", ".join(f"{name} 10^{value.value:.4g}" for name, value in shown.items() if value is not None)
