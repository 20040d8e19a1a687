"""Norms of the gradients of an untrained model, for each layer and each weight matrix.

The model's own code runs on lazy matrices (`lazy_model`), so the law is exact for every family that
`transformers` has code for. A draw costs O(s^2 N) for each matrix, with s tokens and width N, and never
stores the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlaw.core.errors import require_extra
from attnlaw.core.library_messages import quiet_import, relayed_warnings
from attnlaw.core.progress import Progress, no_progress
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.records import GradientLaw, MatrixGradient, slopes, spread_of
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.wishart import Array

NUMBER = re.compile(r"\.(\d+)\.(.+)")  # the number of a layer in the name of a matrix, and the rest of it


def gradient_law(
    values: Mapping[str, Any],
    model: Architecture,
    tokens: Tokens,
    draws: int,
    seed: int,
    progress: Progress = no_progress,
) -> GradientLaw:
    """Compute the norms of the gradients of the loss in each weight matrix, over several random starts."""
    with require_extra("--gradients", "lens"), quiet_import():
        from attnlaw.theory.init.lazy_model import lazy_model
    drawn: dict[str, list[float]] = {}
    with relayed_warnings("transformers", model.name):  # once, although each draw builds the model again
        for draw in range(draws):
            progress(draw, draws)
            instance = lazy_model(values, seed * draws + draw, architecture=model)
            instance.loss(tokens, model.causal).backward()
            for name, matrix in instance.matrices.items():
                drawn.setdefault(name, []).append(matrix.gradient_norm())
    progress(draws, draws)
    return _law({name: np.array(norms) for name, norms in drawn.items()})


def _law(norms: Mapping[str, Array]) -> GradientLaw:
    layers: dict[int, Array] = {}
    matrices = []
    for name, values in norms.items():
        hit = NUMBER.search(name)
        layer = None if hit is None else int(hit[1]) + 1
        matrices.append(MatrixGradient(layer, name if hit is None else hit[2], spread_of(values)))
        if layer is not None:
            layers[layer] = layers.get(layer, np.zeros(len(values))) + values**2
    by_layer = {layer: np.sqrt(squares) for layer, squares in sorted(layers.items())}
    whole = np.sqrt(sum(layers.values()))
    return GradientLaw(
        norm=spread_of(whole),
        layers={layer: spread_of(values) for layer, values in by_layer.items()},
        matrices=tuple(matrices),
        exponent=None if len(by_layer) < 2 else spread_of(slopes([np.log(v) for v in by_layer.values()])),
    )
