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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log
from typing import Any

import numpy as np

from attnlaw.analysis.forward.classifier import Batch, Classifier, ModelInputs, batches
from attnlaw.analysis.forward.families import FAMILIES, BlockModules
from attnlaw.analysis.forward.margins import hard_margin
from attnlaw.analysis.forward.trace import record_calls, temporary_hooks
from attnlaw.checkpoints.network import Network
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.logs import LN10
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.factors import lipschitz, log_alpha, log_layer_factor, matrix_factors
from attnlaw.theory.bounds.proxies import why_no_proxies
from attnlaw.theory.bounds.spectrum_adaptive import best_index, effective_directions


def log10_worst_case(spectra: Network[Any]) -> list[float] | None:
    """Return log10 of the worst-case amplification alpha_{l-1} from each layer l on; None without proxies.

    Measured amplification uses another norm, which differs by at most a factor sqrt(T) for T tokens.
    """
    if why_no_proxies(spectra) is not None or spectra.activation is None:
        return None
    constant = lipschitz(spectra.activation)
    factors = [log_layer_factor(spectra.layers[layer], constant) for layer in spectra.applications]
    return [(factor + later) / LN10 for factor, later in zip(factors, log_alpha(spectra), strict=True)]


def log_worst_scales(spectra: Network[Any]) -> list[float] | None:
    """Return ln of the worst-case scale of every matrix, or None if the network has no proxies."""
    if why_no_proxies(spectra) is not None:
        return None
    leaf_factors = [factors for _, factors in matrix_factors(replace(spectra, outside_layers=())).leaves()]
    return [
        factors.log_gamma.value + factors.log_alpha.value + log(spectra.depth) for factors in leaf_factors
    ]


Key = tuple[int | None, str, int | None]  # layer, kind, head


@dataclass(frozen=True)
class MeasuredScale:
    """The measured scale of a matrix, its best Schatten index and the directions that count, if known."""

    log10_scale_measured: float | None = None
    p_measured: float | None = None
    effective_directions: int | None = None


@dataclass(frozen=True)
class MatrixScale(MeasuredScale):
    """The measured and the worst-case scale of a matrix, with its location and rank."""

    layer: int | None = field(kw_only=True)
    head: int | None = field(kw_only=True)
    kind: str = field(kw_only=True)
    rank: int = field(kw_only=True)
    log10_scale: float | None = field(kw_only=True)
    p: float | None = field(kw_only=True)


def matrix_scales(
    network: Classifier, spectra: Network[Any], inputs: ModelInputs, **options: Any
) -> tuple[MatrixScale, ...]:
    """Return the measured and the worst-case scale of every matrix, in the order of the rows of an audit."""
    measured = log_scales(network, inputs, **options)
    leaves = [leaf for layer in spectra.layers for leaf in layer.leaves()]
    worst: Sequence[float | None] = log_worst_scales(spectra) or [None] * len(leaves)
    hidden_size = require_hidden_size(spectra)
    return tuple(
        MatrixScale(
            **vars(measure_at_scale(spectrum, measured[at.layer, at.kind, at.head], hidden_size)),
            **{name: getattr(at, name) for name in ("layer", "head", "kind")},
            rank=spectrum.numerical_rank,
            log10_scale=None if log_scale is None else log_scale / LN10,
            p=None if log_scale is None else best_index(spectrum, log_scale, hidden_size),
        )
        for (at, spectrum), log_scale in zip(leaves, worst, strict=True)
    )


def measure_at_scale(spectrum: Spectrum, log_scale: float | None, hidden_size: int) -> MeasuredScale:
    """Return the best Schatten index p and the effective directions of a matrix at a given scale."""
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
    """Return ln of the measured scale of every matrix by its key, or None if half of the margins are 0."""
    parts = _modules_of_blocks(network)
    squares: dict[Key, float] = {}
    margins = np.zeros(len(inputs))
    for batch in batches(inputs, network, positions, seed, progress):
        margins[batch.input_indices], norms = _margins_and_norms(network, parts, batch)
        for key, input_norms in norms:
            squares[key] = squares.get(key, 0.0) + float((input_norms**2).sum())
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
        raise InputError("scales can only be measured if all layers have the same hidden size")
    return spectra.hidden_size


def _modules_of_blocks(network: Classifier) -> list[BlockModules]:
    kind = getattr(getattr(network.module, "config", None), "model_type", None)
    if kind not in FAMILIES:
        raise InputError(
            f"{network.name}: scales can only be measured for known types of models; give a model of type "
            f"{', '.join(FAMILIES)}"
        )
    network.module.set_attn_implementation("eager")  # other implementations do not return probabilities
    return [FAMILIES[kind].find_modules(block) for block in network.blocks]


def _margins_and_norms(
    network: Classifier, parts: Sequence[BlockModules], batch: Batch
) -> tuple[Any, Iterator[tuple[Key, Any]]]:
    """Return the margins of a batch, and for each matrix its key and the nuclear norm of dm/dM by input."""
    import torch

    def enter(number: int, states: Any) -> Any:
        return states if number else states.detach().requires_grad_()

    seen: dict[Any, tuple[Any, Any]] = {}
    made = [(part.attention, part.output, *part.feed_forward_modules.values()) for part in parts]
    with temporary_hooks(record_calls([*(part.query_module for part in parts), *chain(*made)], seen)):
        m = hard_margin(network.logits(batch, enter))
    results = (seen[module][1] for module in chain(*made))
    # Attention returns its output and its probabilities.
    tensors = [result[1] if isinstance(result, tuple) else result for result in results]
    gradients = iter(torch.autograd.grad(m.sum(), tensors))
    return m.detach().numpy(), _norms_by_matrix(parts, seen, gradients)


def _norms_by_matrix(
    parts: Sequence[BlockModules], seen: Mapping[Any, tuple[Any, Any]], gradients: Iterator[Any]
) -> Iterator[tuple[Key, Any]]:
    for layer, part in enumerate(parts):
        to_probabilities, to_output = next(gradients), next(gradients)
        p = seen[part.attention][1][1].detach()
        scores = p * (to_probabilities - (p * to_probabilities).sum(dim=-1, keepdim=True))
        x = _triangular_factor(seen[part.query_module][0].detach())[:, None]
        qk = _nuclear_norm(x @ scores @ x.mT) * float(part.attention.scaling)
        vo = _nuclear_norm(x @ p.mT @ _triangular_factor(to_output)[:, None].mT)
        for head in range(p.shape[1]):
            yield (layer, "qk", head), qk[:, head]
            yield (layer, "vo", head), vo[:, head]
        for kind, module in part.feed_forward_modules.items():
            read, gradient = seen[module][0].detach(), next(gradients)
            norm = _nuclear_norm(_triangular_factor(read) @ _triangular_factor(gradient).mT)
            yield (layer, kind, None), norm


def _triangular_factor(rows: Any) -> Any:
    """Return the triangular factor R of X^T = Q R for each input X (T x N) of a batch."""
    import torch

    return torch.linalg.qr(rows.mT, mode="r").R


def _nuclear_norm(cores: Any) -> Any:
    import torch

    return torch.linalg.svdvals(cores).sum(dim=-1).numpy()
