"""What NaN and infinity leave unmeasured: the places whose maps, or the norms before them, hold any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnlaw.analysis.findings.scan import is_float, scan
from attnlaw.checkpoints.blocks import Attention, Product, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.checkpoints.norms import Norm
from attnlaw.core.errors import InputError


def damaged_places(model: Model) -> frozenset[MatrixLocation]:
    """The places that read a tensor which is not finite; every tensor that a map reads is looked at."""
    leaves = model.network.leaves()
    known: dict[str, bool] = {}
    places = set()
    for place, product in leaves:
        for name in _tensors(place, product):
            if name not in known:
                known[name] = _is_damaged(model, name)
        if any(known[name] for name in _tensors(place, product)):
            places.add(place)
    return frozenset(places)


def _tensors(place: MatrixLocation, product: Product) -> Iterator[str]:
    yield from product.tensors
    norms: tuple[Norm | None, ...] = (product.norm,)
    biases: list[str | None] = []
    if isinstance(product.block, Attention):
        norms = product.block.norms(place.kind)
        if KINDS[place.kind].scores:  # logits have the biases, and norms inside
            how, views = product.block.scores, [*_with_earlier_views(product.block.views(place.kind))]
            norms = (*norms, how.query_norm, how.key_norm, *(view.norm for view in views))
            biases = [view.bias for view in views] + [norm.bias for norm in norms if norm is not None]
    gains = [norm.gain for norm in norms if norm is not None]
    yield from (name for name in (*gains, *biases) if name is not None)


def _with_earlier_views(views: Iterable[View]) -> Iterator[View]:
    """The maps, with those that are applied before them."""
    for view in views:
        yield view
        yield from _with_earlier_views([view.after] if view.after else [])


def _is_damaged(model: Model, name: str) -> bool:
    try:
        array = model.tensors.read(name)
    except InputError:
        return True  # an update of an adapter that is not finite
    return array.size > 0 and is_float(array) and scan(array).not_finite > 0
