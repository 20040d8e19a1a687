"""A checkpoint as a Transformer, and how its weight matrices, biases and norms are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.blocks import LAYER, NONE, Norm, NormFold, Product, StoredLayer, View
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.network import Network
from attnlaw.checkpoints.tensors import Tensors, require_real
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError


@dataclass(frozen=True, repr=False)
class Model:
    """An open checkpoint: `layers` as they are stored, `network` as the theory uses them.

    Args:
        name: what rows call the model.
        family: the model type, or the family whose tensor names it has.
        network: the tree of its matrices, none of them read yet.
        embedding_view, unembedding_view: the token embedding and the output matrix, if they were found.
        extensions: features beyond the plain post-norm encoder for which the bounds were stated.
        warnings: sentences about what was not read, or what the numbers do not cover.
        config: the values from which the sizes were read.
        keeps_float32: read weights stored in less than 32 bits as float32 instead of float64.
    """

    name: str
    family: str
    tensors: Tensors
    network: Network[Product]
    layers: tuple[StoredLayer, ...] = ()
    embedding_view: View | None = None
    unembedding_view: View | None = None
    extensions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    config: Config | None = None
    keeps_float32: bool = False

    @property
    def hidden_size(self) -> int | None:
        """The width N, if all layers have the same."""
        return self.network.hidden_size

    def __repr__(self) -> str:
        sizes = {"layers": len(self.layers), "hidden size": self.hidden_size, "heads": self.heads}
        known = [f"{name} {size}" for name, size in sizes.items() if size]
        return f"<Model {self.name}: {', '.join([self.family, *known])}>"

    @property
    def heads(self) -> int | None:
        """The heads of the first layer; None for a model without layers or with several towers."""
        return self.layers[0].attention.heads if self.layers and not self.network.towers else None

    def layer(self, number: int) -> StoredLayer:
        """Return the layer with that number. Layers of linear attention count, although they are not read."""
        return next(layer for layer in self.layers if layer.index == number)

    def read(self, view: View) -> Reals:
        """Read a matrix as float64, shape (in, out). Raise an `InputError` if an entry is NaN or infinite."""
        stored = self._stored(view.tensor, view.member)
        part = stored[view.columns].T if view.stored_out_in else stored[:, view.columns]
        if self.keeps_float32 and self.is_narrow(view):
            return self._finite(part.astype(np.float32, copy=False), view.tensor)
        matrix = self._finite(part.astype(np.float64), view.tensor)
        return matrix if view.after is None else self.read(view.after) @ matrix

    def is_narrow(self, view: View) -> bool:
        """Return whether a matrix is one tensor stored in 16 bits or less."""
        return view.after is None and self.tensors.dtype(view.tensor) not in ("float64", "float32")

    def bias(self, view: View) -> Reals:
        """Read the bias of a matrix's outputs; zeros if it has none."""
        if view.bias is None:
            return np.zeros(view.shape[1])
        return self._finite(self._stored(view.bias, view.member)[view.columns].astype(np.float64), view.bias)

    def gain(self, norm: Norm) -> Reals:
        """Read the gain of a norm; the number 1 if it has none."""
        return np.ones(1) if norm.gain is None else self._vector(norm.gain) + norm.offset

    def shift(self, norm: Norm) -> Reals:
        """Read the bias of a norm; the number 0 if it has none."""
        return np.zeros(1) if norm.bias is None else self._vector(norm.bias)

    def applied(self, norm: Norm, matrix: Reals) -> Reals:
        """Return the matrix with a norm folded in, so that it acts on the normalised vector without gain."""
        return matrix if norm.kind == NONE else self.fold(norm)(matrix)

    def fold(self, norm: Norm) -> NormFold:
        """Read a norm as a linear map that is applied before the matrices it feeds."""
        return NormFold(self.gain(norm), norm.kind == LAYER)

    def _vector(self, name: str) -> Reals:
        return self._finite(self._stored(name).astype(np.float64), name)

    def _stored(self, name: str, member: int | None = None) -> NDArray[Any]:
        return require_real(self.tensors.read(name, member), self.tensors.source, name)

    def _finite(self, array: Reals, name: str) -> Reals:
        # The sum needs no temporary array. Entries can only be non-finite if it is.
        with np.errstate(invalid="ignore", over="ignore"):
            total = array.sum()
        if not np.isfinite(total) and not np.isfinite(array).all():
            bad = int(array.size - np.count_nonzero(np.isfinite(array)))
            raise InputError(
                f"{self.tensors.source}: tensor {name} has {bad} NaN or infinite entries; "
                "the checkpoint is damaged or training diverged, use an earlier one"
            )
        return array

    def embedding(self) -> Reals:
        """Read the token embeddings as float64, one row per token."""
        if self.embedding_view is None:
            raise InputError(
                f"{self.tensors.source}: no token embedding was found in this {self.family} model; "
                "leave the embedding out"
            )
        return self.read(self.embedding_view)
