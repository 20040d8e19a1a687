"""The open checkpoint of a Transformer, which reads matrices, biases and norms when they are needed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.blocks import LAYER, NONE, Norm, NormFold, Product, StoredLayer, View
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.network import Network
from attnlaw.checkpoints.tensors import Tensors, require_real
from attnlaw.core.arrays import SMALLEST, Reals, as_float
from attnlaw.core.words import count_of

PLAIN = re.compile(r"b?float\d+(_\w+)?|u?int\d+|bool|complex\d+")  # names of types that are not codes
MOST_CODES = 3  # the largest number of codes that are named


@dataclass(frozen=True)
class MissingTensor:
    """A tensor that a checkpoint should have but lacks, so that its model is read without it."""

    name: str
    reason: str  # what shows that it should be there
    grave: bool = True  # whether numbers of the layers are wrong without it


@dataclass(frozen=True, repr=False)
class Model:
    """An open checkpoint of a Transformer.

    Args:
        name: the name of the model in rows.
        family: the model type, or the name of the family whose tensor names the checkpoint has.
        network: the tree of the model's matrices, which are not read yet.
        layers: the layers as they are stored.
        embedding_view, unembedding_view: the token embedding and the output matrix, or None if not found.
        extensions: features that the plain post-norm encoder of the bounds does not have.
        warnings: sentences about the parts that were not read and about the limits of the numbers.
        missing: tensors that the checkpoint should have but lacks.
        config: the values from which the sizes were read.
        keeps_float32: true to read weights stored in less than 32 bits as float32 instead of float64.
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
    missing: tuple[MissingTensor, ...] = ()

    @property
    def hidden_size(self) -> int | None:
        """The width N of the layers, or None if they have different widths."""
        return self.network.hidden_size

    def __repr__(self) -> str:
        sizes = {"layers": len(self.layers), "hidden size": self.hidden_size, "heads": self.heads}
        known = [f"{name} {size}" for name, size in sizes.items() if size]
        return f"<Model {self.name}: {', '.join([self.family, *known])}>"

    @property
    def heads(self) -> int | None:
        """The number of heads in the first layer, or None without layers or with several towers."""
        return self.layers[0].attention.heads if self.layers and not self.network.towers else None

    @property
    def codes(self) -> str | None:
        """The codes of matrices, such as "GPTQ 4-bit, groups of 128 (224 of 226 matrices)"."""
        dtypes = [self.tensors.dtype(name) for name, shape in self.tensors.shapes.items() if len(shape) > 1]
        counts = Counter(dtype for dtype in dtypes if not PLAIN.fullmatch(dtype))
        common = counts.most_common(MOST_CODES)
        listed = [f"{code} ({count} of {len(dtypes)} matrices)" for code, count in common]
        more = len(counts) - MOST_CODES
        return ("; ".join(listed) + (f" and {more} more codes" if more > 0 else "")) or None

    def layer(self, number: int) -> StoredLayer:
        """Return the layer with that number. The numbers also count layers of linear attention."""
        return next(layer for layer in self.layers if layer.index == number)

    def read(self, view: View) -> Reals:
        """Read a matrix of shape (in, out), as float64 unless `keeps_float32` is set."""
        stored = self._stored(view.tensor, view.member)
        part = stored[view.columns].T if view.stored_out_in else stored[:, view.columns]
        if self.keeps_float32 and self.is_narrow(view):
            return self._finite(as_float(part, np.float32, copy=False), view.tensor)
        matrix = self._finite(as_float(part), view.tensor)
        return matrix if view.after is None else self._product(view, self.read(view.after), matrix)

    def _product(self, view: View, first: Reals, second: Reals) -> Reals:
        """Return the product of two stored matrices. Raise an `InputError` if it is too small for float64."""
        product = first @ second
        if np.abs(product).max() < SMALLEST and first.any() and second.any():
            scaled = (first / np.abs(first).max()) @ (second / np.abs(second).max())
            if scaled.any():
                raise self.tensors.error(
                    f"the product of {' and '.join(view.tensors)} is smaller than {SMALLEST:.2g}, too small "
                    "for float64; multiply these weights by a large power of two"
                )
        return np.asarray(product)

    def is_narrow(self, view: View) -> bool:
        """Return whether a matrix is one tensor stored in 16 bits or less."""
        return view.after is None and self.tensors.dtype(view.tensor) not in ("float64", "float32")

    def bias(self, view: View) -> Reals:
        """Read the bias that is added to a matrix's outputs. If there is no bias, return zeros."""
        if view.bias is None:
            return np.zeros(view.shape[1])
        return self._finite(as_float(self._stored(view.bias, view.member)[view.columns]), view.bias)

    def gain(self, norm: Norm) -> Reals:
        """Read the gain of a norm. If there is no gain, return an array with the single entry 1."""
        return np.ones(1) if norm.gain is None else self._vector(norm.gain) + norm.offset

    def shift(self, norm: Norm) -> Reals:
        """Read the bias of a norm. If there is no bias, return an array with the single entry 0."""
        return np.zeros(1) if norm.bias is None else self._vector(norm.bias)

    def applied(self, norm: Norm, matrix: Reals) -> Reals:
        """Return the matrix with a norm folded in, which acts on the normalised vector without gain."""
        return matrix if norm.kind == NONE else self.fold(norm)(matrix)

    def fold(self, norm: Norm) -> NormFold:
        """Read a norm as the matrix that it puts before the matrices it feeds."""
        return NormFold(self.gain(norm), norm.kind == LAYER)

    def _vector(self, name: str) -> Reals:
        return self._finite(as_float(self._stored(name)), name)

    def _stored(self, name: str, member: int | None = None) -> NDArray[Any]:
        return require_real(self.tensors.read(name, member), self.tensors.source, name)

    def _finite(self, array: Reals, name: str) -> Reals:
        # The sum needs no temporary array. Entries can only be non-finite if it is.
        with np.errstate(invalid="ignore", over="ignore"):
            total = array.sum()
        if not np.isfinite(total) and not np.isfinite(array).all():
            bad = int(array.size - np.count_nonzero(np.isfinite(array)))
            raise self.tensors.error(
                f"tensor {name} has {count_of(bad, 'NaN or infinite entry', 'NaN or infinite entries')}; the "
                "checkpoint is damaged, or training diverged: use an earlier checkpoint"
            )
        return array

    def embedding(self) -> Reals:
        """Read the token embeddings as float64, one row per token."""
        if self.embedding_view is None:
            raise self.tensors.error(
                f"attnlaw found no token embedding in this {self.family} model; leave out the numbers that "
                "need the embedding"
            )
        return self.read(self.embedding_view)
