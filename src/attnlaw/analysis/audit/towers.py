"""Towers beside each other (text and image): each is a network, with proxies of its own."""

from __future__ import annotations

import polars as pl

from attnlaw.analysis.audit.rows import log10
from attnlaw.analysis.columns import TOWERS
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import Network
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.proxies import Proxies, proxies, why_no_proxies


def tower_proxies(spectra: Network[Spectrum | None]) -> dict[str, Proxies]:
    """The proxies of every tower that has them."""
    towers = {tower.name: spectra.tower(tower) for tower in spectra.towers}
    return {name: proxies(tower) for name, tower in towers.items() if why_no_proxies(tower) is None}


def tower_table(model: Model, proxies_by_tower: dict[str, Proxies]) -> pl.DataFrame | None:
    """Sizes and proxies of each tower; None of a model without towers."""
    rows = []
    for tower in model.network.towers:
        bounds, network = proxies_by_tower.get(tower.name), model.network.tower(tower)
        values = {} if bounds is None else bounds.values
        rows.append(
            {
                "tower": tower.name,
                "layers": network.depth,
                "hidden_size": network.hidden_size,
                "heads": model.layers[tower.layers[0]].attention.heads,
                "activation": tower.activation,
                **{f"log10_{name}": log10(value) for name, value in values.items()},
            }
        )
    return quantity_frame(TOWERS, rows) if rows else None


def format_tower_proxies(proxies_by_tower: dict[str, Proxies]) -> str:
    """The spectrum-adaptive proxy of every tower."""
    shown = {name: log10(bounds.values["spectrum_adaptive"]) for name, bounds in proxies_by_tower.items()}
    return ", ".join(f"{name} 10^{value.value:.4g}" for name, value in shown.items() if value is not None)
