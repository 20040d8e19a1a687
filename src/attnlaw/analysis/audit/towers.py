"""Towers beside each other (text and image): each is a network, with proxies of its own."""

from __future__ import annotations

from typing import Any

from attnlaw.analysis.audit.rows import log10
from attnlaw.analysis.audit.summary import proxy_summary
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import Network
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.proxies import Proxies, proxies, why_no_proxies


def tower_proxies(spectra: Network[Spectrum | None]) -> dict[str, Proxies]:
    """The proxies of every tower that has them."""
    towers = {tower.name: spectra.tower(tower) for tower in spectra.towers}
    return {name: proxies(tower) for name, tower in towers.items() if why_no_proxies(tower) is None}


def tower_summaries(model: Model, proxies_by_tower: dict[str, Proxies]) -> list[dict[str, Any]]:
    """The entries of `towers` in summary.json: sizes and proxies of each."""
    summaries = []
    for tower in model.network.towers:
        bounds = proxies_by_tower.get(tower.name)
        named = {} if bounds is None else {name: log10(value) for name, value in bounds.values.items()}
        network = model.network.tower(tower)
        summaries.append(
            {
                "tower": tower.name,
                "layers": network.depth,
                "hidden_size": network.hidden_size,
                "heads": model.layers[tower.layers[0]].attention.heads,
                "activation": tower.activation,
                "proxies": proxy_summary(named, ""),
            }
        )
    return summaries


def format_tower_proxies(proxies_by_tower: dict[str, Proxies]) -> str:
    """The spectrum-adaptive proxy of every tower."""
    shown = {name: log10(bounds.values["spectrum_adaptive"]) for name, bounds in proxies_by_tower.items()}
    return ", ".join(f"{name} 10^{value.value:.4g}" for name, value in shown.items() if value is not None)
