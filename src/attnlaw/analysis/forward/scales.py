"""The scale of every matrix of a network, measured on inputs, and its worst case from the weights alone.

With C(p) and scale = gamma alpha L of arXiv 2605.07297 (`theory.bounds.spectrum_adaptive`), the measured
scale is

    scale(M) = L sqrt(mean_x |dm/dM|_*^2) / median_x m

m is the margin of the model's own prediction, and |.|_* is the nuclear norm, dual to the spectral norm.

| matrix | dm/dM |
|---|---|
| QK of a head | X^T S X / sqrt(d), S = dm / d(softmax input), X what the attention block reads |
| VO of a head | X^T P^T O, P its attention, O = dm / d(output of the block) |
| feed-forward matrices | Z^T G, Z what the matrix reads, G = dm / d(its output) |

Each gradient has at most as many directions as there are tokens. With X^T = Q R its norm is that of a small
core such as R S R^T. Under rotary positions, dm/dQK is the gradient for a change of the scores that all
positions share.

These numbers are measured and local. They are not bounds. Their sum ranks nothing, so it is not given. The
worst case multiplies factors over layers (arXiv 2605.07297).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from math import log
from typing import Any

import numpy as np

from attnlaw.analysis.forward.classifier import Batch, Classifier, ModelInputs, batches
from attnlaw.analysis.forward.families import FAMILIES, BlockModules
from attnlaw.analysis.forward.margins import hard_margin
from attnlaw.analysis.forward.trace import temporary_hooks
from attnlaw.checkpoints.network import Network
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.logs import LN10
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.factors import lipschitz, log_alpha, log_layer_factor, matrix_factors
from attnlaw.theory.bounds.proxies import why_no_proxies
from attnlaw.theory.bounds.spectrum_adaptive import best_index, effective_directions


def log10_worst_case(spectra: Network[Any]) -> list[float] | None:
    """Return for each l log10 of the product of the factors of layers k >= l; None without proxies.

    This is alpha_{l-1} of arXiv 2605.07297. Measured amplification uses another norm, which differs by at
    most sqrt(T).
    """
    if why_no_proxies(spectra) is not None or spectra.activation is None:
        return None
    constant = lipschitz(spectra.activation)
    factors = [log_layer_factor(spectra.layers[layer], constant) for layer in spectra.applications]
    return [(factor + later) / LN10 for factor, later in zip(factors, log_alpha(spectra), strict=True)]


def log_worst_scales(spectra: Network[Any]) -> list[float] | None:
    """Return ln of scale = gamma alpha L of every matrix, in the order of rows; None without proxies."""
    if why_no_proxies(spectra) is not None:
        return None
    leaf_factors = [factors for _, factors in matrix_factors(replace(spectra, outside_layers=())).leaves()]
    return [
        factors.log_gamma.value + factors.log_alpha.value + log(spectra.depth) for factors in leaf_factors
    ]


Key = tuple[int | None, str, int | None]  # layer, kind, head


@dataclass(frozen=True)
class MeasuredScale:
    """A matrix at its measured scale. All fields are None if half of the margins are 0.

    Args:
        p_measured: the best Schatten index at this scale.
        effective_directions: singular values that count at this scale; None if the spectrum is approximate.
    """

    log10_scale_measured: float | None = None
    p_measured: float | None = None
    effective_directions: int | None = None


@dataclass(frozen=True)
class MatrixScale(MeasuredScale):
    """A measured scale with the location and rank of its matrix, and its worst case.

    Args:
        log10_scale: worst-case scale; None if the network has none.
        p: the best Schatten index at the worst-case scale; None if the network has none.
    """

    layer: int | None = field(kw_only=True)
    head: int | None = field(kw_only=True)
    kind: str = field(kw_only=True)
    rank: int = field(kw_only=True)
    log10_scale: float | None = field(kw_only=True)
    p: float | None = field(kw_only=True)


def matrix_scales(
    network: Classifier,
    spectra: Network[Any],
    inputs: ModelInputs,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[MatrixScale, ...]:
    """Return the measured and the worst-case scale of every matrix, in the order of the rows of an audit."""
    measured = log_scales(network, inputs, positions, seed, progress)
    leaves = [leaf for layer in spectra.layers for leaf in layer.leaves()]
    worst: Sequence[float | None] = log_worst_scales(spectra) or [None] * len(leaves)
    hidden_size = require_hidden_size(spectra)
    return tuple(
        MatrixScale(
            **vars(
                measure_at_scale(
                    spectrum, measured[location.layer, location.kind, location.head], hidden_size
                )
            ),
            layer=location.layer,
            head=location.head,
            kind=location.kind,
            rank=spectrum.numerical_rank,
            log10_scale=None if log_scale is None else log_scale / LN10,
            p=None if log_scale is None else best_index(spectrum, log_scale, hidden_size),
        )
        for (location, spectrum), log_scale in zip(leaves, worst, strict=True)
    )


def measure_at_scale(spectrum: Spectrum, log_scale: float | None, hidden_size: int) -> MeasuredScale:
    """Return the best index p and the effective directions of a matrix at a scale."""
    if log_scale is None:
        return MeasuredScale()
    exact = spectrum.multiplicities is None
    return MeasuredScale(
        log10_scale_measured=log_scale / LN10 if np.isfinite(log_scale) else None,
        p_measured=best_index(spectrum, log_scale, hidden_size),
        effective_directions=effective_directions(spectrum, log_scale, hidden_size) if exact else None,
    )


def log_scales(
    network: Classifier,
    inputs: ModelInputs,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[Key, float | None]:
    """Return ln of the measured scale of every matrix by its key; None if half of the margins are 0."""
    parts = _modules_of_blocks(network)
    squares: dict[Key, float] = {}
    margins = np.zeros(len(inputs))
    done = 0
    for batch in batches(inputs, network, positions, seed):
        margins[batch.input_indices], norms = _margins_and_norms(network, parts, batch)
        for key, input_norms in norms:
            squares[key] = squares.get(key, 0.0) + float((input_norms**2).sum())
        done += len(batch.input_indices)
        progress(done, len(inputs))
    middle = float(np.median(margins))
    if middle == 0:
        return dict.fromkeys(squares)
    with np.errstate(divide="ignore"):
        return {
            key: log(len(parts)) + float(np.log(total / len(inputs))) / 2 - log(middle)
            for key, total in squares.items()
        }


def require_hidden_size(spectra: Network[Any]) -> int:
    """Return the hidden size that all layers share, or raise an `InputError` if they differ."""
    if spectra.hidden_size is None:
        raise InputError("measured scales need layers of one hidden size")
    return spectra.hidden_size


def _modules_of_blocks(network: Classifier) -> list[BlockModules]:
    kind = getattr(getattr(network.module, "config", None), "model_type", None)
    if kind not in FAMILIES:
        raise InputError(
            f"{network.name}: measured scales need the heads of a known family; "
            f"give a model of type {', '.join(FAMILIES)}"
        )
    network.module.set_attn_implementation("eager")  # other implementations do not return probabilities
    return [FAMILIES[kind].find_modules(block) for block in network.blocks]


@dataclass(eq=False)
class _BlockRecord:
    """The tensors that one block read and produced in one pass."""

    attention_input: Any = None
    probabilities: Any = None
    output: Any = None
    maps: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def graph_tensors(self) -> list[Any]:
        return [self.probabilities, self.output, *(made for _, made in self.maps.values())]


def _margins_and_norms(
    network: Classifier, parts: Sequence[BlockModules], batch: Batch
) -> tuple[Any, Iterator[tuple[Key, Any]]]:
    """Return the margins of a batch and, matrix by matrix, the nuclear norms of dm/dM for each input."""
    import torch

    def enter(number: int, states: Any) -> Any:
        return states if number else states.detach().requires_grad_()

    seen = [_BlockRecord() for _ in parts]
    with _record_blocks(parts, seen):
        m = hard_margin(network.logits(batch, enter))
    gradients = torch.autograd.grad(m.sum(), [tensor for record in seen for tensor in record.graph_tensors])
    return m.detach().numpy(), _norms_by_matrix(parts, seen, list(gradients))


def _norms_by_matrix(
    parts: Sequence[BlockModules], seen: Sequence[_BlockRecord], gradients: list[Any]
) -> Iterator[tuple[Key, Any]]:
    for layer, (part, record) in enumerate(zip(parts, seen, strict=True)):
        to_probabilities, to_output, *to_maps = gradients[: len(record.graph_tensors)]
        del gradients[: len(record.graph_tensors)]
        p = record.probabilities.detach()
        scores = p * (to_probabilities - (p * to_probabilities).sum(dim=-1, keepdim=True))
        x = _triangular_factor(record.attention_input)[:, None]
        qk = _nuclear_norm(x @ scores @ x.mT) * float(part.attention.scaling)
        vo = _nuclear_norm(x @ p.mT @ _triangular_factor(to_output)[:, None].mT)
        for head in range(p.shape[1]):
            yield (layer, "qk", head), qk[:, head]
            yield (layer, "vo", head), vo[:, head]
        for (kind, (read, _)), gradient in zip(record.maps.items(), to_maps, strict=True):
            yield (
                (layer, kind, None),
                _nuclear_norm(_triangular_factor(read) @ _triangular_factor(gradient).mT),
            )


def _triangular_factor(rows: Any) -> Any:
    """Return R of X^T = Q R for X (B x T x N). It has at most as many rows as X has directions."""
    import torch

    return torch.linalg.qr(rows.mT, mode="r").R


def _nuclear_norm(cores: Any) -> Any:
    import torch

    return torch.linalg.svdvals(cores).sum(dim=-1).numpy()


def _record_blocks(
    parts: Sequence[BlockModules], seen: Sequence[_BlockRecord]
) -> AbstractContextManager[None]:
    """Record what every block reads and produces in the pass inside the context."""
    hooks: list[Any] = []
    for part, record in zip(parts, seen, strict=True):
        hooks += [
            part.query_module.register_forward_hook(partial(_record_input, record)),
            part.attention.register_forward_hook(partial(_record_attention, record)),
            part.output.register_forward_hook(partial(_record_output, record)),
            *(
                module.register_forward_hook(partial(_record_map, record, kind))
                for kind, module in part.feed_forward_modules.items()
            ),
        ]
    return temporary_hooks(hooks)


def _record_input(record: _BlockRecord, module: Any, args: Any, result: Any) -> None:
    record.attention_input = args[0].detach()


def _record_attention(record: _BlockRecord, module: Any, words: Any, result: Any) -> None:
    record.probabilities = result[1]


def _record_output(record: _BlockRecord, module: Any, words: Any, result: Any) -> None:
    record.output = result


def _record_map(record: _BlockRecord, kind: str, module: Any, words: Any, result: Any) -> None:
    record.maps[kind] = words[0].detach(), result
