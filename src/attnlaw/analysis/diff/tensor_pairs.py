"""Which stored tensor of a model belongs to which of its base: by role, then by name without a prefix.

A role is a place of the network (the query of layer 3). Where one model stores several roles in one tensor
and the other does not, each role is compared by itself, under the name of the finer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.norms import Norm
from attnlaw.checkpoints.tensors import Tensors

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
