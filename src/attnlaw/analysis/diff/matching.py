"""Find what in a model corresponds to what in its base: stored tensors, heads and neurons.

Tensors are paired by their role, then by their name without a prefix. A role is a position in the network,
such as the query of layer 3. If one model stores several roles in one tensor and the other does not, each
role is compared on its own, under the name of the tensor that has only this role.

Heads are assigned by the mean cosine of their QK and VO (Hungarian method). Under grouped queries, groups are
assigned to groups, and then heads within them. The assignment of a layer is accepted only if every head that
moves has a cosine above 0.5 at its new position, and at least 0.1 more than at its old one. Otherwise
untrained weights would be reordered at cosines near 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.analysis.diff.update import HeadFactors, product_inner
from attnlaw.checkpoints.blocks import Norm, View
from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

Role = tuple[Any, ...]
Arrays = tuple[NDArray[Any] | None, NDArray[Any] | None]  # a tensor of the base and one of the model
# Types of tensors that are not weights: indices, masks, counters.
NOT_REAL = ("int", "uint", "bool", "complex", "i8", "i16", "i32", "i64")


@dataclass(frozen=True)
class TensorPair:
    """Two tensors, or parts of them, with the same role. A name is None if its model has no such tensor."""

    base: str | None
    model: str | None
    transposed: bool = False  # the tensors are stored as (out, in) in one model and as (in, out) in the other
    views: tuple[View, View] | None = None  # the parts that fill the role, if only one role is compared
    finer: str | None = None  # for a role, the name of the tensor that has no other role

    @property
    def name(self) -> str:
        """The name in reports: that of the only role in a tensor, or of the base, or of the model."""
        return self.finer or self.base or self.model or ""

    @property
    def tensors(self) -> tuple[str | None, str | None]:
        return self.base, self.model

    def read(self, base: Model, model: Model) -> Arrays:
        """Read both tensors as they are stored. A missing tensor is None."""
        before = None if self.base is None else base.tensors.read(self.base)
        return before, None if self.model is None else model.tensors.read(self.model)

    def orient(self, stored: Arrays) -> Arrays:
        """Return the compared parts of stored tensors, both in the orientation of the first."""
        before, after = stored
        if self.views is not None:
            parts = zip(stored, self.views, strict=True)
            before, after = (None if array is None else _part(array, view) for array, view in parts)
        elif self.transposed and after is not None:
            after = np.swapaxes(after, -1, -2)
        return before, after


def _part(stored: NDArray[Any], view: View) -> NDArray[Any]:
    """Return the part of a stored tensor that fills one role, with outputs as rows and inputs as columns."""
    matrix = stored if view.member is None else stored[view.member]
    return matrix[view.columns] if view.stored_out_in else matrix[:, view.columns].T


def pair_tensors(base: Model, model: Model) -> list[TensorPair]:
    """Pair the stored tensors of both models in the order of the base, then those of the model alone."""
    base_roles, model_roles = roles(base), roles(model)
    pairs = list(_pair_by_role(base_roles, model_roles))
    pairs += _vectors(base, model, base_roles, model_roles)
    known = {pair.base for pair in pairs}, {pair.model for pair in pairs}
    left0 = [name for name in base.tensors.shapes if _is_weight(base, name) and name not in known[0]]
    left1 = {name for name in model.tensors.shapes if _is_weight(model, name) and name not in known[1]}
    prefixes = _prefixes(pairs)
    for name in left0:
        partner = next((other for other in _candidates(name, pairs, prefixes) if other in left1), None)
        if partner is not None:
            left1.discard(partner)
        pairs.append(TensorPair(name, partner))
    order = {name: place for place, name in enumerate(base.tensors.shapes)}
    pairs.sort(key=lambda pair: order[str(pair.base)])
    return [*pairs, *(TensorPair(None, name) for name in model.tensors.shapes if name in left1)]


def roles(model: Model) -> dict[Role, View]:
    """Return for each role of the network the part of a tensor (a view) with this role."""
    role_views: dict[Role, View] = {}
    for layer in model.layers:
        blocks = {"attention": layer.attention, "cross": layer.cross, "feed_forward": layer.feed_forward}
        named = {**blocks, **{f"expert {number}": expert for number, expert in enumerate(layer.experts)}}
        for block, views in named.items():
            for part, view in vars(views).items() if views is not None else ():
                if isinstance(view, View):
                    role_views |= _chained((layer.stack, layer.index, block, part), view)
    for part, beside in (("embedding", model.embedding_view), ("unembedding", model.unembedding_view)):
        if beside is not None:
            role_views |= _chained((part,), beside)
    return role_views


def _chained(role: Role, view: View) -> dict[Role, View]:
    views = {role: view}
    return views if view.after is None else views | _chained((*role, "after"), view.after)


def _pair_by_role(base_roles: Mapping[Role, View], model_roles: Mapping[Role, View]) -> Iterator[TensorPair]:
    """Yield pairs of the same role: whole tensors, or each role if only one model stores them together."""
    shared = [role for role in base_roles if role in model_roles]
    ahead, back = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for role in shared:
        ahead[base_roles[role].tensor].add(model_roles[role].tensor)
        back[model_roles[role].tensor].add(base_roles[role].tensor)
    paired_names = set()
    for role in shared:
        views = base_roles[role], model_roles[role]
        name, other = (view.tensor for view in views)
        if len(ahead[name]) > 1 or len(back[other]) > 1:
            yield TensorPair(name, other, views=views, finer=other if len(ahead[name]) > 1 else name)
        elif name not in paired_names:
            paired_names.add(name)
            yield TensorPair(name, other, transposed=views[0].stored_out_in != views[1].stored_out_in)


def vector_roles(model: Model, views: Mapping[Role, View]) -> dict[Role, str | None]:
    """Return the tensors of biases, and of gains and shifts of norms, by role."""
    return {**_norms(model), **{(*role, "bias"): view.bias for role, view in views.items()}}


def layer_tensors(model: Model, layers: Sequence[int]) -> set[str]:
    """Return the names of all tensors of some layers, found by role or by the beginning of their name."""
    views = roles(model)
    tensors = {**{role: view.tensor for role, view in views.items()}, **vector_roles(model, views)}
    names: dict[Role, set[str]] = {}
    for role, name in tensors.items():
        if len(role) > 3 and name is not None:
            names.setdefault(role[:2], set()).add(name)
    chosen: set[str] = set()
    for key, inside in names.items():
        if key[1] not in layers:
            continue
        others = set().union(*(more for other, more in names.items() if other != key))
        stem = _common_start(inside)
        alone = stem and not any(name.startswith(stem) for name in others)
        chosen |= inside | {name for name in model.tensors.shapes if alone and name.startswith(stem)}
    return chosen


def _common_start(names: Iterable[str]) -> str:
    """Return the longest common start of names that ends in a dot."""
    columns = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return "".join(f"{words[0]}." for words in takewhile(lambda words: len(set(words)) == 1, columns))


def _vectors(
    base: Model, model: Model, base_roles: Mapping[Role, View], model_roles: Mapping[Role, View]
) -> list[TensorPair]:
    named0, named1 = vector_roles(base, base_roles), vector_roles(model, model_roles)
    partners: dict[str, str] = {}
    for role, name in named0.items():
        other = named1.get(role)
        if name is None or other is None or name in partners or other in partners.values():
            continue
        if base.tensors.shapes.get(name) == model.tensors.shapes.get(other):
            partners[name] = other
    return [TensorPair(name, other) for name, other in partners.items()]


def _norms(model: Model) -> dict[Role, str | None]:
    tensor_names: dict[Role, str | None] = {}
    for layer in model.layers:
        attentions = {"attention": layer.attention, "cross": layer.cross}
        norms: dict[str, Norm | None] = {}
        for block, attention in attentions.items():
            if attention is not None:
                norms |= {f"{block} norm": attention.norm, f"{block} memory": attention.memory_norm}
                norms[f"{block} query"] = attention.scores.query_norm
                norms[f"{block} key"] = attention.scores.key_norm
        if layer.feed_forwards:
            norms["feed_forward norm"] = layer.feed_forwards[0].norm
        for name, norm in norms.items():
            if norm is not None:
                tensor_names[layer.stack, layer.index, name, "gain"] = norm.gain
                tensor_names[layer.stack, layer.index, name, "bias"] = norm.bias
    return tensor_names


def _prefixes(pairs: list[TensorPair]) -> list[tuple[str, str]]:
    """Return the pairs of prefixes by which the names of paired tensors differ, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        if pair.base is not None and pair.model is not None:
            common = _common_end(pair.base, pair.model)
            if common:
                counts[pair.base.removesuffix(common), pair.model.removesuffix(common)] += 1
    return [key for key, _ in counts.most_common()]


def _common_end(first: str, second: str) -> str:
    """Return the longest common end of two names that starts after a dot."""
    pairs = zip(reversed(first.split(".")), reversed(second.split(".")), strict=False)
    common = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return ".".join(reversed(common))


def _candidates(name: str, pairs: list[TensorPair], prefixes: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the names that a tensor of the base may have in the other model, the most likely first."""
    yield name
    stem, _, end = name.rpartition(".")
    for pair in pairs:
        if pair.base is not None and pair.model is not None and pair.base == f"{stem}.weight":
            yield f"{pair.model.rpartition('.')[0]}.{end}"
    for prefix, other_prefix in prefixes:
        if name.startswith(prefix):
            yield other_prefix + name[len(prefix) :]


def _is_weight(model: Model, name: str) -> bool:
    return not model.tensors.dtype(name).lower().startswith(NOT_REAL)


def not_weights(base: Model, model: Model) -> list[str]:
    """Return the names of tensors of either model that hold no weights: indices, masks, counters."""
    names = [name for of in (base, model) for name in of.tensors.shapes if not _is_weight(of, name)]
    return list(dict.fromkeys(names))


FactorsByHead = Sequence[HeadFactors]
LEAST, GAIN = 0.5, 0.1
# A head with a larger cosine than this cannot have moved: it would need a cosine of 0.9 elsewhere.
SETTLED = 0.8


def match_heads(
    base: Sequence[FactorsByHead], model: Sequence[FactorsByHead], key_value_heads: int = 0
) -> list[int] | None:
    """Return for each head of the base the number of its head in the model, or None if no head moved.

    `base` and `model` have the factors of every head, for each kind of matrix (QK, VO).
    `key_value_heads` is 0 if it is the number of heads.

    >>> rng = np.random.default_rng(0)
    >>> heads = [(rng.standard_normal((16, 4)), rng.standard_normal((4, 16))) for _ in range(3)]
    >>> match_heads([heads], [[heads[1], heads[0], heads[2]]])
    [1, 0, 2]
    """
    kinds = list(zip(base, model, strict=True))
    if len(base[0]) == len(model[0]) and heads_in_place(same_head_cosines(*factors) for factors in kinds):
        return None
    cosines = np.mean([head_cosines(*factors) for factors in kinds], axis=0)
    if not np.isfinite(cosines).all():
        raise InputError(
            "these heads cannot be compared, because products of their weights exceed 1e308; scale the "
            "weights down"
        )
    return _accept_moves(cosines, _assign_heads(cosines, key_value_heads))


def head_cosines(base: FactorsByHead, model: FactorsByHead) -> Reals:
    """Return the cosine of every head of the base with every head of the model, for one kind of matrix."""
    norms0, norms1 = (np.array([_norm(head) for head in heads]) for heads in (base, model))
    lefts0, rights0, lefts1, rights1 = (
        np.hstack([head[side] if side == 0 else head[side].T for head in heads])
        for heads in (base, model)
        for side in (0, 1)
    )
    crossed = (lefts0.T @ lefts1) * (rights0.T @ rights1)
    d0, d1 = base[0][0].shape[1], model[0][0].shape[1]
    inner = crossed.reshape(len(base), d0, len(model), d1).sum(axis=(1, 3))
    return np.asarray(inner / np.maximum(np.outer(norms0, norms1), np.finfo(float).tiny))


def match_neurons(base: Reals, model: Reals) -> NDArray[np.intp] | None:
    """Return for each column of the base that of the model, or None if none moves or an order is not clear.

    A column with a cosine below 0.8 at its old position goes to the position with the largest cosine. If more
    than half of the columns are below 0.8, all columns are assigned in this way.
    """
    norms = [np.sqrt(np.maximum(np.einsum("ij,ij->j", part, part), 1e-300)) for part in (base, model)]
    diagonal = np.einsum("ij,ij->j", base, model) / norms[0] / norms[1]
    lost = np.flatnonzero(diagonal < SETTLED)
    order = np.arange(base.shape[1])
    if lost.size < 2:
        return None
    if lost.size > order.size / 2:
        lost = order.copy()
    cosines = base[:, lost].T @ model / norms[0][lost, None] / norms[1]
    order[lost] = cosines.argmax(axis=1)
    gained = cosines[np.arange(lost.size), order[lost]]
    moved = order[lost] != lost
    enough = (gained > LEAST) & (gained >= cosines[np.arange(lost.size), lost] + GAIN)
    if np.unique(order).size < order.size or not moved.any() or not enough[moved].all():
        return None
    return order


def is_folded(base: Reals, model: Reals, rounding: float) -> bool:
    """Return whether rows are those of the base times different numbers, up to a `rounding` of this norm."""
    squares = np.sum(base**2, axis=1)
    ratios = np.sum(base * model, axis=1) / np.maximum(squares, 1e-300)
    left = float(np.linalg.norm(model - ratios[:, None] * base))
    return bool(left <= 4 * rounding and np.ptp(ratios[squares > 0]) > 1e-3 * np.abs(ratios).max())


def heads_in_place(cosines: Iterable[Reals]) -> bool:
    """Return whether the mean cosine of every head with itself is so large that no head can have moved."""
    return bool((np.mean(list(cosines), axis=0) > SETTLED).all())


def same_head_cosines(base: FactorsByHead, model: FactorsByHead) -> Reals:
    cosines = []
    for head, other in zip(base, model, strict=False):
        norms = _norm(head) * _norm(other)
        cosines.append(product_inner(*head, *other) / norms if norms else 1.0)
    return np.array(cosines)


def _norm(head: HeadFactors) -> float:
    return float(np.sqrt(max(product_inner(*head, *head), 0.0)))


def _assign_heads(cosines: Reals, groups: int) -> NDArray[np.intp]:
    heads, others = cosines.shape
    if not groups or heads != others:
        return _best_assignment(cosines)
    size = heads // groups
    blocks = cosines.reshape(groups, size, groups, size).transpose(0, 2, 1, 3)
    within = np.array([[_best_assignment(block) for block in row] for row in blocks])
    totals = np.take_along_axis(blocks, within[..., None], axis=3)[..., 0].sum(axis=2)
    chosen = _best_assignment(totals)
    return np.concatenate([chosen[group] * size + within[group, chosen[group]] for group in range(groups)])


def _best_assignment(cosines: Reals) -> NDArray[np.intp]:
    """Return for each row a column (-1 for none) so that the sum of the cosines is largest."""
    rows, columns = scipy.optimize.linear_sum_assignment(-cosines)
    assignment = np.full(cosines.shape[0], -1, dtype=np.intp)
    assignment[rows] = columns
    return assignment


def _accept_moves(cosines: Reals, chosen: NDArray[np.intp]) -> list[int] | None:
    """Return the assignment; None if no head moves, or if a head gains too little cosine by moving."""
    moved = [(head, there) for head, there in enumerate(chosen) if there >= 0 and there != head]
    for head, there in moved:
        here = cosines[head, head] if head < cosines.shape[1] else -1.0
        if cosines[head, there] <= LEAST or cosines[head, there] < here + GAIN:
            return None
    return chosen.tolist() if moved else None
