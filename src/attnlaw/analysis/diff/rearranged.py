"""Find weights that are in another place than in the base: moved, transposed, or in another order.

A tensor whose change was not explained is looked for among all tensors of the base. Fused tensors (queries,
keys and values in one) are split into their roles first.

- moved: it equals another tensor of the base (a vector also after a cast). Or it is a matrix with a cosine
  below 0.9 that has a cosine above 0.9, and 0.3 more, with another matrix of its shape.
- transposed: a square matrix equals the transposed base except for rounding, or has such a cosine with it.
- permuted: rows (or columns) are in another order. Each one that moves has a cosine above 0.8 with its match,
  and 0.1 more than at its place, and the matrix is within 30 percent of the base in this order. A vector is
  permuted if its sorted values are equal, also after a cast.

Cosines with other tensors are computed on 4,096 fixed entries. Constant tensors are never looked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.matching import Arrays, Role, TensorPair, roles, vector_roles
from attnlaw.analysis.diff.places import join_words, layers_text
from attnlaw.analysis.diff.rounding import FLOATS, effective_format
from attnlaw.analysis.diff.tensors import TensorChange, as_matrix, compare_tensors
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import printable

SAMPLED = 4096
EXPLAINED = ("identical", "coded", "rounded", "zeroed", "below-floor")
SAME = ("identical", "rounded", "below-floor")
REARRANGED = ("moved", "transposed", "permuted")
MOVED_COSINE, MOVED_GAIN = 0.9, 0.3
ROW_COSINE, ROW_GAIN, MOST_APART = 0.8, 0.1, 0.3
# Share of the moved rows that must have this gain: similar rows gain less when they are exchanged.
CLEARLY_MOVED = 0.9
# A row that is this similar to the row at its place cannot have moved: it would need a cosine of 1.
SETTLED = 0.9
TRIED_ROWS, ROWS_AT_A_TIME = 16, 1024
MOST_LISTED = 2  # tensors that a sentence about a block names
HARMLESS = "same function"  # what sentences say of blocks that compute the same as before
PART_LABELS = {"inner": "FFN-in", "outer": "FFN-out", "gate": "FFN-gate"}


@dataclass(frozen=True, eq=False)
class TensorSample:
    """Entries of one role of a pair of tensors at fixed places."""

    pair: TensorPair
    role: Role | None
    shape: tuple[int, ...]  # of the base, if it has the tensor
    model_shape: tuple[int, ...]
    base: Reals | None = None
    model: Reals | None = None
    flipped: Reals | None = None  # the entries of the transposed base, if it is square


Compared = tuple[TensorPair, TensorChange, list[TensorSample]]
PairChange = tuple[TensorPair, TensorChange]


@dataclass(frozen=True, eq=False)
class RoleIndex:
    """The roles of the tensors of both models."""

    base: Model
    model: Model

    @cached_property
    def _views(self) -> tuple[dict[Role, View], dict[Role, View]]:
        return roles(self.base), roles(self.model)

    @cached_property
    def _by_tensor(self) -> tuple[dict[str, list[Role]], ...]:
        by_tensor: tuple[dict[str, list[Role]], ...] = defaultdict(list), defaultdict(list)
        for views, roles_of in zip(self._views, by_tensor, strict=True):
            for role, view in views.items():
                roles_of[view.tensor].append(role)
        return by_tensor

    @cached_property
    def _vectors(self) -> tuple[dict[str, Role], dict[str, Role]]:
        first, second = (
            {name: role for role, name in vector_roles(of, views).items() if name is not None}
            for of, views in zip((self.base, self.model), self._views, strict=True)
        )
        return first, second

    def parts(self, pair: TensorPair) -> list[tuple[TensorPair, Role | None]]:
        """Return the roles of a pair. A pair has several if every model that has it fuses them."""
        if pair.views is not None:
            return [
                (pair, next((role for role, view in self._views[0].items() if view == pair.views[0]), None))
            ]
        place = 1 if pair.base is None else 0
        name, views = str(pair.tensors[place]), self._views[place]
        others = views if pair.base is None or pair.model is None else self._views[1]
        shared = [role for role in self._by_tensor[place].get(name, []) if role in others]
        size = prod((self.base, self.model)[place].tensors.shapes[name])
        if len(shared) < 2 or any(prod(views[role].shape) >= size for role in shared):
            return [(pair, shared[0] if shared else self._vectors[place].get(name))]
        return [
            (replace(pair, views=(views[role], others[role]), finer=f"{pair.name} ({_label(role)})"), role)
            for role in shared
        ]


def _label(role: Role) -> str:
    words = [str(role[2])] if str(role[2]).startswith("expert") else []
    return " ".join([*words, PART_LABELS.get(str(role[3]), str(role[3]))])


def take_samples(index: RoleIndex, pair: TensorPair, stored: Arrays) -> list[TensorSample]:
    """Return the sampled entries of each role of a pair whose stored tensors were read."""
    samples = []
    for part, role in index.parts(pair):
        before, after = part.orient(stored)
        shapes = [() if array is None else array.shape for array in (before, after)]
        square = shapes[0] == shapes[1] == shapes[0][::-1] and len(shapes[0]) == 2
        flipped = before.T if square and before is not None else None
        entries = [None if array is None else _entries(array) for array in (before, after, flipped)]
        samples.append(TensorSample(part, role, shapes[0], shapes[1], *entries))
    return samples


def _entries(array: NDArray[Any]) -> Reals:
    """Return up to 4,096 entries of a tensor at places that depend on its shape alone."""
    if array.size <= SAMPLED:
        return array.astype(np.float64).ravel()
    places = np.random.default_rng(0).integers(array.size, size=SAMPLED)
    return np.asarray(array[np.unravel_index(places, array.shape)].astype(np.float64))


def _cosine(first: Reals, second: Reals) -> float:
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / length if length else 0.0


@dataclass(frozen=True, eq=False)
class Rearrangement:
    """The changes of two models, with verdicts for moved, transposed and permuted tensors."""

    changes: list[PairChange]
    sentences: list[str] = field(default_factory=list)  # on whole layers and blocks
    covered: frozenset[str] = frozenset()  # names of the pairs that the sentences are about
    harmless: frozenset[str] = frozenset()  # those whose block computes the same as before


def find_rearranged(base: Model, model: Model, compared: Sequence[Compared]) -> Rearrangement:
    """Look in other places of the base for the weights of every tensor whose change has no explanation."""
    search = _Search(base, model, [sample for *_, samples in compared for sample in samples])
    changes: list[PairChange] = []
    by_role: dict[Role, PairChange] = {}
    sources: dict[str, Role | None] = {}
    for pair, change, samples in compared:
        judged = [(sample, change) for sample in samples]
        if change.verdict not in (*EXPLAINED, "non-finite", "removed"):
            judged = search.judge(change, samples)
        whole = len(samples) > 1 and not any(new.verdict in REARRANGED for _, new in judged)
        changes += [(pair, change)] if whole else [(sample.pair, new) for sample, new in judged]
        by_role |= {sample.role: (sample.pair, new) for sample, new in judged if sample.role is not None}
    changes = search.join_renamed(changes)
    sources = {sample.pair.name: sample.role for sample in search.samples}
    summary = _Summary(base, model, by_role, sources)
    summary.describe_layers()
    summary.describe_attention()
    summary.describe_neurons()
    return Rearrangement(changes, summary.sentences, frozenset(summary.covered), frozenset(summary.harmless))


@dataclass(frozen=True, eq=False)
class _Search:
    base: Model
    model: Model
    samples: list[TensorSample]

    @cached_property
    def _by_shape(self) -> dict[tuple[int, ...], list[TensorSample]]:
        """The samples of the base that are not constant, by shape."""
        by_shape: dict[tuple[int, ...], list[TensorSample]] = {}
        for sample in self.samples:
            if sample.base is not None and sample.base.size and np.ptp(sample.base) > 0:
                by_shape.setdefault(sample.shape, []).append(sample)
        return by_shape

    @cached_property
    def _stacks(self) -> dict[tuple[int, ...], Reals]:
        by_shape = self._by_shape.items()
        return {shape: np.array([sample.base for sample in samples]) for shape, samples in by_shape}

    def join_renamed(self, changes: list[PairChange]) -> list[PairChange]:
        """Join tensors without a common role that each model alone has, if they are equal up to a cast."""
        lone = {pair.name: pair for pair, change in changes if change.verdict == "removed"}
        tied = None if self.base.embedding_view is None else self.base.embedding_view.tensor
        outputs = None if self.model.unembedding_view is None else self.model.unembedding_view.tensor
        joined: dict[str, PairChange] = {}
        used: set[str] = set()
        for pair, change in changes:
            source = change.source or ""
            is_same = change.verdict == "moved" and pair.base is None and _leaves_weights(change.then)
            is_tied = source == tied and pair.model == outputs
            if is_same and ((source in lone and source not in used) or is_tied):
                used.add(source)
                both = TensorPair(source, pair.model)
                before, after = both.orient(both.read(self.base, self.model))
                if before is not None and after is not None and before.shape == after.shape:
                    dtype = self.model.tensors.dtype(str(pair.model))
                    joined[pair.name] = both, compare_tensors(before, after, dtype)
        gone = {both.base for both, _ in joined.values()} & lone.keys()
        return [
            joined.get(pair.name, (pair, change))
            for pair, change in changes
            if not (change.verdict == "removed" and pair.name in gone)
        ]

    def judge(
        self, change: TensorChange, samples: list[TensorSample]
    ) -> list[tuple[TensorSample, TensorChange]]:
        if len(samples) == 1:
            return [(samples[0], self._judge(samples[0], change))]
        suspicious = any(
            sample.model is not None and (sample.base is None or _cosine(sample.base, sample.model) < SETTLED)
            for sample in samples
        )
        if not suspicious:
            return [(sample, change) for sample in samples]
        stored = samples[0].pair.read(self.base, self.model)
        dtype = self.model.tensors.dtype(str(samples[0].pair.model))
        parts = []
        for sample in samples:
            before, after = sample.pair.orient(stored)
            part = change if before is None or after is None else compare_tensors(before, after, dtype)
            parts.append((sample, part if part.verdict in EXPLAINED else self._judge(sample, part)))
        return parts

    def _judge(self, sample: TensorSample, change: TensorChange) -> TensorChange:
        """Return the change of one role: moved, transposed, permuted, or as it was."""
        if sample.model is None or not sample.model.size:
            return change
        vector = sum(side > 1 for side in sample.model_shape) < 2
        dtype = self.model.tensors.dtype(str(sample.pair.model))
        source = self._source(sample, change, vector, dtype)
        if source is not None:
            then = self._compare_with(source, sample, dtype)
            if then.verdict in ("identical", "rounded") or not vector:
                name = source.pair.name
                return replace(change, verdict="moved", source=name, then=describe(then), along=None)
        if sample.base is None or change.verdict in ("reshaped", "added"):
            return change
        if not (vector or self._may_move(sample, change)):
            return change
        before, after = sample.pair.orient(sample.pair.read(self.base, self.model))
        if before is None or after is None:
            return change
        if vector:
            return _judge_vector(before, after, dtype, change)
        if before.ndim == 2 and before.shape[0] == before.shape[1]:
            turned = compare_tensors(before.T, after, dtype)
            clear = (turned.cosine or 0.0) > max(MOVED_COSINE, (change.cosine or 0.0) + MOVED_GAIN)
            if turned.verdict in SAME or clear:
                return replace(change, verdict="transposed", then=describe(turned))
        return _judge_order(before, after, dtype, change)

    def _may_move(self, sample: TensorSample, change: TensorChange) -> bool:
        """Return whether a matrix must be read again: it may be transposed or in another order."""
        if change.least_cosine is not None and change.least_cosine < SETTLED:
            return True
        return sample.flipped is not None and _cosine(sample.flipped, sample.model) > MOVED_COSINE  # type: ignore[arg-type]

    def _source(
        self, sample: TensorSample, change: TensorChange, vector: bool, dtype: str
    ) -> TensorSample | None:
        """Return the tensor of the base that has the weights of a tensor; None if no other one has them."""
        samples, entries = self._by_shape.get(sample.model_shape, []), sample.model
        if not samples or entries is None or not np.ptp(entries) > 0:
            return None
        stack = rounded = self._stacks[sample.model_shape]
        if vector:
            stored = FLOATS[dtype].dtype if dtype in FLOATS else np.float64
            rounded = effective_format(entries[:, None].astype(stored), dtype).round_weights(stack)
        equal = np.flatnonzero((stack == entries).all(axis=1) | (rounded == entries).all(axis=1))
        others = [samples[place] for place in equal if samples[place].pair.name != sample.pair.name]
        if others:
            same_part = [other for other in others if _within(other.role) == _within(sample.role)]
            return (same_part or others)[0]
        cosine = change.cosine if change.cosine is not None else 0.0
        if vector or cosine >= MOVED_COSINE or change.verdict in ("low-rank", "rescaled"):
            return None
        lengths = np.linalg.norm(stack, axis=1) * np.linalg.norm(entries)
        cosines = stack @ entries / np.maximum(lengths, np.finfo(float).tiny)
        for place, other in enumerate(samples):
            if other.pair.name == sample.pair.name:
                cosines[place] = -1.0
        best = int(cosines.argmax())
        return samples[best] if cosines[best] > max(MOVED_COSINE, cosine + MOVED_GAIN) else None

    def _compare_with(self, source: TensorSample, sample: TensorSample, dtype: str) -> TensorChange:
        before = source.pair.orient((self.base.tensors.read(str(source.pair.base)), None))[0]
        after = sample.pair.orient((None, self.model.tensors.read(str(sample.pair.model))))[1]
        if before is None or after is None:
            return TensorChange("changed")
        return compare_tensors(before, after, dtype)


def _within(role: Role | None) -> Role | None:
    """Return what a role is within its layer, such as the query of the attention."""
    return None if role is None else role[2:]


def describe(change: TensorChange) -> str:
    if change.verdict == "low-rank":
        return f"low-rank {change.rank}"
    return f"rounded to {change.format.name}" if change.format is not None else change.verdict


def _judge_vector(base: NDArray[Any], model: NDArray[Any], dtype: str, change: TensorChange) -> TensorChange:
    """Return permuted if a vector has the values of the base in another order, also after a cast."""
    before, after = as_matrix(base).ravel(), as_matrix(model).ravel()
    grid = effective_format(after[:, None], dtype)
    for values, then in (
        (before.astype(np.float64), "identical"),
        (grid.round_weights(before), f"rounded to {grid.name}"),
    ):
        order = np.empty(values.size, dtype=np.intp)
        order[np.argsort(after, kind="stable")] = np.argsort(values, kind="stable")
        if np.array_equal(values[order], after.astype(np.float64)):
            return replace(change, verdict="permuted", along="rows", order=order, then=then)
    return change


def _judge_order(base: NDArray[Any], model: NDArray[Any], dtype: str, change: TensorChange) -> TensorChange:
    """Return permuted if a matrix has the rows, or the columns, of the base in another order."""
    if base.ndim != 2:
        return change
    for along, before, after in (("rows", base, model), ("columns", base.T, model.T)):
        order = match_rows(before.astype(np.float64), after.astype(np.float64))
        if order is not None:
            ordered = base[order] if along == "rows" else base[:, order]
            then = compare_tensors(ordered, model, dtype)
            return replace(change, verdict="permuted", along=along, order=order, then=describe(then))
    return change


def match_rows(base: Reals, model: Reals) -> NDArray[np.intp] | None:
    """Return for each row of the model the matching row of the base, or None if the order is the same."""
    with np.errstate(invalid="ignore", divide="ignore"):
        before, after = (
            np.nan_to_num(matrix / np.linalg.norm(matrix, axis=1, keepdims=True)) for matrix in (base, model)
        )
    order = _exact_order(base, model)
    if order is not None:
        return order
    kept = np.einsum("ij,ij->i", before, after)
    lost = np.flatnonzero(kept < SETTLED)
    if lost.size < 2:
        return None
    # A few rows first: a matrix that is not permuted fails with them already.
    some = lost[:: max(1, lost.size // TRIED_ROWS)][:TRIED_ROWS]
    best, cosines = _best_rows(after[some], before)
    good = (cosines > ROW_COSINE) & (cosines >= kept[some] + ROW_GAIN)
    if np.count_nonzero(good | (best == some)) < some.size / 2:
        return None
    order, gained = np.arange(len(base), dtype=np.intp), kept.copy()
    pending, matched = lost, np.zeros(len(base), dtype=bool)
    while pending.size:
        order[pending], gained[pending] = _best_rows(after[pending], before)
        matched[pending] = True
        # A row that was left at its place may have lost it to another row.
        taken = np.zeros(len(base), dtype=bool)
        taken[order[matched]] = True
        pending = np.flatnonzero(taken & ~matched)
    moves = order != np.arange(order.size)
    if not moves.any() or np.unique(order).size < order.size or gained[moves].min() <= ROW_COSINE:
        return None
    clear = np.count_nonzero((gained >= kept + ROW_GAIN)[moves]) >= CLEARLY_MOVED * np.count_nonzero(moves)
    near = np.linalg.norm(model - base[order]) < MOST_APART * np.linalg.norm(base)
    return order if clear and near else None


def _exact_order(base: Reals, model: Reals) -> NDArray[np.intp] | None:
    """Return the order in which the rows of the model are those of the base, bit for bit; None if none is."""
    rows = [
        np.ascontiguousarray(matrix + 0.0).view(f"V{8 * matrix.shape[1]}").ravel() for matrix in (base, model)
    ]
    sorted_base, sorted_model = (np.argsort(each, kind="stable") for each in rows)
    if not np.array_equal(rows[0][sorted_base], rows[1][sorted_model]):
        return None
    order = np.empty(len(base), dtype=np.intp)
    order[sorted_model] = sorted_base
    return order


def _best_rows(rows: Reals, base: Reals) -> tuple[NDArray[np.intp], Reals]:
    """Return for each row the row of the base with the largest cosine, and that cosine."""
    best, cosines = np.empty(len(rows), dtype=np.intp), np.empty(len(rows))
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = slice(start, start + ROWS_AT_A_TIME)
        every = rows[part] @ base.T
        best[part] = every.argmax(axis=1)
        cosines[part] = every.max(axis=1)
    return best, cosines


@dataclass(eq=False)
class _Summary:
    """What rearranged tensors mean for layers, attention blocks and feed-forward blocks."""

    base: Model
    model: Model
    by_role: Mapping[Role, PairChange]
    sources: Mapping[str, Role | None]
    covered: set[str] = field(default_factory=set)
    harmless: set[str] = field(default_factory=set)
    _whole_layers: list[str] = field(default_factory=list)
    # What happened inside layers: the layers, with numbers of tensors, by stack and description.
    _inside: dict[tuple[str | None, str], list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """The sentences. If several layers changed in the same way, one sentence describes them all."""
        inside = [
            text.format(
                place=self._text_of([(stack, layer) for layer, _ in where]),
                count=_tensors(sum(count for _, count in where)),
            )
            for (stack, text), where in sorted(self._inside.items(), key=lambda item: HARMLESS in item[0][1])
        ]
        return [*self._whole_layers, *inside]

    @cached_property
    def _first(self) -> dict[str | None, int]:
        return first_layers(self.base)

    def _text_of(self, layers: Sequence[Role]) -> str:
        """Return layers in words. Each stack has a layer 0, as in the names of its tensors."""
        return _layers_text([(stack, number - self._first.get(stack, 0)) for stack, number in layers])

    def _add(self, layer: Role, text: str, count: int = 0) -> None:
        """Add what happened in a layer. `text` has the fields `place` and `count` (of tensors)."""
        stack, number = layer
        self._inside.setdefault((stack, text), []).append((number, count))

    def _layers(self) -> dict[Role, dict[Role, PairChange]]:
        layers: dict[Role, dict[Role, PairChange]] = {}
        for role, pair in self.by_role.items():
            if len(role) > 3:
                layers.setdefault(role[:2], {})[role[2:]] = pair
        return dict(sorted(layers.items(), key=lambda item: (str(item[0][0]), item[0][1])))

    def describe_layers(self) -> None:
        """Describe which layers of the model are copies of other layers of the base."""
        layers = self._layers()
        origin: dict[Role, Role] = {}
        for layer, parts in layers.items():
            matrices = [change for role, (_, change) in parts.items() if not {"bias", "gain"} & {*role}]
            roots = Counter(self._root(change) for change in matrices)
            source, count = roots.most_common(1)[0] if roots else (None, 0)
            if source is not None and source != layer and count > len(matrices) / 2:
                origin[layer] = source
        described: set[Role] = set()
        for layer, source in origin.items():
            if layer in described:
                continue
            names = self._cover(layers, layer, source)
            if origin.get(source) == layer:
                names += self._cover(layers, source, layer)
                described |= {layer, source}
                self._whole_layers.append(
                    f"{self._text_of([layer, source])} are exchanged ({_exact_text(names)})."
                )
        chains = [(layer, source) for layer, source in origin.items() if layer not in described]
        for _, run in groupby(enumerate(chains), key=lambda item: _step(item[1], item[0])):
            pairs = [pair for _, pair in run]
            names = [name for layer, source in pairs for name in self._cover(layers, layer, source)]
            copied = all(
                change.verdict in ("identical", "rounded")
                for _, source in pairs
                for _, change in layers.get(source, {}).values()
            )
            verb = (
                ("is a copy of" if copied else "is")
                if len(pairs) == 1
                else "are copies of"
                if copied
                else "are"
            )
            first, second = (self._text_of(list(side)) for side in zip(*pairs, strict=True))
            second = second[0].lower() + second[1:]
            self._whole_layers.append(f"{first} {verb} the base's {second} ({_exact_text(names)}).")

    def _source(self, change: TensorChange) -> Role | None:
        return self.sources.get(change.source or "") if change.verdict == "moved" else None

    def _root(self, change: TensorChange) -> Role | None:
        role = self._source(change)
        return None if role is None or len(role) < 4 else role[:2]

    def _cover(self, layers: Mapping[Role, Any], layer: Role, source: Role) -> list[TensorChange]:
        """Mark the tensors of a layer that come from another one, and return their changes."""
        changes = []
        for pair, change in layers[layer].values():
            if self._root(change) == source:
                self.covered.add(pair.name)
                changes.append(change)
        return changes

    def describe_attention(self) -> None:
        """Describe the blocks where queries, keys and values are exchanged."""
        for layer, parts in self._layers().items():
            exchanged: dict[Role, list[TensorPair]] = {}
            for role, (pair, change) in parts.items():
                source = self._source(change)
                if pair.name in self.covered or source is None or source[:2] != layer:
                    continue
                other = parts.get(source[2:])
                if other is not None and self._source(other[1]) == (*layer, *role):
                    roles_here = tuple(sorted((role, source[2:]), key=_part_order))
                    exchanged[roles_here] = [pair, other[0]]
            for (first, second), pairs in exchanged.items():
                self.covered |= {pair.name for pair in pairs}
                if (first[:2], second[:2]) in exchanged and first[2:] == ("bias",):
                    continue  # the sentence about the matrices names them
                biases = exchanged.get(((*first, "bias"), (*second, "bias")), [])
                text = f"{{place}}: {_role_text(first)} and {_role_text(second)} are exchanged"
                text += ", with their biases ({count})." if biases else " ({count})."
                self._add(layer, text, len(pairs) + len(biases))

    def describe_neurons(self) -> None:
        """Describe blocks with another order of neurons or heads, and whether they compute the same."""
        for layer, parts in self._layers().items():
            for block in dict.fromkeys(role[0] for role in parts):
                inside = {role[1:]: pair for role, pair in parts.items() if role[0] == block}
                if not any(change.verdict == "permuted" for _, change in inside.values()):
                    continue
                if (block == "feed_forward" or str(block).startswith("expert")) and ("inner",) in inside:
                    self._describe_block(layer, str(block), inside, ("inner", "gate", "outer"), "neurons")
                elif block in ("attention", "cross") and ("query",) in inside:
                    self._describe_block(
                        layer, str(block), inside, ("query", "key", "value", "output"), "heads"
                    )

    def _describe_block(
        self,
        layer: Role,
        block: str,
        inside: Mapping[Role, PairChange],
        parts: Sequence[str],
        noun: str,
    ) -> None:
        """Compare the orders of the matrices of a block. All but the last have the neurons as outputs."""
        *writers, reader = parts
        present = [part for part in parts if (part,) in inside]
        orders = {part: self._order(*inside[part,], part != reader) for part in present}
        known = [order for order in orders.values() if order is not None]
        if not known:
            return
        same = len(known) == len(orders) and all(np.array_equal(order, known[0]) for order in known)
        biases = [inside[part, "bias"] for part in writers if (part, "bias") in inside]
        bound = all(self._follows(pair, known[0]) for pair, _ in biases)
        same = same and bound and (noun == "neurons" or self._moves_heads(known[0], layer, block))
        place = "{place}" + ("" if block in ("feed_forward", "attention") else f", {block}")
        permuted = {pair.name: change for pair, change in inside.values() if change.verdict == "permuted"}
        names = list(permuted)
        updated = [
            f"{printable(name)} is {change.then}"
            for name, change in permuted.items()
            if not _leaves_weights(change.then)
        ]
        if same and not updated:
            self.covered |= set(names)
            self.harmless |= set(names)
            self._add(layer, f"{{place}}: {HARMLESS}, {noun} reordered ({{count}}).", len(names))
        elif same:
            self.covered |= set(names)
            which = "all" if len(updated) == len(names) else f"{len(updated)} of"
            many = f"{which} {len(names)} tensors changed further"
            detail = ", ".join(updated) if len(updated) <= MOST_LISTED else many
            detail = detail.replace("{", "{{").replace("}", "}}")  # names of tensors are free text
            self._add(layer, f"{place}: {noun} reordered consistently; in the new order {detail}.")
        elif noun == "neurons" or "value" in orders:
            self._describe_damage(layer, place, noun, inside, orders, bound)

    def _describe_damage(
        self,
        layer: Role,
        place: str,
        noun: str,
        inside: Mapping[Role, PairChange],
        orders: Mapping[str, NDArray[np.intp] | None],
        bound: bool,
    ) -> None:
        """Say that only a part of a block was reordered, if the other parts are certainly in place."""
        moved = [part for part, order in orders.items() if order is not None]
        rest = [part for part in orders if part not in moved]
        if any(inside[part,][1].verdict not in SAME for part in rest):
            return
        if noun == "heads" and (("value" in moved) == ("output" in moved) or not rest):
            return
        self.covered |= {pair.name for pair, change in inside.values() if change.verdict == "permuted"}
        which, others = (join_words(PART_LABELS.get(part, part) for part in parts) for parts in (moved, rest))
        reason = "but not all in the same order" if bound else "but not their bias"
        reason = f"but the {noun} of {others} are not" if others else reason
        self._add(layer, f"{place}: damaged, because the {noun} of {which} are reordered, {reason}.")

    def _order(self, pair: TensorPair, change: TensorChange, writes: bool) -> NDArray[np.intp] | None:
        """Return the order of the neurons in a matrix; None if it is the order of the base."""
        role = self.sources.get(pair.name)
        view = roles(self.base).get(role) if role is not None else None
        if change.verdict != "permuted" or view is None:
            return None
        out_in = view.stored_out_in or pair.views is not None
        return change.order if (change.along == "rows") == (writes == out_in) else None

    def _follows(self, pair: TensorPair, order: NDArray[np.intp]) -> bool:
        """Return whether a bias has the order of its matrix."""
        before, after = pair.orient(pair.read(self.base, self.model))
        if before is None or after is None or not before.shape == after.shape == order.shape:
            return False
        before, after = before.astype(np.float64), after.astype(np.float64)
        moved, kept = np.linalg.norm(after - before[order]), np.linalg.norm(after - before)
        return bool(moved <= kept / 2)

    def _moves_heads(self, order: NDArray[np.intp], layer: Role, block: str) -> bool:
        stored = next(each for each in self.base.layers if (each.stack, each.index) == layer)
        attention = stored.attention if block == "attention" else stored.cross
        if attention is None or attention.kv_heads != attention.heads:
            return False
        heads = order.reshape(attention.heads, -1)
        whole = heads - heads[:, :1] == np.arange(heads.shape[1])
        return bool(whole.all() and (heads[:, 0] % heads.shape[1] == 0).all())


def _leaves_weights(then: str | None) -> bool:
    """Return whether a verdict in the new order means that the weights are those of the base."""
    return then is None or then in SAME or then.startswith("rounded")


def _step(pair: tuple[Role, Role], place: int) -> tuple[Any, ...]:
    """Return what runs of layers have in common: their stacks, and constant differences of numbers."""
    (stack, layer), (source_stack, source) = pair
    return stack, source_stack, layer - place, source - place


def first_layers(model: Model) -> dict[str | None, int]:
    """Return the number of the first layer of each stack. attnlaw numbers layers through all stacks."""
    first: dict[str | None, int] = {}
    for layer in model.layers:
        first[layer.stack] = min(layer.index, first.get(layer.stack, layer.index))
    return {stack: number if stack is not None else 0 for stack, number in first.items()}


def _layers_text(layers: Sequence[Role]) -> str:
    numbers: dict[str | None, list[int]] = {}
    for stack, number in layers:
        numbers.setdefault(stack, []).append(number)
    first, *others = (layers_text(stack, known) for stack, known in numbers.items())
    return join_words([first, *(other[0].lower() + other[1:] for other in others)])


def _part_order(role: Role) -> tuple[Any, ...]:
    """Return a key that puts queries before keys, and keys before values."""
    parts = ("query", "key", "value", "output")
    return role[0], parts.index(role[1]) if role[1] in parts else len(parts), role[1:]


def _role_text(role: Role) -> str:
    words = [PART_LABELS.get(str(word), str(word)) for word in role[1:]]
    return " ".join(["cross", *words] if role[0] == "cross" else words)


def _tensors(count: int) -> str:
    return f"{count} {'tensor' if count == 1 else 'tensors'}"


def _exact_text(changes: Sequence[TensorChange]) -> str:
    count = _tensors(len(changes))
    return f"{count}, bit for bit" if all(change.then == "identical" for change in changes) else count
