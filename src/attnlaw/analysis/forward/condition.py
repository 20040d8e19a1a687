"""The condition of every linear map of a network. It shows which map could lose the margin.

For a linear map y = z W with inputs Z and G = dm/dy, over the visible tokens,

    kappa_W(x) = |W|_op |Z|_F |G|_F / m.

m is the margin of the model's own prediction, so no labels are needed. A change |dW|_op <= eps |W|_op moves
it by at most eps kappa_W m, to first order. So 1/kappa is the relative error of the weight that could flip
the prediction. Totals grow with depth, so compare shares. Use D to rank models, and kappa to see where in a
model the margin could be lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlaw.analysis.forward.classifier import Batch, Classifier, as_inputs, batches, open_classifier
from attnlaw.analysis.forward.margins import MARGINS
from attnlaw.analysis.forward.trace import temporary_hooks
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value


@dataclass(frozen=True)
class MapCondition:
    """The condition of one linear map."""

    layer: int | None  # number of the block; None for a map outside of blocks
    kind: str  # name of the map inside the block
    name: str
    norm: float  # largest singular value of the weight
    kappa: float  # median of kappa over inputs
    share: float | None  # median over inputs of the map's share in the sum over all maps


@dataclass(frozen=True)
class Condition:
    """The condition of a network.

    Sums over maps are computed for each input, then their median is taken. Therefore the medians of parts do
    not add up to the median of the total.

    Args:
        rows: the condition of each linear map.
        total: median of the sum over all maps.
        by_layer, by_kind: medians of the sums over the maps of a layer, or of a kind.
        values: the sum over all maps for each input.
        ties: number of inputs with margin 0. The kappa of these inputs is infinite, so medians treat it as
            the largest.
    """

    rows: tuple[MapCondition, ...]
    total: float
    by_layer: tuple[float, ...]
    by_kind: dict[str, float]
    values: tuple[float, ...]
    ties: int

    @property
    def worst_layer(self) -> int | None:
        return int(np.argmax(self.by_layer)) if self.by_layer else None

    @property
    def places(self) -> list[tuple[int | None, str, float]]:
        """Number, name and kappa of every layer, then of every map outside of layers (number None)."""
        layers = [(layer, str(layer), kappa) for layer, kappa in enumerate(self.by_layer)]
        return [*layers, *((None, row.name, row.kappa) for row in self.rows if row.layer is None)]

    @property
    def worst_place(self) -> str:
        """Name of the layer, or of the map outside of layers, that has the largest kappa."""
        layer, name, _ = max(self.places, key=lambda place: place[2])
        return name if layer is None else f"layer {name}"


@dataclass(frozen=True, eq=False)
class _LinearMap:
    """A linear map of a network. `norm_products` has for each input the sum of |Z|_F |G|_F over all uses."""

    name: str
    layer: int | None
    kind: str
    module: Any
    norm_products: Reals = field(repr=False)


def condition(
    model: str | os.PathLike[str] | Any,
    inputs: Any,
    margin: str = "hard",
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    blocks: Sequence[Any] | None = None,
    progress: Progress = no_progress,
) -> Condition:
    """Measure kappa of every linear map (`nn.Linear`, `Conv1D`) by one backward pass for each batch.

    The arguments are those of `measure_margins`.

    >>> import torch
    >>> head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2, bias=False))
    >>> _ = head[1].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> found = condition(head, torch.tensor([[[3.0, 1.0]]]))
    >>> round(found.total, 7), found.rows[0].kind
    (1.0540926, '1')
    """
    inputs = as_inputs(inputs)
    network = open_classifier(model, inputs, blocks)
    check_value("margin", margin, str, choices=MARGINS)
    maps = _find_linear_maps(network, len(inputs))
    margins = np.zeros(len(inputs))
    for batch in batches(inputs, network, positions, seed, progress):
        with _accumulate_norm_products(maps, batch):
            m = MARGINS[margin](network.logits(batch))
            m.sum().backward()
        margins[batch.input_indices] = m.detach()
    norms = np.array([_spectral_norm(linear_map.module) for linear_map in maps])
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.stack([linear_map.norm_products for linear_map in maps]) * norms[:, None] / np.abs(margins)
        kappa[:, margins == 0] = np.inf
        shares = kappa / kappa.sum(axis=0)

    def median(chosen: Iterable[bool]) -> float:
        return float(np.median(kappa[list(chosen)].sum(axis=0)))

    finite = np.isfinite(kappa).all(axis=0)
    middle_shares = [float(np.median(part[finite])) if finite.any() else None for part in shares]
    layers, kinds = [linear_map.layer for linear_map in maps], [linear_map.kind for linear_map in maps]
    rows = [
        MapCondition(of.layer, of.kind, of.name, float(norm), float(np.median(values)), share)
        for of, norm, values, share in zip(maps, norms, kappa, middle_shares, strict=True)
    ]
    return Condition(
        rows=tuple(rows),
        total=median(True for _ in maps),
        by_layer=tuple(median(layer == i for layer in layers) for i in range(len(network.blocks))),
        by_kind={name: median(kind == name for kind in kinds) for name in dict.fromkeys(kinds)},
        values=tuple(kappa.sum(axis=0).tolist()),
        ties=int((~finite).sum()),
    )


def _find_linear_maps(network: Classifier, inputs: int) -> list[_LinearMap]:
    """Return the linear maps of a network. The kind of a map is its name inside its block."""
    import torch

    places = {block: number for number, block in enumerate(network.blocks)}
    maps: list[_LinearMap] = []
    stack: list[tuple[str, Any, int | None, str]] = [("", network.module, None, "")]
    while stack:
        name, module, layer, inside = stack.pop()
        if isinstance(module, torch.nn.MultiheadAttention):
            raise InputError(
                f"{network.name}: {name} is an nn.MultiheadAttention, which hides its projections from "
                "hooks, so kappa cannot be measured; use nn.Linear for the projections, or measure "
                "margins without kappa"
            )
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D":
            maps.append(_LinearMap(name, layer, inside or name, module, np.zeros(inputs)))
        for part, child in reversed(list(module.named_children())):
            whole = f"{name}.{part}" if name else part
            if child in places:
                stack.append((whole, child, places[child], ""))
            else:
                inner_name = f"{inside}.{part}" if inside else part
                stack.append((whole, child, layer, inner_name if layer is not None else ""))
    if not maps:
        raise InputError(
            f"{network.name}: it has no nn.Linear and no Conv1D, so kappa cannot be "
            "measured; measure margins without kappa"
        )
    return maps


def _accumulate_norm_products(maps: Sequence[_LinearMap], batch: Batch) -> AbstractContextManager[None]:
    """Return a context in which every use of a map adds |Z|_F |G|_F to its `norm_products`."""

    def watch(linear_map: _LinearMap) -> Callable[[Any, Any, Any], Any]:
        def remember(module: Any, inputs: Any, output: Any) -> Any:
            z = _visible_norms(inputs[0].detach(), batch)
            result = output if output.requires_grad else output.detach().requires_grad_()

            def add(gradient: Any) -> None:
                linear_map.norm_products[batch.input_indices] += (z * _visible_norms(gradient, batch)).numpy()

            result.register_hook(add)
            return result

        return remember

    return temporary_hooks(linear_map.module.register_forward_hook(watch(linear_map)) for linear_map in maps)


def _visible_norms(tensor: Any, batch: Batch) -> Any:
    """Return the Frobenius norm of each input. If the tensor has tokens, only visible ones count."""
    count, length = batch.visible.shape
    if tensor.ndim == 2 and len(tensor) == count * length:
        tensor = tensor.reshape(count, length, -1)
    if tensor.ndim > 2 and tensor.shape[1] == length:
        visible = batch.visible.reshape(count, length, *[1] * (tensor.ndim - 2))
        tensor = tensor.where(visible, 0.0)
    if len(tensor) != count:
        raise InputError(
            f"a linear layer got {len(tensor)} rows for {count} inputs; kappa can only be measured if the "
            "layer is applied to each input separately"
        )
    return tensor.flatten(1).norm(dim=1)


def _spectral_norm(module: Any) -> float:
    import torch

    weight = module.weight.detach()
    short = weight if weight.shape[0] <= weight.shape[1] else weight.T
    return float(torch.linalg.eigvalsh(short @ short.T)[-1].clamp(min=0).sqrt())
