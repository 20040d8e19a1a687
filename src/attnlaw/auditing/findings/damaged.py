"""What NaN and infinity leave unmeasured: the places whose maps, or the norms before them, hold any."""

from __future__ import annotations

from collections.abc import Iterator

from attnlaw.auditing.findings.scan import is_float, scan
from attnlaw.base.errors import InputError
from attnlaw.models.model import Attention, Model, Product
from attnlaw.models.network import Place
from attnlaw.models.norms import Norm


def damaged_places(model: Model) -> frozenset[Place]:
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


def _tensors(place: Place, product: Product) -> Iterator[str]:
    yield from product.tensors
    norms: tuple[Norm | None, ...] = (product.norm,)
    if isinstance(product.block, Attention):
        norms = product.block.norms(place.kind)
    yield from (norm.gain for norm in norms if norm is not None and norm.gain is not None)


def _is_damaged(model: Model, name: str) -> bool:
    try:
        array = model.tensors.read(name)
    except InputError:
        return True  # an update of an adapter that is not finite
    return array.size > 0 and is_float(array) and scan(array).not_finite > 0
