"""Errors of what follows from approximate spectra (see `spectra.lanczos`), to first order.

| source | moves | over matrices |
|---|---|---|
| probes of one matrix | its own Schatten sum | independent: added in squares |
| quadrature, within its bracket | its own Schatten sum, always the same way | common: added |
| spectral norms, each within its bound | every gamma and alpha that it enters | common: added |

Every factor grows with every spectral norm, so all norms raised by their bounds at once bound the factors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from math import hypot
from typing import Any, Self

import numpy as np

from attnlaw.bounds.network import ExpertSpectra, Heads, LayerSpectra, Network
from attnlaw.spectra import Spectrum


@dataclass(frozen=True)
class LogError:
    """The error of a natural logarithm: `spread` by probes, `bound` by quadrature and spectral norms."""

    spread: float
    bound: float

    @classmethod
    def of(cls, spectrum: Spectrum, value: Callable[[Spectrum], float], norms: float) -> Self:
        """Of a logarithm that a spectrum determines; `norms` is what spectral norms may move it by."""
        return cls(spectrum.spread(value) or 0.0, norms + (spectrum.bracket(value) or 0.0))

    @property
    def total(self) -> float:
        return hypot(self.spread, self.bound)


def combined(terms: Iterable[tuple[Hashable, float, LogError]]) -> float:
    """The error of a sum of weight times logarithm; terms are (matrix, weight, error of the logarithm).

    >>> combined([("a", 0.5, LogError(0.06, 0.01)), ("b", 0.5, LogError(0.08, 0.01))])
    0.05099019513592785
    """
    spreads: dict[Hashable, float] = defaultdict(float)
    bound = 0.0
    for matrix, weight, error in terms:
        spreads[matrix] += abs(weight) * error.spread  # a matrix that is used again errs in the same way
        bound += abs(weight) * error.bound
    return hypot(*spreads.values(), bound)


def raised(network: Network) -> Network | None:
    """The network with every approximate spectral norm raised by its error; None where all are exact."""
    spectra = (spectrum for layer in network.layers for *_, spectrum in layer.matrices())
    if all(spectrum.multiplicities is None for spectrum in spectra):
        return None
    return replace(network, layers=tuple(_layer(layer) for layer in network.layers))


def rise(upper: float, value: float) -> float:
    """How far a logarithm was raised; nothing for the logarithm of zero."""
    return upper - value if np.isfinite(value) else 0.0


def _layer(layer: LayerSpectra) -> LayerSpectra:
    return replace(
        layer,
        attention=_heads(layer.attention),
        cross=None if layer.cross is None else _heads(layer.cross),
        **_block(layer),
        experts=tuple(replace(expert, **_block(expert)) for expert in layer.experts),
    )


def _heads(heads: Heads) -> Heads:
    return Heads(*(tuple(map(_spectrum, spectra)) for spectra in (heads.qk, heads.vo)))


def _block(block: LayerSpectra | ExpertSpectra) -> dict[str, Any]:
    named = {"inner": block.inner, "gate": block.gate, "outer": block.outer}
    return {name: _spectrum(spectrum) for name, spectrum in named.items() if spectrum is not None}


def _spectrum(spectrum: Spectrum) -> Spectrum:
    """The first value moves alone: it leads an approximate spectrum with multiplicity zero, in no sum."""
    own = spectrum.multiplicities
    if own is None:
        return spectrum
    return replace(spectrum, values=np.append(spectrum.spectral + own.spectral_error, spectrum.values[1:]))
