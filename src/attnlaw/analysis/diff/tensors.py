"""One stored tensor of two models: numbers, and a verdict, the first of the table that holds.

| verdict of a matrix | when, d = W1 - W0, s its singular values, v the variance of the file's rounding |
|---|---|
| rounded | the base cast to a float format, or 99 percent of it on the grid of an integer scheme |
| low-rank | r = #{s > 1.1 edge} <= min/4 and `sum_{i>r} s_i^2 <= 2 (1 - r/n)(1 - r/m) sum v` |
| below-floor | the same with r = 0 |
| unrelated | |cos(W0, W1)| < max(0.2, 4/sqrt(nm)) |
| noise | s_1(d) < 1.1 times that of d with random signs, and |cos(d, W0)| < 0.05 |
| dense | else |

Tensors of three or more dimensions (stacked experts) are read as matrices of their last axis.

Which stored tensor of a model belongs to which of its base: by role, then by name without a prefix.

A role is a place of the network (the query of layer 3). Where one model stores several roles in one tensor
and the other does not, each role is compared by itself, under the name of the finer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.analysis.diff.rounding import Format, detect_format, file_rounding, rank_above, row_blocks
from attnlaw.analysis.diff.update import matrix_update_values
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.norms import Norm
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.arrays import Reals

LEAST_COSINE, CHANCE = 0.2, 4.0
NOISE_EDGE, NOISE_COSINE = 1.1, 0.05
# Relative error to which the largest value with random signs is found.
SIGNED_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class TensorChange:
    """What became of a tensor; numbers are None where they have no meaning.

    `values` are the singular values of the difference, `floor` what rounding leaves of them, where they were
    computed.
    """

    verdict: str
    format: Format | None = None
    rank: int | None = None
    size: float | None = None
    cosine: float | None = None
    unchanged: float | None = None
    max_change: float | None = None
    values: Reals | None = None
    floor: float | None = None

    @property
    def sqnr_db(self) -> float | None:
        """The base's power over that of the change, in decibels."""
        return -20 * float(np.log10(self.size)) if self.size else None


def compare_tensors(base: NDArray[Any], model: NDArray[Any], dtype: str) -> TensorChange:
    """Compare two arrays as they were read; `dtype` is the type that the model's file says.

    >>> base = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    >>> found = compare_tensors(base, base.astype(np.float16), "float16")
    >>> found.verdict, found.format.name, round(found.sqnr_db)
    ('rounded', 'float16', 74)
    """
    if base.shape != model.shape:
        return _compare_reshaped(base, model)
    if base.ndim != 2:
        base, model = (array.reshape(-1, array.shape[-1] if array.ndim > 2 else 1) for array in (base, model))
    sums = _sum_entries(base, model)
    if sums is None:
        return TensorChange("non-finite")
    if sums.largest == 0:
        return TensorChange("identical", **sums.numbers)
    if (form := detect_format(base, model, sums.size)) is not None:
        return TensorChange("rounded", form, **sums.numbers)
    if min(base.shape) < 2:
        return TensorChange("changed", **sums.numbers)
    floor, rounding = file_rounding(model, dtype)
    update = np.empty(base.shape)
    for rows in row_blocks(base.shape):
        np.subtract(model[rows], base[rows], out=update[rows], dtype=np.float64)
    update /= sums.scale
    values = matrix_update_values(update, floor / sums.scale)
    rank = rank_above(values, floor / sums.scale)
    verdict = _verdict(update, values, rank, rounding / sums.scale**2, sums)
    return TensorChange(verdict, None, rank, **sums.numbers, values=values * sums.scale, floor=floor)


@dataclass(frozen=True)
class _Sums:
    """Over the entries of two matrices, in units of `scale`: |W0|^2, |W1|^2, |d|^2, <W0, W1>, <W0, d>."""

    before: float
    after: float
    update: float
    inner: float
    along: float
    largest: float
    unchanged: float
    scale: float

    @property
    def size(self) -> float | None:
        return float(np.sqrt(self.update / self.before)) if self.before else None

    @property
    def cosine(self) -> float | None:
        if not self.before or not self.after:
            return None
        return self.inner / float(np.sqrt(self.before * self.after)) if self.largest else 1.0

    @property
    def numbers(self) -> dict[str, Any]:
        changed = self.largest * self.scale
        return {
            "size": self.size,
            "cosine": self.cosine,
            "unchanged": self.unchanged,
            "max_change": changed,
        }


def _sum_entries(base: NDArray[Any], model: NDArray[Any]) -> _Sums | None:
    """The sums, some rows at a time; None where an entry is not finite."""
    if not base.size:
        return _Sums(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    top = float(np.max([np.max([array.max(), -array.min()]) for array in (base, model)]))  # NaN stays
    if not np.isfinite(top):
        return None
    scale = 1.0 if top == 0 or 1e-70 < top < 1e70 else top  # squares of others leave float64
    before2 = after2 = update2 = inner = along = largest = 0.0
    equal = 0
    for rows in row_blocks(base.shape):
        before, after = (array[rows].astype(np.float64) / scale for array in (base, model))
        update = after - before
        before2 += float(np.vdot(before, before))
        after2 += float(np.vdot(after, after))
        update2 += float(np.vdot(update, update))
        inner += float(np.vdot(before, after))
        along += float(np.vdot(before, update))
        largest = max(largest, float(update.max()), -float(update.min()))
        equal += update.size - int(np.count_nonzero(update))
    return _Sums(before2, after2, update2, inner, along, largest, equal / base.size, scale)


def _compare_reshaped(base: NDArray[Any], model: NDArray[Any]) -> TensorChange:
    """Numbers of the rows that both have, where rows alone were added or taken away."""
    if base.ndim != model.ndim or base.shape[1:] != model.shape[1:]:
        return TensorChange("reshaped")
    rows = min(len(base), len(model))
    both = [array[:rows].reshape(-1, array.shape[-1] if array.ndim > 1 else 1) for array in (base, model)]
    sums = _sum_entries(*both)
    return TensorChange("non-finite") if sums is None else TensorChange("reshaped", **sums.numbers)


def _verdict(update: Reals, values: Reals, rank: int, rounding: float, sums: _Sums) -> str:
    (n, m), least = update.shape, min(update.shape)
    left = 2 * (1 - rank / n) * (1 - rank / m) * rounding
    if rank <= least / 4 and float(np.sum(values[rank:] ** 2)) <= left:
        return "low-rank" if rank else "below-floor"
    if sums.cosine is None or abs(sums.cosine) < max(LEAST_COSINE, CHANCE / np.sqrt(n * m)):
        return "unrelated"
    along = sums.along / float(np.sqrt(sums.update * sums.before))
    if abs(along) < NOISE_COSINE and values[0] < NOISE_EDGE * _random_sign_norm_bound(update):
        return "noise" if values[0] < NOISE_EDGE * _signed_norm(update) else "dense"
    return "dense"


def _random_sign_norm_bound(update: Reals) -> float:
    """More than the largest singular value with random signs ever is (Bandeira and van Handel 2016)."""
    columns, rows = (np.einsum(f"ij,ij->{side}", update, update).max() for side in "ji")
    largest = max(float(update.max()), -float(update.min()))
    return float(np.sqrt(columns) + np.sqrt(rows) + 2 * largest * np.sqrt(np.log(sum(update.shape))))


def _signed_norm(update: Reals, seed: int = 0) -> float:
    """The largest singular value of the update's entries with random signs."""
    rng = np.random.default_rng(seed)
    signed = np.where(rng.integers(0, 2, update.shape, dtype=bool), update, -update)
    if min(update.shape) < 16:  # too small for Lanczos
        return float(np.linalg.norm(signed, 2))
    start = rng.standard_normal(min(update.shape))
    top = scipy.sparse.linalg.svds(signed, k=1, tol=SIGNED_ERROR, v0=start, return_singular_vectors=False)
    return float(top[0])


Role = tuple[object, ...]
# Types of tensors that are no weights: indices, masks, counters.
NOT_REAL = ("int", "uint", "bool", "complex", "i8", "i16", "i32", "i64")


@dataclass(frozen=True)
class TensorPair:
    """A tensor of both models, of one alone (the other is None), or one role of them (`views`).

    `transposed`: they are stored (out, in) in one model and (in, out) in the other. `finer`: of a role, the
    name of the tensor that holds no other.
    """

    base: str | None
    model: str | None
    transposed: bool = False
    views: tuple[View, View] | None = None
    finer: str | None = None

    @property
    def name(self) -> str:
        """In the base; of an added tensor in the model, of a role in the finer of both."""
        return self.finer or self.base or self.model or ""

    @property
    def tensors(self) -> tuple[str | None, str | None]:
        return self.base, self.model


def pair_tensors(base: Model, model: Model) -> list[TensorPair]:
    """Every stored tensor of both models, in the base's order, then what the model added."""
    mine, theirs = roles(base), roles(model)
    pairs = list(_pair_by_role(mine, theirs))
    pairs += _vectors(base, model, mine, theirs)
    known = {name: {pair.tensors[place] for pair in pairs} for place, name in enumerate(("base", "model"))}
    left0 = [name for name in _weights(base.tensors) if name not in known["base"]]
    left1 = {name for name in _weights(model.tensors) if name not in known["model"]}
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
    """The places of the network and the views that fill them."""
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
    """The view, and those that are applied before it."""
    views = {role: view}
    return views if view.after is None else views | _chained((*role, "after"), view.after)


def _pair_by_role(mine: Mapping[Role, View], theirs: Mapping[Role, View]) -> Iterator[TensorPair]:
    """Tensors that fill the same roles; one by one the roles that are stored together in one model alone."""
    shared = [role for role in mine if role in theirs]
    ahead: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for role in shared:
        ahead.setdefault(mine[role].tensor, set()).add(theirs[role].tensor)
        back.setdefault(theirs[role].tensor, set()).add(mine[role].tensor)
    paired_names = set()
    for role in shared:
        views = mine[role], theirs[role]
        name, other = (view.tensor for view in views)
        if len(ahead[name]) > 1 or len(back[other]) > 1:
            yield TensorPair(name, other, views=views, finer=other if len(ahead[name]) > 1 else name)
        elif name not in paired_names:
            paired_names.add(name)
            yield TensorPair(name, other, transposed=views[0].stored_out_in != views[1].stored_out_in)


def _vectors(
    base: Model, model: Model, mine: Mapping[Role, View], theirs: Mapping[Role, View]
) -> list[TensorPair]:
    """Biases of the same roles, gains and shifts of the norms that the same blocks read, of equal shapes."""
    named0, named1 = (
        {**_norms(of), **{(*role, "bias"): view.bias for role, view in views.items()}}
        for of, views in ((base, mine), (model, theirs))
    )
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
                norms |= {
                    f"{block} query": attention.scores.query_norm,
                    f"{block} key": attention.scores.key_norm,
                }
        if layer.feed_forwards:
            norms["feed_forward norm"] = layer.feed_forwards[0].norm
        for name, norm in norms.items():
            if norm is not None:
                tensor_names[layer.stack, layer.index, name, "gain"] = norm.gain
                tensor_names[layer.stack, layer.index, name, "bias"] = norm.bias
    return tensor_names


def _prefixes(pairs: list[TensorPair]) -> list[tuple[str, str]]:
    """What stands before the part that the names of joined tensors share, the commonest first."""
    counts: dict[tuple[str, str], int] = {}
    for pair in pairs:
        if pair.base is not None and pair.model is not None:
            common = _common_end(pair.base, pair.model)
            if common:
                key = pair.base.removesuffix(common), pair.model.removesuffix(common)
                counts[key] = counts.get(key, 0) + 1
    return sorted(counts, key=lambda key: -counts[key])


def _common_end(first: str, second: str) -> str:
    """The longest common end that begins after a dot.

    >>> _common_end("bert.layer.0.key.weight", "layer.0.key.weight")
    'layer.0.key.weight'
    """
    parts, others = first.split("."), second.split(".")
    count = 0
    while count < min(len(parts), len(others)) and parts[-1 - count] == others[-1 - count]:
        count += 1
    return ".".join(parts[len(parts) - count :]) if count else ""


def _candidates(name: str, pairs: list[TensorPair], prefixes: list[tuple[str, str]]) -> Iterator[str]:
    """Names that the other model may have for a tensor: the same, beside its weight, under its prefix."""
    yield name
    stem, _, end = name.rpartition(".")
    for pair in pairs:
        if pair.base is not None and pair.model is not None and pair.base == f"{stem}.weight":
            yield f"{pair.model.rpartition('.')[0]}.{end}"
    for mine, theirs in prefixes:
        if name.startswith(mine):
            yield theirs + name[len(mine) :]


def _weights(tensors: Tensors) -> list[str]:
    return [name for name in tensors.shapes if not tensors.dtype(name).lower().startswith(NOT_REAL)]
