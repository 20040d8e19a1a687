"""Measure how much a network amplifies a small change of what a block reads.

    A_l(x) = |d out / d h_l|_op,    J = d out / d h_l

h_l is what block l reads on input x. `out` is either the logits (K numbers), or all visible tokens of the
last block's output before a final norm. A_l is the measured counterpart of the product of worst-case factors
over the layers k >= l (arXiv 2605.07297).

| method | how A is computed |
|---|---|
| `exact` | K backward passes, each for all layers; the top eigenvalue of the K x K Gram matrix |
| `power` | v -> J v -> J^T J v with norms for each input, until A changes by less than the tolerance |

J v is the derivative of the backward pass, so all rounds use the same graph. Kernels without a second
derivative (flash attention) are replaced by the plain ones if torch can choose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.analysis.forward.classifier import (
    BATCH_TOKENS,
    Batch,
    Classifier,
    ModelInputs,
    as_inputs,
    batches,
    open_classifier,
)
from attnlaw.analysis.forward.trace import temporary_hooks
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value

OUTPUTS = dict.fromkeys(("logits", "tokens"))
METHODS = dict.fromkeys(("auto", "exact", "power"))
MAX_EXACT_CLASSES = 64  # for the exact method
MAX_POWER_ROUNDS = 200
TOLERANCE = 1e-3
MAX_GRADIENT_ENTRIES = 2**24  # numbers in the gradients that the exact method keeps at once


@dataclass(frozen=True)
class LayerAmplification:
    layer: int
    output: str
    median: float
    max: float
    iterations: int | None  # number of rounds of power iteration; None if A is exact
    residual: float | None  # |J^T J v - A^2 v| / A^2; None if A is exact
    values: tuple[float, ...]  # a for each input


@dataclass(frozen=True)
class Amplification:
    """The amplification A of every layer.

    Do not use A of a layer whose residual is large. A small residual is not an error bound.
    """

    rows: tuple[LayerAmplification, ...]
    converged: bool

    @property
    def remark(self) -> str | None:
        if self.converged:
            return None
        return (
            f"the amplification did not converge within {MAX_POWER_ROUNDS} rounds; its residual shows "
            "how far it is off"
        )


def amplification(
    model: str | os.PathLike[str] | Any,
    inputs: Any,
    output: str = "logits",
    method: str = "auto",
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    tolerance: float = TOLERANCE,
    blocks: Sequence[Any] | None = None,
    progress: Progress = no_progress,
) -> Amplification:
    """Measure A_l of every block l on every input. Other arguments are those of `measure_margins`.

    Args:
        output: the output whose change is measured: "logits", or "tokens" of the last block.
        method: "exact", "power", or "auto", which uses the exact method whenever possible.
        seed: seed of the first vector of power iteration, and of sampled positions.
        tolerance: relative change of A at which power iteration stops.

    >>> import torch
    >>> maps = [torch.nn.Linear(2, 2, bias=False) for _ in range(2)]
    >>> chain = torch.nn.Sequential(*maps, torch.nn.Flatten())
    >>> for layer, weight in enumerate(([[3.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 4.0]])):
    ...     _ = chain[layer].weight.data.copy_(torch.tensor(weight))
    >>> found = amplification(chain, torch.tensor([[[1.0, 1.0]]]), blocks=chain[:2])
    >>> [round(row.median, 12) for row in found.rows]
    [6.0, 4.0]
    """
    inputs = as_inputs(inputs)
    network = open_classifier(model, inputs, blocks)
    check_value("output", output, str, choices=OUTPUTS)
    check_value("method", method, str, choices=METHODS)
    exact = method != "power" and output == "logits" and network.classes <= MAX_EXACT_CLASSES
    if method == "exact" and not exact:
        raise BadSetting(
            "method", f"the method exact only works with at most {MAX_EXACT_CLASSES} classes; use power"
        )
    layers = max(1, len(network.blocks))
    values = np.zeros((layers, len(inputs)))
    rounds, residual, converged = np.zeros(layers, dtype=int), np.zeros(layers), True
    gradient_entries = network.classes * layers * _width(network, inputs)
    most = max(1, MAX_GRADIENT_ENTRIES // gradient_entries) if exact else BATCH_TOKENS
    for batch in batches(inputs, network, positions, seed, progress, most):
        with _twice_differentiable(network):
            out, states = _graph(network, batch, output)
            if exact:
                norms = _exact_norms(out, states)
            else:
                norms, used, left, enough = _power_iteration(out, states, batch, seed, tolerance)
                rounds, residual = np.maximum(rounds, used), np.maximum(residual, left)
                converged = converged and enough
        values[:, batch.input_indices] = norms
    rows = tuple(
        LayerAmplification(
            layer=layer,
            output=output,
            median=float(np.median(layer_values)),
            max=float(layer_values.max()),
            iterations=None if exact else int(rounds[layer]),
            residual=None if exact else float(residual[layer]),
            values=tuple(layer_values.tolist()),
        )
        for layer, layer_values in enumerate(values)
    )
    return Amplification(rows, converged)


def _width(network: Classifier, inputs: ModelInputs) -> int:
    if network.is_hugging_face:
        return int(network.module.config.hidden_size)
    first = inputs.sequences[0]
    return int(first.shape[-1]) if first.ndim > 1 else 1


def _graph(network: Classifier, batch: Batch, output: str) -> tuple[Any, list[Any]]:
    """Run a forward pass. Return `out` (B x ...) and the list of what each block reads."""
    states: list[Any] = []
    last: list[Any] = []

    def enter(number: int, given: Any) -> Any:
        states.append(given if states else given.detach().requires_grad_())
        return states[-1]

    def leave(module: Any, words: Any, result: Any) -> None:
        last.append(result[0] if isinstance(result, tuple) else result)

    if output == "tokens" and not network.blocks:
        raise InputError(
            f"{network.name}: attnlaw does not know which modules are its blocks; pass them "
            "as blocks=, or choose logits"
        )
    hooks = [network.blocks[-1].register_forward_hook(leave)] if output == "tokens" else []
    with temporary_hooks(hooks):
        logits = network.logits(batch, enter)
    return (last[0].where(batch.visible[..., None], 0.0) if last else logits), states


def _exact_norms(out: Any, states: Sequence[Any]) -> Reals:
    """Return A (layers x inputs), computed as the root of the top eigenvalue of J J^T."""
    import torch

    rows: list[list[Any]] = [[] for _ in states]
    for k in range(out.shape[1]):
        gradients = torch.autograd.grad(out[:, k].sum(), states, retain_graph=True)
        for layer_rows, gradient in zip(rows, gradients, strict=True):
            layer_rows.append(gradient.flatten(1))
    grams = [torch.einsum("kbi,jbi->bkj", stacked, stacked) for stacked in map(torch.stack, rows)]
    norms = [torch.linalg.eigvalsh(gram)[:, -1].clamp(min=0).sqrt() for gram in grams]
    return np.stack([norm.numpy() for norm in norms])


def _power_iteration(
    out: Any, states: Sequence[Any], batch: Batch, seed: int, tolerance: float
) -> tuple[Reals, list[int], list[float], bool]:
    """Return A (layers x inputs), rounds and largest residual of each layer, and whether all converged."""
    import torch

    norms, rounds, worst, enough = [], [], [], True
    cotangent = torch.zeros_like(out, requires_grad=True)
    for state in states:
        (backward,) = torch.autograd.grad(out, state, cotangent, create_graph=True)
        generator = torch.Generator().manual_seed(seed)
        v = torch.randn(state.shape, generator=generator, dtype=state.dtype)
        v = _unit_vectors(v.where(batch.visible[..., None], 0.0))
        before = torch.zeros(len(v), dtype=v.dtype)
        count, settled = 0, False
        while not settled and count < MAX_POWER_ROUNDS:
            count += 1
            (forward,) = torch.autograd.grad(backward, cotangent, v, retain_graph=True)
            (image,) = torch.autograd.grad(out, state, forward, retain_graph=True)
            size = image.flatten(1).norm(dim=1)
            left = (image - _per_input(size, v) * v).flatten(1).norm(dim=1) / size.clamp(min=1e-300)
            value = size.sqrt()
            settled = bool(((value - before).abs() <= tolerance * value).all())
            before, v = value, _unit_vectors(image)
        norms.append(value.detach().numpy())
        rounds.append(count)
        worst.append(float(left.max()))
        enough = enough and settled
    return np.stack(norms), rounds, worst, enough


def _unit_vectors(v: Any) -> Any:
    return v / _per_input(v.flatten(1).norm(dim=1).clamp(min=1e-300), v)


def _per_input(values: Any, like: Any) -> Any:
    return values.reshape(-1, *[1] * (like.ndim - 1))


@contextmanager
def _twice_differentiable(network: Classifier) -> Iterator[None]:
    """Choose attention kernels with a second derivative. Raise an `InputError` if the network has others."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    except (NotImplementedError, RuntimeError) as error:
        if "derivative" not in str(error) and "not implemented" not in str(error):
            raise
        raise InputError(
            f"{network.name}: its attention kernel (flash attention) has no second derivative; load it "
            "with attn_implementation='eager', which gives the same values"
        ) from error
