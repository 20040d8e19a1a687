"""Errors of what follows from approximate (`spectra.approximate`) and float32 spectra, to first order.

| source | moves | over matrices |
|---|---|---|
| probes of one matrix | its own Schatten sum | independent: added in squares |
| quadrature, within its bracket | its own Schatten sum, always the same way | common: added |
| float32, within its bound | its own Schatten sum | common: added |
| spectral norms, each within its bound | every gamma and alpha that it enters | common: added |

Every factor grows with every spectral norm, so all norms raised by their bounds at once bound the factors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from math import hypot
from typing import Self

import numpy as np

from attnlaw.checkpoints.network import Network
from attnlaw.spectra.spectrum import Spectrum


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


def combine_log_errors(terms: Iterable[tuple[Hashable, float, LogError]]) -> float:
    """The error of a sum of weight times logarithm; terms are (matrix, weight, error of the logarithm).

    >>> combine_log_errors([("a", 0.5, LogError(0.06, 0.01)), ("b", 0.5, LogError(0.08, 0.01))])
    0.05099019513592785
    """
    spreads: dict[Hashable, float] = defaultdict(float)
    bound = 0.0
    for matrix, weight, error in terms:
        spreads[matrix] += abs(weight) * error.spread  # a matrix that is used again errs in the same way
        bound += abs(weight) * error.bound
    return hypot(*spreads.values(), bound)


def with_upper_norms(network: Network[Spectrum]) -> Network[Spectrum] | None:
    """The network with every approximate spectral norm raised by its error; None where all are exact."""
    if all(spectrum.is_exact for _, spectrum in network.leaves()):
        return None
    return network.map(lambda _, spectrum: with_spectral_norm(spectrum, _upper_norm(spectrum)))


def log_increase(upper: float, value: float) -> float:
    """How far a logarithm was raised; nothing for the logarithm of zero."""
    return upper - value if np.isfinite(value) else 0.0


def with_spectral_norm(spectrum: Spectrum, norm: float) -> Spectrum:
    """The spectrum with another spectral norm, for the factors, which read no other value.

    The first value moves alone: it leads an approximate spectrum with multiplicity zero, in no sum.
    """
    return replace(spectrum, values=np.append(norm, spectrum.values[1:]))


def _upper_norm(spectrum: Spectrum) -> float:
    return spectrum.spectral + (spectrum.spectral_error or 0.0)
