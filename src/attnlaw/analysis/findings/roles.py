"""What every stored tensor of a model is for, and where it stands.

| role | tensors |
|---|---|
| `map` | read by the maps of the layers, or by an adapter |
| `embedding` | the embedding and the unembedding of tokens |
| `gain` | gains of norms, stored as they are |
| `vector` | biases, and gains stored less one: zeros are natural there |
| `other` | all else: positions, poolers, heads of a task, buffers |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnlaw.analysis.findings.evidence import TensorLocation
from attnlaw.checkpoints.blocks import Product, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.norms import Norm

MAP, EMBEDDING, GAIN, VECTOR, OTHER = ROLES = ("map", "embedding", "gain", "vector", "other")
EMBEDDING_KINDS = ("embedding", "unembedding")


@dataclass(frozen=True)
class TensorRoles:
    """The roles and spots of tensors, by name and member of a stack."""

    by_tensor: dict[tuple[str, int | None], tuple[str, TensorLocation]]

    def __call__(self, name: str, member: int | None) -> tuple[str, TensorLocation]:
        role, spot = self.by_tensor.get((name, member), (OTHER, TensorLocation()))
        return role, replace(spot, tensor=name if member is None else f"{name}[{member}]")


def known_tensors(model: Model) -> TensorRoles:
    """Of a tensor that several kinds of maps share (fused projections) the kind is not told."""
    roles: dict[tuple[str, int | None], tuple[str, TensorLocation]] = {}
    for place, product in model.network.leaves():
        role = EMBEDDING if place.kind in EMBEDDING_KINDS else MAP
        spot = TensorLocation(place.layer, place.stack, place.kind, expert=place.expert)
        for view in _views_in_order(product):
            known = roles.get((view.tensor, view.member))
            if known is None or known[0] == EMBEDDING:
                roles[view.tensor, view.member] = role, spot
            elif known[1].layer == spot.layer:
                kind = spot.kind if known[1].kind == spot.kind else None
                roles[view.tensor, view.member] = role, replace(spot, kind=kind)
    for beside in (model.embedding_view, model.unembedding_view):
        if beside is not None:
            roles.setdefault((beside.tensor, beside.member), (EMBEDDING, TensorLocation()))
    for layer in model.layers:
        spot = TensorLocation(layer.index, layer.stack)
        for view in layer.views:
            if view.bias is not None:
                roles.setdefault((view.bias, None), (VECTOR, spot))
        for norm in _norms(layer):
            if norm.gain is not None:
                roles.setdefault((norm.gain, None), (VECTOR if norm.offset else GAIN, spot))
            if norm.bias is not None:
                roles.setdefault((norm.bias, None), (VECTOR, spot))
    return TensorRoles(roles)


def _views_in_order(product: Product) -> Iterator[View]:
    """The views of a product, and those that are applied before them."""
    for view in product.views:
        current: View | None = view
        while current is not None:
            yield current
            current = current.after


def _norms(layer: object) -> Iterator[Norm]:
    """Every norm inside the records of a layer."""
    if isinstance(layer, Norm):
        yield layer
    elif isinstance(layer, tuple):
        for part in layer:
            yield from _norms(part)
    elif hasattr(layer, "__dataclass_fields__"):
        for value in vars(layer).values():
            yield from _norms(value)
