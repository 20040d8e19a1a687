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
    known = {name: {one.tensors[place] for one in pairs} for place, name in enumerate(("base", "model"))}
    left0 = [name for name in _weights(base.tensors) if name not in known["base"]]
    left1 = {name for name in _weights(model.tensors) if name not in known["model"]}
    prefixes = _prefixes(pairs)
    for name in left0:
        found = next((other for other in _candidates(name, pairs, prefixes) if other in left1), None)
        if found is not None:
            left1.discard(found)
        pairs.append(TensorPair(name, found))
    order = {name: place for place, name in enumerate(base.tensors.shapes)}
    pairs.sort(key=lambda one: order[str(one.base)])
    return [*pairs, *(TensorPair(None, name) for name in model.tensors.shapes if name in left1)]


def roles(model: Model) -> dict[Role, View]:
    """The places of the network and the views that fill them."""
    found: dict[Role, View] = {}
    for layer in model.layers:
        blocks = {"attention": layer.attention, "cross": layer.cross, "feed_forward": layer.feed_forward}
        named = {**blocks, **{f"expert {number}": one for number, one in enumerate(layer.experts)}}
        for block, views in named.items():
            for part, view in vars(views).items() if views is not None else ():
                if isinstance(view, View):
                    found |= _chained((layer.stack, layer.index, block, part), view)
    for part, beside in (("embedding", model.embedding_view), ("unembedding", model.unembedding_view)):
        if beside is not None:
            found |= _chained((part,), beside)
    return found


def _chained(role: Role, view: View) -> dict[Role, View]:
    """The view, and those that are applied before it."""
    own = {role: view}
    return own if view.after is None else own | _chained((*role, "after"), view.after)


def _pair_by_role(mine: Mapping[Role, View], theirs: Mapping[Role, View]) -> Iterator[TensorPair]:
    """Tensors that fill the same roles; one by one the roles that are stored together in one model alone."""
    shared = [role for role in mine if role in theirs]
    ahead: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for role in shared:
        ahead.setdefault(mine[role].tensor, set()).add(theirs[role].tensor)
        back.setdefault(theirs[role].tensor, set()).add(mine[role].tensor)
    told = set()
    for role in shared:
        views = mine[role], theirs[role]
        one, other = (view.tensor for view in views)
        if len(ahead[one]) > 1 or len(back[other]) > 1:
            yield TensorPair(one, other, views=views, finer=other if len(ahead[one]) > 1 else one)
        elif one not in told:
            told.add(one)
            yield TensorPair(one, other, transposed=views[0].stored_out_in != views[1].stored_out_in)


def _vectors(
    base: Model, model: Model, mine: Mapping[Role, View], theirs: Mapping[Role, View]
) -> list[TensorPair]:
    """Biases of the same roles, gains and shifts of the norms that the same blocks read, of equal shapes."""
    named0, named1 = (
        {**_norms(of), **{(*role, "bias"): view.bias for role, view in own.items()}}
        for of, own in ((base, mine), (model, theirs))
    )
    found: dict[str, str] = {}
    for role, name in named0.items():
        other = named1.get(role)
        if name is None or other is None or name in found or other in found.values():
            continue
        if base.tensors.shapes.get(name) == model.tensors.shapes.get(other):
            found[name] = other
    return [TensorPair(name, other) for name, other in found.items()]


def _norms(model: Model) -> dict[Role, str | None]:
    found: dict[Role, str | None] = {}
    for layer in model.layers:
        attentions = {"attention": layer.attention, "cross": layer.cross}
        norms: dict[str, Norm | None] = {}
        for block, one in attentions.items():
            if one is not None:
                norms |= {f"{block} norm": one.norm, f"{block} memory": one.memory_norm}
                norms |= {f"{block} query": one.scores.query_norm, f"{block} key": one.scores.key_norm}
        if layer.feed_forwards:
            norms["feed_forward norm"] = layer.feed_forwards[0].norm
        for name, norm in norms.items():
            if norm is not None:
                found[layer.stack, layer.index, name, "gain"] = norm.gain
                found[layer.stack, layer.index, name, "bias"] = norm.bias
    return found


def _prefixes(pairs: list[TensorPair]) -> list[tuple[str, str]]:
    """What stands before the part that the names of joined tensors share, the commonest first."""
    counts: dict[tuple[str, str], int] = {}
    for one in pairs:
        if one.base is not None and one.model is not None:
            common = _common_end(one.base, one.model)
            if common:
                key = one.base.removesuffix(common), one.model.removesuffix(common)
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
    for one in pairs:
        if one.base is not None and one.model is not None and one.base == f"{stem}.weight":
            yield f"{one.model.rpartition('.')[0]}.{end}"
    for mine, theirs in prefixes:
        if name.startswith(mine):
            yield theirs + name[len(mine) :]


def _weights(tensors: Tensors) -> list[str]:
    return [name for name in tensors.shapes if not tensors.dtype(name).lower().startswith(NOT_REAL)]
