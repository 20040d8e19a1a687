"""How many directions of a matrix count at a scale.

    B(M) = min_r max(sqrt(N r), N scale s_{r+1}) <= min_p C(p)        0 <= r <= rank, s_{rank+1} = 0

with C(p) of `spectrum_adaptive` (arXiv 2605.07297; this bound from below is ours). Proof: let v = C(p) and
t = v / (N scale). Of the s_i at most sum_i s_i^p / t^p = v^2 / N exceed t; with that many for r, both terms
are at most v. The smallest minimising r counts the effective directions: those below them move the output too
little at this scale to be worth their rank.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from attnlaw.spectra.spectrum import Spectrum


def log_truncations(spectrum: Spectrum, log_scale: float, hidden_size: int) -> NDArray[np.float64]:
    """ln max(sqrt(N r), N scale s_{r+1}) for r = 0 .. rank, of an exact spectrum.

    >>> spectrum = Spectrum(np.array([4.0, 2.0, 1.0, 0.5]), (4, 4), norm_21=0, norm_11=0, route="svd")
    >>> np.exp(log_truncations(spectrum, log(0.01), 256)).round(2)
    array([10.24, 16.  , 22.63, 27.71, 32.  ])
    """
    values = np.append(spectrum.above_tolerance, 0.0)
    with np.errstate(divide="ignore"):
        kept = np.log(hidden_size * np.arange(values.size, dtype=np.float64)) / 2
        left = log(hidden_size) + log_scale + np.log(values)
    return np.asarray(np.maximum(kept, left))


def effective_directions(spectrum: Spectrum, log_scale: float, hidden_size: int) -> int:
    """The smallest r at which B(M) is reached.

    >>> spectrum = Spectrum(np.array([4.0, 2.0, 1.0, 0.5]), (4, 4), norm_21=0, norm_11=0, route="svd")
    >>> [effective_directions(spectrum, log(scale), 256) for scale in (0.01, 0.1, 1.0)]
    [0, 2, 4]
    """
    return int(np.argmin(log_truncations(spectrum, log_scale, hidden_size)))
