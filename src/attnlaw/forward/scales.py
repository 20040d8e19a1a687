"""The scale of every matrix of a network, measured on inputs, in the place of its worst case.

With C(p) and scale = gamma alpha L of arXiv 2605.07297 (`bounds.spectrum_adaptive`), the measured scale is

    scale(M) = L sqrt(mean_x |dm/dM|_*^2) / median_x m

with m the margin of the model's own prediction and |.|_* the nuclear norm, dual to the spectral one.

| matrix | dm/dM |
|---|---|
| QK of a head | X^T S X / sqrt(d), S = dm / d(softmax input), X what the attention block reads |
| VO of a head | X^T P^T O, P its attention, O = dm / d(output of the block) |
| maps of feed-forward | Z^T G, Z what the map reads, G = dm / d(its output) |

Each has at most as many directions as there are tokens: with X^T = Q R its norm is that of a core such as
R S R^T. Under rotary positions dm/dQK is by a change of the scores that all positions share.

These numbers are measured and local, no bound; their sum ranks nothing and is not given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from math import log
from typing import Any

import numpy as np

from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import InputError
from attnlaw.bounds.directions import effective_directions
from attnlaw.bounds.spectrum_adaptive import best_index
from attnlaw.forward.families import FAMILIES, Parts
from attnlaw.forward.headed import Batch, Headed, Inputs, batches
from attnlaw.forward.hooks import hooked
from attnlaw.forward.margins import margin_hard
from attnlaw.forward.worst_case import log_worst_scales
from attnlaw.models.network import Network
from attnlaw.numerics.logs import LN10
from attnlaw.spectra.spectrum import Spectrum

Key = tuple[int | None, str, int | None]  # layer, kind, head


@dataclass(frozen=True)
class AtScale:
    """A matrix at its measured scale; all None where half of the margins are 0.

    No count of directions where its spectrum is approximate.
    """

    log10_scale_measured: float | None = None
    p_measured: float | None = None
    effective_directions: int | None = None


@dataclass(frozen=True)
class MatrixScale(AtScale):
    """The same with its place, its rank, and scale and index p by the worst case; None where it has none."""

    layer: int | None = field(kw_only=True)
    head: int | None = field(kw_only=True)
    kind: str = field(kw_only=True)
    rank: int = field(kw_only=True)
    log10_scale: float | None = field(kw_only=True)
    p: float | None = field(kw_only=True)


def matrix_scales(
    network: Headed,
    spectra: Network[Any],
    inputs: Inputs,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[MatrixScale, ...]:
    """Every matrix of a network, measured beside its worst case, in the order of an audit's rows."""
    measured = log_scales(network, inputs, positions, seed, progress)
    leaves = [leaf for layer in spectra.layers for leaf in layer.leaves()]
    worst: Sequence[float | None] = log_worst_scales(spectra) or [None] * len(leaves)
    hidden_size = one_hidden_size(spectra)
    return tuple(
        MatrixScale(
            **vars(at_scale(spectrum, measured[place.layer, place.kind, place.head], hidden_size)),
            layer=place.layer,
            head=place.head,
            kind=place.kind,
            rank=spectrum.numerical_rank,
            log10_scale=None if own is None else own / LN10,
            p=None if own is None else best_index(spectrum, own, hidden_size),
        )
        for (place, spectrum), own in zip(leaves, worst, strict=True)
    )


def at_scale(spectrum: Spectrum, log_scale: float | None, hidden_size: int) -> AtScale:
    """The best index p and the effective directions of a matrix at a scale."""
    if log_scale is None:
        return AtScale()
    exact = spectrum.multiplicities is None
    return AtScale(
        log10_scale_measured=log_scale / LN10 if np.isfinite(log_scale) else None,
        p_measured=best_index(spectrum, log_scale, hidden_size),
        effective_directions=effective_directions(spectrum, log_scale, hidden_size) if exact else None,
    )


def log_scales(
    network: Headed,
    inputs: Inputs,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = silent,
) -> dict[Key, float | None]:
    """ln of the measured scale of every matrix by its key; None where half of the margins are 0."""
    parts = _parts(network)
    squares: dict[Key, float] = {}
    margins = np.zeros(len(inputs))
    done = 0
    for batch in batches(inputs, network, positions, seed):
        margins[batch.places], norms = _norms(network, parts, batch)
        for key, own in norms:
            squares[key] = squares.get(key, 0.0) + float((own**2).sum())
        done += len(batch.places)
        progress(done, len(inputs))
    middle = float(np.median(margins))
    if middle == 0:
        return dict.fromkeys(squares)
    with np.errstate(divide="ignore"):
        return {
            key: log(len(parts)) + float(np.log(total / len(inputs))) / 2 - log(middle)
            for key, total in squares.items()
        }


def one_hidden_size(spectra: Network[Any]) -> int:
    """That of all layers; an `InputError` where they differ."""
    if spectra.hidden_size is None:
        raise InputError("measured scales need layers of one hidden size")
    return spectra.hidden_size


def _parts(network: Headed) -> list[Parts]:
    kind = getattr(getattr(network.module, "config", None), "model_type", None)
    if kind not in FAMILIES:
        raise InputError(
            f"{network.name}: measured scales need the heads of a known family; "
            f"give a model of type {', '.join(FAMILIES)}"
        )
    network.module.set_attn_implementation("eager")  # others keep their probabilities to themselves
    return [FAMILIES[kind].parts(block) for block in network.blocks]


@dataclass(eq=False)
class _Seen:
    """What one block read and made, in one pass: tensors of the graph but for what was read."""

    read: Any = None
    probabilities: Any = None
    output: Any = None
    maps: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def made(self) -> list[Any]:
        return [self.probabilities, self.output, *(made for _, made in self.maps.values())]


def _norms(network: Headed, parts: Sequence[Parts], batch: Batch) -> tuple[Any, Iterator[tuple[Key, Any]]]:
    """Margins of a batch, and the nuclear norms of dm/dM for each input, matrix by matrix."""
    import torch

    def enter(number: int, states: Any) -> Any:
        return states if number else states.detach().requires_grad_()

    seen = [_Seen() for _ in parts]
    with _watching(parts, seen):
        m = margin_hard(network.logits(batch, enter))
    gradients = torch.autograd.grad(m.sum(), [one for own in seen for one in own.made])
    return m.detach().numpy(), _by_matrix(parts, seen, list(gradients))


def _by_matrix(
    parts: Sequence[Parts], seen: Sequence[_Seen], gradients: list[Any]
) -> Iterator[tuple[Key, Any]]:
    for layer, (part, own) in enumerate(zip(parts, seen, strict=True)):
        to_probabilities, to_output, *to_maps = gradients[: len(own.made)]
        del gradients[: len(own.made)]
        p = own.probabilities.detach()
        scores = p * (to_probabilities - (p * to_probabilities).sum(dim=-1, keepdim=True))
        x = _core(own.read)[:, None]
        qk = _nuclear(x @ scores @ x.mT) * float(part.attention.scaling)
        vo = _nuclear(x @ p.mT @ _core(to_output)[:, None].mT)
        for head in range(p.shape[1]):
            yield (layer, "qk", head), qk[:, head]
            yield (layer, "vo", head), vo[:, head]
        for (kind, (read, _)), gradient in zip(own.maps.items(), to_maps, strict=True):
            yield (layer, kind, None), _nuclear(_core(read) @ _core(gradient).mT)


def _core(rows: Any) -> Any:
    """R of X^T = Q R, for X (B x T x N): as many rows as X has directions at most."""
    import torch

    return torch.linalg.qr(rows.mT, mode="r").R


def _nuclear(cores: Any) -> Any:
    import torch

    return torch.linalg.svdvals(cores).sum(dim=-1).numpy()


def _watching(parts: Sequence[Parts], seen: Sequence[_Seen]) -> AbstractContextManager[None]:
    """Note what every block reads and makes in the pass inside."""
    hooks: list[Any] = []
    for part, own in zip(parts, seen, strict=True):
        hooks += [
            part.reads.register_forward_hook(partial(_note_read, own)),
            part.attention.register_forward_hook(partial(_note_attention, own)),
            part.output.register_forward_hook(partial(_note_output, own)),
            *(one.register_forward_hook(partial(_note_map, own, kind)) for kind, one in part.maps.items()),
        ]
    return hooked(hooks)


def _note_read(own: _Seen, module: Any, words: Any, result: Any) -> None:
    own.read = words[0].detach()


def _note_attention(own: _Seen, module: Any, words: Any, result: Any) -> None:
    own.probabilities = result[1]


def _note_output(own: _Seen, module: Any, words: Any, result: Any) -> None:
    own.output = result


def _note_map(own: _Seen, kind: str, module: Any, words: Any, result: Any) -> None:
    own.maps[kind] = words[0].detach(), result
