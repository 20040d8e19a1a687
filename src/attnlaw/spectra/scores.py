r"""Sizes of the queries and keys of a head. Its largest logit follows from them (`theory.bounds.logits`).

A query or a key is y = z R + y0, where z is the output of a norm before its gain and bias.

| letter | meaning |
|---|---|
| zhat, N | output of the norm itself and its size: \|zhat\|^2 <= N (epsilon only shrinks it) |
| f | N / (N - 1) if the norm subtracts the mean, else 1 |
| z | zhat / sqrt(f), so \|z\|^2 <= N / f; isotropic tokens have variance 1 along each of its directions |
| G, y0 | sqrt(f) C diag(g) W and b W + bias: gain g and bias b of the norm folded into the matrix W |
| R | triangular factor of G by QR: \|G x\| = \|R x\| for every x |

A norm of the queries or keys themselves replaces the norm before the block: W drops out, G is sqrt(f) C
diag(g) of that norm, and N is the size of a head (or of all heads if `joint`). The norm between the two
matrices of latent attention does the same. The keys that all heads share read the norm before the block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy

from attnlaw.checkpoints.blocks import LAYER, NONE, Attention, Norm, View
from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals
from attnlaw.spectra.factored import triangular_factor
from attnlaw.spectra.head_sizes import Lengths, Root, ScorePart, ScoreSizes


@dataclass(frozen=True, eq=False)
class Side:
    """The queries or the keys of a head: all y = z `root` + `shift` with |z|^2 <= `square`."""

    root: Reals
    shift: Reals
    square: float
    factor: float | None = None  # `root` is this times the head's triangular factor; None if it is not

    def columns(self, chosen: slice) -> Side:
        """Return a copy that has only the chosen entries of y."""
        return replace(self, root=self.root[:, chosen], shift=self.shift[chosen], factor=None)

    def scale_columns(self, chosen: slice, factor: float) -> Side:
        """Return a copy in which the chosen entries of y are multiplied by a factor."""
        if factor == 1:
            return self
        scale = np.ones(self.shift.size)
        scale[chosen] = factor
        return replace(self, root=self.root * scale, shift=self.shift * scale, factor=None)


def missing_sizes_reason(block: Attention) -> str | None:
    """Return why attnlaw cannot compute the sizes of a block's queries and keys, or None if it can."""
    how, rotary = block.scores, block.scores.rotary
    if block.norm is None or block.source_norm is None:
        return "attnlaw does not know the norm layer before this layer"
    sides = ((block.norm, how.query_norm), (block.source_norm, how.key_norm), (block.source_norm, None))
    if any(qk_norm is None and norm.kind == NONE for norm, qk_norm in sides[: 3 if block.shared_key else 2]):
        return "there is no norm layer before this layer"
    if how.growing:
        return "the logits of this layer grow with the position"
    if rotary is not None and rotary.scale is None and _turned_columns(block) is not None:
        return "attnlaw does not know the type of rotary positions of this layer"
    return None


SideBuilder = Callable[[int, Reals, Root], Side]


class ScoreReader:
    """A reader of the sizes of each head's queries and keys. It reads shared tensors only once."""

    def __init__(self, model: Model, block: Attention) -> None:
        how, source = block.scores, block.source_norm
        self._block, self._turned = block, _turned_columns(block)
        self._query = _side_builder(model, block.query, block.norm, how.query_norm, block.heads)
        self._key = _side_builder(model, block.key, source, how.key_norm, block.kv_heads)
        shared = block.shared_key
        self._shared = None if shared is None else _side_builder(model, shared, source, None, 1)

    def __call__(
        self,
        head: int,
        pair: tuple[Reals, Reals],
        roots: tuple[Root, Root],
        values: Reals | None = None,
    ) -> ScoreSizes | None:
        """Return the sizes of a head, from its stored factors; None if they exceed float64.

        `roots` are their triangular factors with the norms folded in, and `values` the singular values of
        that product, if they are known.
        """
        rotary, turned = self._block.scores.rotary, self._turned
        with np.errstate(over="ignore", invalid="ignore"):
            query, keys = self._query(head, pair[0], roots[0]), self._keys(head, pair[1].T, roots[1])
            if turned is not None and rotary is not None and rotary.scale is not None:
                query = query.scale_columns(turned, rotary.scale)
                before = sum(side.shift.size for side in keys[:-1])  # the last side has all turned entries
                last = slice(turned.start - before, turned.stop - before)
                keys = [*keys[:-1], keys[-1].scale_columns(last, rotary.scale)]
            key = keys[0]
            if len(keys) > 1:
                root = scipy.linalg.block_diag(*(side.root for side in keys))
                shift = np.hstack([side.shift for side in keys])
                key = Side(root, shift, sum(side.square for side in keys))
            if not np.isfinite(np.linalg.norm(query.root) * np.linalg.norm(key.root)):
                return None
            whole = _part(query, key, turned is not None, values)
            if turned is None or turned == slice(0, query.shift.size):
                return ScoreSizes(whole, (whole,))
            bounds = sorted({0, turned.start, turned.stop, query.shift.size})
            pieces = [slice(*ends) for ends in pairwise(bounds)]
            key_pieces = [key.columns(piece) for piece in pieces] if len(keys) == 1 else keys
            pairs = zip(pieces, key_pieces, strict=True)
            parts = (_part(query.columns(piece), part, piece == turned) for piece, part in pairs)
            return ScoreSizes(whole, tuple(parts))

    def _keys(self, head: int, factor: Reals, factor_root: Root) -> list[Side]:
        """Return the keys as a list of sides: two for latent attention with a norm, the head's and the shared
        one.
        """
        block = self._block
        group = block.kv_head(head)
        if self._shared is None:
            return [self._key(group, factor, factor_root)]
        width, (whole, power) = block.key.shape[1] // block.kv_heads, factor_root
        shared = self._shared(0, factor[:, width:], (whole[:, width:], power))
        first = self._key(group, factor[:, :width], (whole[:, :width], power))
        if block.key.norm is not None:
            return [first, shared]
        root, shift = np.hstack([first.root, shared.root]), np.hstack([first.shift, shared.shift])
        return [Side(root, shift, first.square)]


def _turned_columns(block: Attention) -> slice | None:
    """Return the entries of a head that rotary positions or clipping change; None if there are none."""
    how = block.scores
    if how.clip is not None:
        return slice(0, block.head_size)
    if how.rotary is None or (how.normed_last and how.query_norm and how.key_norm):
        return None
    return slice(how.rotary.start, min(how.rotary.start + how.rotary.size, block.head_size))


def _side_builder(
    model: Model, view: View, norm: Norm | None, qk_norm: Norm | None, heads: int
) -> SideBuilder:
    """Return a function that builds one side of each head, fed by `norm` or normalised by `qk_norm`."""
    size = view.shape[1] // heads
    if qk_norm is not None:
        return _normed_side_builder(model, qk_norm, heads, size)
    assert norm is not None
    constant = _output_at_zero(model, view).reshape(heads, size)
    inner = None if view.norm is None else model.read(replace(view, after=None))
    fed = norm if view.norm is None else view.norm
    f, square = _spread(fed.kind, view.shape[0] if inner is None else inner.shape[0])
    bias = model.shift(fed)

    def side(head: int, factor: Reals, root: Root) -> Side:
        if inner is not None:
            factor = inner[:, head * size : (head + 1) * size]
            root = triangular_factor(model.applied(fed, factor))
        shift = np.broadcast_to(bias, factor.shape[0]) @ factor + constant[head]
        return Side(root[0] * (root[1] * f**0.5), shift, square, f**0.5 if inner is None else None)

    return side


def _normed_side_builder(model: Model, norm: Norm, heads: int, size: int) -> SideBuilder:
    """Return the builder of a side whose queries or keys are normalised, by head or over all heads."""
    gain, bias = (
        np.broadcast_to(vector if vector.size in (1, size) else vector.reshape(heads, size), (heads, size))
        for vector in (model.gain(norm), model.shift(norm))
    )
    f, square = _spread(norm.kind, size * heads if norm.joint else size)
    centred = norm.kind == LAYER and not norm.joint

    def side(head: int, factor: Reals, root: Root) -> Side:
        diagonal = np.diag(gain[head])
        return Side(f**0.5 * (diagonal - diagonal.mean(axis=0) if centred else diagonal), bias[head], square)

    return side


def _spread(kind: str, count: int) -> tuple[float, float]:
    f = count / (count - 1) if kind == LAYER and count > 1 else 1.0
    return f, count / f


def _output_at_zero(model: Model, view: View) -> Reals:
    """Return the constant that biases add to every output. A bias before an inner norm adds nothing."""
    if view.after is None or view.norm is not None:
        return model.bias(view)
    second = model.read(replace(view, after=None))
    return np.asarray(_output_at_zero(model, view.after) @ second + model.bias(view))


def _part(query: Side, key: Side, turned: bool, applied: Reals | None = None) -> ScorePart:
    """Return the sizes of queries and keys. `applied` has the singular values of their head, if known."""
    if applied is None or query.factor is None or key.factor is None:
        values = scipy.linalg.svdvals(query.root @ key.root.T, check_finite=False)
    else:
        values = applied * (query.factor * key.factor)
    return ScorePart(
        values,
        float(np.linalg.norm(query.root @ key.shift)),
        float(np.linalg.norm(key.root @ query.shift)),
        float(query.shift @ key.shift),
        (query.square, key.square),
        (_lengths(query), _lengths(key)) if turned else None,
    )


def _lengths(side: Side) -> Lengths:
    values, along = np.zeros(side.shift.size), np.zeros(side.shift.size)
    if side.shift.any():
        _, singular_values, right = scipy.linalg.svd(side.root, check_finite=False)
        along = (right @ side.shift) ** 2
    else:
        singular_values = scipy.linalg.svdvals(side.root, check_finite=False)
    values[: singular_values.size] = singular_values
    return Lengths(values, along, side.square)


def block_scores(model: Model, block: Attention, kind: str) -> list[ScoreSizes | None]:
    if missing_sizes_reason(block) is not None:
        return [None] * block.heads
    reader = ScoreReader(model, block)
    sizes = []
    for head, (left, right) in enumerate(block.factors(model, kind)):
        folded = block.applied(model, kind, left, right)
        assert folded is not None
        roots = triangular_factor(folded[0]), triangular_factor(folded[1].T)
        sizes.append(reader(head, (left, right), roots))
    return sizes
