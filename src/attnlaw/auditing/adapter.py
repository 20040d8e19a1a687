"""Audit a LoRA adapter by itself: one row per weight it changes, the spectrum of what it adds there.

The update `s B A` of a weight is a product through r dimensions, measured from its thin factors like a head.
An adapter is no network, so there are no proxies; add it to its base model for those.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from attnlaw import __version__
from attnlaw.auditing.result import Audit
from attnlaw.auditing.rows import matrix_rows, spectrum_rows
from attnlaw.auditing.summary import MEANING
from attnlaw.base.errors import InputError, printable
from attnlaw.base.schema import LAYERS, MATRICES, SPECTRA
from attnlaw.base.tables import frame
from attnlaw.models import Model
from attnlaw.models.adapters import Adapter, Update, open_adapter
from attnlaw.models.open import open_file
from attnlaw.spectra import product_spectrum
from attnlaw.spectra.measure import Measured

KIND = "lora"
WARNING = "no proxies: an adapter is not a network; audit its base model with --adapter"


def audit_adapter(
    path: Path, name: str | None = None, progress: Callable[[int, int], None] | None = None
) -> Audit:
    """The spectra of every update of an adapter, in the order of its layers."""
    adapter = open_adapter(path, open_file)
    updates = sorted(adapter.updates, key=lambda update: (update.layer is None, update.layer or 0))
    measured = []
    with threadpool_limits(1):
        for done, update in enumerate(updates, start=1):
            measured.append(_measured(adapter, update))
            if progress is not None:
                progress(done, len(updates))
    model = Model(
        name=printable(name or str(path)),
        family=KIND,
        tensors=adapter.tensors,
        layers=(),
        applications=(),
        activation="none",
    )
    layers = sorted({update.layer for update in updates if update.layer is not None})
    return Audit(
        (_summary(model, len(layers), len(measured)),),
        frame(matrix_rows(model, measured, None), MATRICES),
        frame(spectrum_rows(model, measured), SPECTRA),
        frame(({"model": model.name, "layer": layer, "applications": 1} for layer in layers), LAYERS),
    )


def _measured(adapter: Adapter, update: Update) -> Measured:
    try:
        spectrum = product_spectrum(*adapter.factors(update))
    except OverflowError as error:
        raise InputError(
            f"{adapter.source}: the update of {update.module}: {error}; training diverged, "
            "use an earlier checkpoint"
        ) from error
    return Measured(update.layer, None, None, KIND, (update.down, update.up), spectrum)


def _summary(model: Model, layers: int, matrices: int) -> dict[str, Any]:
    """The keys of every audit's summary; what an adapter does not have is null."""
    return {
        "model": model.name,
        "family": KIND,
        "layers": layers,
        "distinct_layers": layers,
        "hidden_size": None,
        "heads": None,
        "matrices": matrices,
        "activation": None,
        "proxies": None,
        "per_application": None,
        "log10_alpha": None,
        "log10_alpha_error": None,
        "value_of_adaptivity": None,
        "value_of_adaptivity_error": None,
        "rank_count": None,
        "extensions": [],
        "warnings": [WARNING],
        "meaning": MEANING,
        "attnlaw_version": __version__,
    }
