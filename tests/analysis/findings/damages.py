"""Damaged copies of a model, as files get damaged: each with the rules that should see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import BIAS, NORM_GAIN
from attnlaw.analysis.findings.scan import known_tensors
from attnlaw.checkpoints.blocks import Attention, StoredLayer, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.tensors import InMemoryTensors
from attnlaw.core.variants import by_name

Matrix = NDArray[np.float64]


class Weights:
    """The tensors of a model in memory, read and written as maps of shape (in, out)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tensors = {name: np.array(model.tensors.read(name)) for name in model.tensors.shapes}

    def read(self, view: View) -> Matrix:
        stored = self.tensors[view.tensor]
        return (stored[view.columns].T if view.stored_out_in else stored[:, view.columns]).astype(float)

    def write(self, view: View, matrix: Matrix) -> None:
        stored = self.tensors[view.tensor]
        if view.stored_out_in:
            stored[view.columns] = matrix.T
        else:
            stored[:, view.columns] = matrix

    def change(self, view: View, function: Callable[[Matrix], Matrix]) -> None:
        self.write(view, function(self.read(view)))

    @property
    def changed(self) -> Model:
        return replace(self.model, tensors=InMemoryTensors(self.tensors))


@dataclass(frozen=True)
class Damage:
    name: str
    change: Callable[[Weights, StoredLayer, np.random.Generator], None]
    rules: tuple[str, ...]
    whole: bool = False  # whether it is found in the model as a whole, and not in a layer

    def __call__(self, model: Model, layer: int) -> Model:
        weights = Weights(model)
        self.change(weights, model.layers[layer], np.random.default_rng(layer))
        return weights.changed


def maps(layer: StoredLayer) -> list[View]:
    """The six maps of a layer without a gate."""
    attention = layer.attention
    assert layer.feed_forward is not None
    return [
        attention.query,
        attention.key,
        attention.value,
        attention.output,
        layer.feed_forward.inner,
        layer.feed_forward.outer,
    ]


def _head(attention: Attention, matrix: Matrix, head: int) -> Matrix:
    size = matrix.shape[1] // attention.heads
    return matrix[:, head * size : (head + 1) * size]


def _nan(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    matrix = weights.read(layer.attention.query)
    matrix[1, 2] = np.nan
    weights.write(layer.attention.query, matrix)


def _zero(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    weights.tensors[layer.attention.output.tensor][:] = 0


def _constant(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    weights.tensors[layer.attention.output.tensor][:] = 0.02


def _pruned(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    """A fifth of the neurons."""
    assert layer.feed_forward is not None
    inner, outer = (weights.read(view) for view in (layer.feed_forward.inner, layer.feed_forward.outer))
    gone = rng.choice(inner.shape[1], inner.shape[1] // 5, replace=False)
    inner[:, gone], outer[gone] = 0, 0
    weights.write(layer.feed_forward.inner, inner)
    weights.write(layer.feed_forward.outer, outer)


def _cut(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    """A fifth of the inputs of the feed-forward block."""
    assert layer.feed_forward is not None
    inner = weights.read(layer.feed_forward.inner)
    inner[rng.choice(inner.shape[0], inner.shape[0] // 5, replace=False)] = 0
    weights.write(layer.feed_forward.inner, inner)


def int4(stored: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blocks of 32 along the stored rows, rounded to 4 bits by their largest magnitude."""
    blocks = stored.reshape(-1, 32)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 7
    return (np.round(blocks / np.where(step > 0, step, 1)) * step).astype(stored.dtype).reshape(stored.shape)


def _int4(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    for view in maps(layer):
        weights.tensors[view.tensor] = int4(weights.tensors[view.tensor])


def float8(stored: NDArray[np.float32]) -> NDArray[np.float32]:
    """Float8 (E4M3) with a scale for each row, as exports write it, stored as floats again."""
    scale = np.abs(stored).max(axis=1, keepdims=True) / 448
    return ((stored / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale).astype(stored.dtype)


def _float8(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    for view in maps(layer):
        weights.tensors[view.tensor] = float8(weights.tensors[view.tensor])


def _zero_head(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    matrix = weights.read(layer.attention.value)
    _head(layer.attention, matrix, 1)[:] = 0
    weights.write(layer.attention.value, matrix)


def _vectors(weights: Weights, part: str) -> list[NDArray[np.float32]]:
    roles = known_tensors(weights.model).by_tensor
    return [weights.tensors[name] for (name, _), role in roles.items() if role.part == part]


def _gains_one(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    for gain in _vectors(weights, NORM_GAIN):
        gain[:] = 1


def _biases_zero(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    for bias in _vectors(weights, BIAS):
        bias[:] = 0


def _tokens(weights: Weights) -> NDArray[np.float32]:
    assert weights.model.embedding_view is not None
    return weights.tensors[weights.model.embedding_view.tensor]


def _random_tokens(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    tokens = _tokens(weights)
    tokens[:] = tokens.std() * rng.standard_normal(tokens.shape)


def _erased_tokens(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    _tokens(weights)[::3] = 0


def _duplicated(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    other = weights.model.layers[layer.index - 1 if layer.index else 1]
    for view, copied in zip(maps(layer), maps(other), strict=True):
        weights.tensors[view.tensor] = weights.tensors[copied.tensor].copy()


def _copied_head(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    attention = layer.attention
    for view, across in (
        (attention.query, 1),
        (attention.key, 1),
        (attention.value, 1),
        (attention.output, 0),
    ):
        matrix = weights.read(view)
        heads = matrix if across else matrix.T
        _head(attention, heads, 1)[:] = _head(attention, heads, 0)
        weights.write(view, matrix)


def _zero_value(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    weights.change(layer.attention.value, np.zeros_like)


def _zero_query(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    weights.change(layer.attention.query, np.zeros_like)


def _random_head(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    attention = layer.attention
    for view, across in (
        (attention.query, 1),
        (attention.key, 1),
        (attention.value, 1),
        (attention.output, 0),
    ):
        matrix = weights.read(view)
        part = _head(attention, matrix if across else matrix.T, 1)
        part[:] = matrix.std() * rng.standard_normal(part.shape)
        weights.write(view, matrix)


def _random_layer(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    for view in maps(layer):
        weights.change(view, lambda matrix: matrix.std() * rng.standard_normal(matrix.shape))


def _scaled(factor: float, place: int) -> Callable[[Weights, StoredLayer, np.random.Generator], None]:
    def change(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
        weights.change(maps(layer)[place], lambda matrix: factor * matrix)

    return change


def _transposed(place: int) -> Callable[[Weights, StoredLayer, np.random.Generator], None]:
    def change(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
        weights.change(maps(layer)[place], lambda matrix: matrix.T.copy())

    return change


def _huge(weights: Weights, layer: StoredLayer, rng: np.random.Generator) -> None:
    matrix = weights.read(layer.attention.value)
    matrix[0, 0] = 7e4
    weights.write(layer.attention.value, matrix)


DAMAGES = by_name(
    Damage("a NaN", _nan, ("non-finite",)),
    Damage("an entry of 7e4", _huge, ("beyond-float16",)),
    Damage("a tensor of zeros", _zero, ("zero-tensor",)),
    Damage("a tensor of 0.02", _constant, ("constant-tensor",)),
    Damage("pruned neurons", _pruned, ("zero-rows",)),
    Damage("inputs cut off", _cut, ("zero-rows", "rank-deficient")),
    Damage("an int4 layer", _int4, ("coarse-grid",)),
    Damage("a float8 layer", _float8, ("float8-trace",)),
    Damage("a duplicated layer", _duplicated, ("copied-layer", "identical-tensors", "duplicate-layers")),
    Damage("a head of zeros", _zero_head, ("dead-map",)),
    Damage("all gains 1", _gains_one, ("gains-one",), whole=True),
    Damage("all biases 0", _biases_zero, ("biases-zero",), whole=True),
    Damage("random embeddings", _random_tokens, ("random-embedding",), whole=True),
    Damage("a third of the embeddings erased", _erased_tokens, ("zero-embedding-rows",), whole=True),
    Damage("a copied head", _copied_head, ("duplicate-heads",)),
    Damage("zeroed V", _zero_value, ("dead-map",)),
    Damage("zeroed Q", _zero_query, ("dead-map",)),
    Damage("a re-initialised head", _random_head, ("random-head",)),
    Damage("a re-initialised layer", _random_layer, ("untrained-layer",)),
    Damage("query x 10", _scaled(10, 0), ("unbalanced", "norm-outlier")),
    Damage("FFN in x 10", _scaled(10, 4), ("unbalanced", "norm-outlier")),
    Damage("query x 1000", _scaled(1000, 0), ("unbalanced", "saturated-scores", "logit-overflow")),
    Damage("transposed Q", _transposed(0), ("transposed",)),
    Damage("transposed K", _transposed(1), ("transposed",)),
    Damage("transposed V", _transposed(2), ("transposed",)),
    Damage("transposed O", _transposed(3), ("transposed",)),
)
