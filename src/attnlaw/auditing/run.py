"""Audit one model: open, measure, bound, and put the numbers into rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attnlaw.auditing.adapter import audit_adapter
from attnlaw.auditing.result import Audit
from attnlaw.auditing.rows import layer_rows, matrix_rows, spectrum_rows
from attnlaw.auditing.summary import summarize
from attnlaw.base.errors import InputError
from attnlaw.base.schema import LAYERS, MATRICES, SPECTRA
from attnlaw.base.tables import frame
from attnlaw.bounds import ExpertSpectra, Heads, LayerSpectra, Network, Proxies, proxies
from attnlaw.bounds.activations import lipschitz
from attnlaw.models import Model, open_model
from attnlaw.models.adapters import is_adapter
from attnlaw.spectra import Spectrum
from attnlaw.spectra.measure import Measured, Selection, expected_seconds, measure


def audit(
    source: Any,
    *,
    name: str | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    layers: str | int | None = None,
    only: str | Sequence[str] | None = None,
    jobs: int | None = None,
    samples: int | None = None,
    approximate: bool = False,
    progress: Callable[[int, int], None] | None = None,
    expect: Callable[[float], None] | None = None,
) -> Audit:
    """Audit a checkpoint: the spectra of every head and feed-forward matrix, and the proxies they imply.

    `source` is a path (file, directory or index), an id on a model hub, a state dict or an `nn.Module`;
    `name` is what the rows call it (the path, or the module's class, unless given). `map` is a TOML file
    that describes an architecture of one's own; `adapter` is a LoRA adapter to add to the weights (as
    `source`, an adapter is audited by itself, whole). `layers` ("0:4", or one number) and `only` ("qk,vo" or
    ["qk", "vo"], also "cross", "ffn", "embedding", "unembedding") restrict what is measured; the proxies
    need every matrix and are null otherwise. `samples` adds proxy / sqrt(samples). `approximate`
    estimates the sums over singular values of very large matrices, with errors, instead of factorising
    them. `expect` is told the expected seconds before the work starts.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> audit(block, heads=2).matrices.select("kind", "head", "spectral_norm", "numerical_rank").rows()
    [('qk', 0, 1.0, 2), ('qk', 1, 1.0, 2), ('vo', 0, 2.0, 2), ('vo', 1, 2.0, 2)]
    """
    for option, value in (("--samples", samples), ("--jobs", jobs)):
        if value is not None and value < 1:
            raise InputError(f"{option} {value}: expected a positive number")
    if adapter is None and isinstance(source, str | os.PathLike) and is_adapter(Path(source)):
        return audit_adapter(Path(source), name, progress)
    model = open_model(source, heads, name, map, adapter)
    selection = Selection.parse(layers, only, len(model.layers), approximate)
    if expect is not None:
        expect(expected_seconds(model, selection, jobs))
    measured = measure(model, selection, jobs, progress)
    bounds, per_application, reason = _bounds(model, measured, selection)
    return Audit(
        (summarize(model, measured, bounds, per_application, samples, reason),),
        frame(matrix_rows(model, measured, bounds), MATRICES),
        frame(spectrum_rows(model, measured), SPECTRA),
        frame(layer_rows(model, measured, bounds), LAYERS),
    )


def _bounds(
    model: Model, measured: list[Measured], selection: Selection
) -> tuple[Proxies | None, Proxies | None, str | None]:
    """The proxies, the same per application where layers are shared, or why there are none."""
    if not selection.is_whole(model):
        return None, None, "no proxies: they need every matrix of every layer"
    if not model.complete:
        return None, None, "no proxies: feed-forward matrices of the layers could not be read"
    if model.hidden_size is None:
        widths = ", ".join(map(str, model.widths))
        return None, None, f"no proxies: they need one hidden size, the layers have {widths}"
    try:
        constant = lipschitz(model.activation)
    except InputError as error:
        return None, None, f"no proxies: {error}"
    network = _network(model, measured, model.hidden_size, constant)
    shared = len(model.applications) > len(model.layers)
    return proxies(network), proxies(network, per_application=True) if shared else None, None


def _network(model: Model, measured: list[Measured], hidden_size: int, constant: float) -> Network:
    found = {(row.layer, row.kind, row.head, row.expert): row.spectrum for row in measured}

    def heads(layer: int, prefix: str, count: int) -> Heads:
        qk, vo = (
            tuple(found[layer, f"{prefix}{kind}", head, None] for head in range(count))
            for kind in ("qk", "vo")
        )
        return Heads(qk, vo)

    def maps(layer: int, expert: int | None) -> dict[str, Spectrum | None]:
        kinds = {"inner": "ffn_in", "gate": "ffn_gate", "outer": "ffn_out"}
        return {name: found.get((layer, kind, None, expert)) for name, kind in kinds.items()}

    layers = tuple(
        LayerSpectra(
            attention=heads(layer.index, "", layer.attention.heads),
            cross=heads(layer.index, "cross_", layer.cross.heads) if layer.cross else None,
            **maps(layer.index, None),
            experts=tuple(
                ExpertSpectra(**maps(layer.index, number))  # type: ignore[arg-type]
                for number in range(len(layer.experts))
            ),
            router_sum=layer.router_sum,
        )
        for layer in model.layers
    )
    return Network(layers, model.applications, hidden_size, constant)
