"""A checkpoint read as a Transformer: its blocks, and the matrices and vectors that they name, read."""

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
    """A checkpoint read as a Transformer: `layers` as they are stored, `network` as the theory reads them.

    `extensions` names what goes beyond the plain post-norm encoder that the bounds were stated for. `config`
    has the values that its sizes were read from. A `keeps_float32` model reads as float32 what is stored in
    less; nothing is lost.
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
        """N, where all layers have the same."""
        return self.network.hidden_size

    def __repr__(self) -> str:
        sizes = {"layers": len(self.layers), "hidden size": self.hidden_size, "heads": self.heads}
        known = [f"{name} {size}" for name, size in sizes.items() if size]
        return f"<Model {self.name}: {', '.join([self.family, *known])}>"

    @property
    def heads(self) -> int | None:
        """Of the first layer; None without layers, and where several towers have their own."""
        return self.layers[0].attention.heads if self.layers and not self.network.towers else None

    def layer(self, number: int) -> StoredLayer:
        """The layer of that number; numbers of layers of another kind (linear attention) are left out."""
        return next(layer for layer in self.layers if layer.index == number)

    def read(self, view: View) -> Reals:
        """The map as float64, shape (in, out); NaN and infinity are refused by the tensor's name."""
        stored = self._stored(view.tensor, view.member)
        part = stored[view.columns].T if view.stored_out_in else stored[:, view.columns]
        if self.keeps_float32 and self.is_narrow(view):
            return self._finite(part.astype(np.float32, copy=False), view.tensor)
        matrix = self._finite(part.astype(np.float64), view.tensor)
        return matrix if view.after is None else self.read(view.after) @ matrix

    def is_narrow(self, view: View) -> bool:
        """Whether a map is one tensor that is stored in 16 bits or less."""
        return view.after is None and self.tensors.dtype(view.tensor) not in ("float64", "float32")

    def bias(self, view: View) -> Reals:
        """What is added to the outputs of a map."""
        if view.bias is None:
            return np.zeros(view.shape[1])
        return self._finite(self._stored(view.bias, view.member)[view.columns].astype(np.float64), view.bias)

    def gain(self, norm: Norm) -> Reals:
        """What a norm multiplies zhat by; the number 1 where it has no gain."""
        return np.ones(1) if norm.gain is None else self._vector(norm.gain) + norm.offset

    def shift(self, norm: Norm) -> Reals:
        """What a norm adds in the end; the number 0 where it has no bias."""
        return np.zeros(1) if norm.bias is None else self._vector(norm.bias)

    def applied(self, norm: Norm, matrix: Reals) -> Reals:
        """The map from zhat: the gain of the norm folded in, and the mean projected out that it takes off."""
        return matrix if norm.kind == NONE else self.fold(norm)(matrix)

    def fold(self, norm: Norm) -> NormFold:
        """What a norm puts before the maps that read it."""
        return NormFold(self.gain(norm), norm.kind == LAYER)

    def _vector(self, name: str) -> Reals:
        return self._finite(self._stored(name).astype(np.float64), name)

    def _stored(self, name: str, member: int | None = None) -> NDArray[Any]:
        return require_real(self.tensors.read(name, member), self.tensors.source, name)

    def _finite(self, array: Reals, name: str) -> Reals:
        # One pass without a temporary array: only where the sum is not finite can an entry be so.
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
        """The token embeddings, one row per token, float64."""
        if self.embedding_view is None:
            raise InputError(
                f"{self.tensors.source}: no token embedding was found in this {self.family} model; "
                "leave the embedding out"
            )
        return self.read(self.embedding_view)
