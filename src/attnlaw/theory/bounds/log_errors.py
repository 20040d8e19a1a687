"""Errors of quantities that are computed from approximate (`spectra.approximate`) or float32 spectra.

| source | what it changes | how it adds up over matrices |
|---|---|---|
| probes of one matrix | the Schatten sum of this matrix | independent: added in squares |
| quadrature, within its bracket | the Schatten sum of this matrix, in one direction | common: added |
| float32, within its bound | the Schatten sum of this matrix | common: added |
| spectral norms, each within its bound | every gamma and alpha that contains the norm | common: added |

Every factor increases with every spectral norm. So raising all norms at once gives upper bounds of the
factors.
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
    """The error of the natural logarithm of a quantity, split into a random and a systematic part."""

    spread: float  # random part, a standard error over probes
    bound: float  # systematic part, from quadrature, float32 and spectral norms

    @classmethod
    def of(cls, spectrum: Spectrum, value: Callable[[Spectrum], float], norms: float) -> Self:
        """Return the error of a logarithm that the function `value` computes from a spectrum."""
        return cls(spectrum.spread(value) or 0.0, norms + (spectrum.bracket(value) or 0.0))

    @property
    def total(self) -> float:
        return hypot(self.spread, self.bound)


def combine_log_errors(terms: Iterable[tuple[Hashable, float, LogError]]) -> float:
    """Return the error of a weighted sum of logarithms. Each term is a matrix, its weight and its error."""
    spreads: dict[Hashable, float] = defaultdict(float)
    bound = 0.0
    for matrix, weight, error in terms:
        spreads[matrix] += abs(weight) * error.spread  # all terms of a matrix share one random error
        bound += abs(weight) * error.bound
    # Errors of different matrices are independent, so their squares are added.
    return hypot(*spreads.values(), bound)


def with_upper_norms(network: Network[Spectrum]) -> Network[Spectrum] | None:
    """Return the network with spectral norms raised by their errors, or None if all norms are exact."""
    if all(spectrum.is_exact for _, spectrum in network.leaves()):
        return None
    return network.map(
        lambda _, spectrum: (
            spectrum
            if spectrum.is_exact
            else with_spectral_norm(spectrum, spectrum.spectral + (spectrum.spectral_error or 0.0))
        )
    )


def log_increase(upper: float, value: float) -> float:
    """Return `upper - value`, or 0 if `value` is minus infinity (the logarithm of zero)."""
    return upper - value if np.isfinite(value) else 0.0


def with_spectral_norm(spectrum: Spectrum, norm: float) -> Spectrum:
    """Return a copy of a spectrum with another spectral norm. Nothing else of the copy may be used."""
    return replace(spectrum, values=np.array([norm]))
