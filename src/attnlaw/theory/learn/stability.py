"""An indicator of whether a student with a loss that is not convex has one solution.

Consider a student narrower than what it would learn. Its map of eigenvalues `f(x) = (x - b) 1(x > t)`
(untied: of abs(x), with the sign of x) jumps at t > b. Replica symmetry requires `K sum_k 2 alpha_k c_k^2 /
Vhat^2 < 1` (one group, tied: `K < 2 alpha_T`; untied: `K < alpha_P`) with

    K = mean over all pairs (i, j) of ((f(x_i) - f(x_j)) / (x_i - x_j))^2,    f'(x_i) for i = j,

where x are the quantiles of mu_delta. A jump costs `log d`, so in principle every jump is unstable for d ->
infinity. K is therefore given for d = 160 and is only an indicator. Training runs from three starts agreed if
it was below 0.5, were up to 1% apart in E from 0.6 to 1, and 3% and more beyond 1.5. Convex students have `K
<= chi` and are always stable.

A softmax with a squared loss is not convex either. The same K, of `f(x) = (x - b)_+`, is then multiplied by
the response of its channel (`attnlaw.theory.learn.softmax`). This leaves out that a few proximal points jump
between two minima. Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.numerics.quadrature import cosine_coefficients
from attnlaw.theory.laws.free_convolution import Base, Truncated

SIZE, ANGLES = 160, 4096


def mean_square_slope(
    law: Base, delta: float, b: float, cut: float | None = None, sides: int = 1, size: int = SIZE
) -> float:
    """Return K, the mean squared slope of `f(x) = (x - b) 1(x > max(b, cut))` between quantiles."""
    x = _quantiles(law, delta, size, sides)
    signs = np.sign(x) if sides == 2 else np.ones(x.size)
    kept = signs * x > max(b, b if cut is None else cut)
    f = np.where(kept, x - signs * b, 0.0)
    gap = x[:, None] - x
    ratio = (f[:, None] - f) / np.where(gap == 0, 1.0, gap)
    ratio[np.diag_indices_from(ratio)] = kept
    return float(np.mean(ratio**2))


def _quantiles(law: Base, delta: float, size: int, sides: int) -> Reals:
    """Return `size * sides` mid-level quantiles of mu_delta, ascending."""
    places: list[Reals] = []
    masses: list[Reals] = []
    for _, groups in Truncated(law, np.array([delta])).node_groups():
        for nodes in groups:
            places.extend(_interpolate_angles(nodes.x[0]))
            masses.extend(_interpolate_angles(nodes.mass[0]))
    order = np.argsort([place[0] for place in places])
    x, mass = (np.concatenate([parts[i] for i in order]) for parts in (places, masses))
    reached = np.cumsum(mass) - mass / 2
    count = size * sides
    return np.asarray(np.interp((np.arange(count) + 0.5) / count, reached / mass.sum(), x))


def _interpolate_angles(values: Reals) -> Reals:
    """Interpolate functions of an angle (intervals, nodes) to 4096 midpoints, by their cosine series."""
    coefficients = cosine_coefficients(values)[:, :ANGLES]
    padded = np.zeros((len(values), ANGLES))
    padded[:, : coefficients.shape[1]] = coefficients
    padded[:, 1:] /= 2
    return np.asarray(scipy.fft.dct(padded, type=3, axis=-1))
