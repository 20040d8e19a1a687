r"""Distances between two laws of one output coordinate, each with a standard error.

| here   | means                                                                       |
|--------|-----------------------------------------------------------------------------|
| p, q   | densities of the law and of the reference; F, G are their distribution functions |
| u      | log \|y\|, the variable of integration                                        |
| h      | step of the grid in u                                                       |
| K      | batches of the jackknife                                                    |

Densities are averages of normals (see `mixture`), so integrals over y are smooth. The trapezoidal rule in u
converges geometrically: its error for N(0, v) is of order exp(-pi^2 / (2 h)), below 1e-21 at h = 0.1. It also
works if the density is singular at zero, as at width 1. The ends of the grid cost about 1e-10.

With a residual, normals N(mu, v) have means off zero, where the grid points are h |mu| apart. The integral of
such a normal can be off by `2 exp(-2 pi^2 v / (h mu)^2)`. So KL is left out if an integral is off by more
than 1e-2. Distribution functions stay smooth, so W1 and KS remain valid.

KL is also left out if a few draws decide it: far beyond the largest draw, an average of normals falls off
like a Gaussian. Then the jackknife's error is large: above 1, and above half of KL.

If the output is exactly zero in some draws, the law has an atom at zero. This happens with ReLU scores: a
token gives no weight to any token if all its scores are negative. KL then also compares the two atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.theory.limit.mixture import BATCHES, OutputLaw, combine, log_mean
from attnlaw.theory.limit.wishart import Array

_STEP = 0.1
_REFINE = 20
# If the residual is smaller, finer grids moved KL by less than its standard error (widths from 1 on).
_MOST_RESIDUAL = 1e-2
# A larger error of KL, which is also above this share of KL, means that a few draws decide it.
_MOST_ERROR = 1.0
_MOST_SHARE = 0.5
# KL is never negative. An estimate further below zero, in standard errors, is wrong.
_MOST_BELOW = 4.0
NO_QUADRATURE = "the densities of single draws are too narrow to integrate; use W1 or KS, or more draws"
INFINITE = "it is infinite, because this layer's output is exactly zero in some draws and the limit's is not"
NOT_RESOLVED = "it depends only on the few draws with the largest outputs; use W1 or KS, or more draws"
# The paper adds this to its kernel density estimates.
_FLOOR = 1e-12
# Grid cells in one bandwidth: the error of linear binning is (1/32)^2 / 12 < 1e-4 of the density's
# curvature in bandwidths, so smaller than the smoothing by that factor.
_CELLS = 32


@dataclass(frozen=True)
class Distances:
    """Three distances between a distribution and a reference, with standard errors."""

    kl: Estimate | None  # None if it is infinite, if `residual` is above 1e-2, or if a few draws decide it
    w1: Estimate
    ks: Estimate
    residual: float  # error of the quadrature for KL: how far the integral of a density is from its value
    why_no_kl: str | None = None


def distances(law: OutputLaw, reference: OutputLaw) -> Distances:
    """Compute three distances between the distribution of an output coordinate and a reference.

    `KL = integral p log(p/q) - p + q`, plus a term for output that is exactly zero. `W1 = integral |F - G|`
    and `KS = sup |F - G|`. Standard errors come from a jackknife, which leaves out the same batch of draws of
    both. KL is corrected for its bias of order 1/draws. W1 and KS are not, so they are too large if they are
    as small as their errors.
    """
    even = law.means is None and reference.means is None
    y = _half_line(law, reference)
    # An even law needs only the right half, counted twice.
    points = y if even else np.concatenate([-y[::-1], y])
    sides = [slice(None)] if even else [slice(len(y) - 1, None, -1), slice(len(y), None)]
    times = 2.0 if even else 1.0
    weights = times * (_weights(y) if even else np.concatenate([_weights(y)[::-1], _weights(y)]))
    log_p, log_q = law.log_density(points), reference.log_density(points)
    masses = [
        abs(float(np.exp(log_mean(table)) @ weights) - float((side.variances > 0).mean()))
        for table, side in ((log_p, law), (log_q, reference))
    ]
    residual = max(masses)
    kl: Estimate | None = None
    reason: str | None
    atoms = _atom_kl(law, reference)
    if not residual <= _MOST_RESIDUAL:
        reason = NO_QUADRATURE
    elif atoms is None:
        reason = INFINITE if even else NO_QUADRATURE
    else:
        continuous = _kl(_leave_one_out(log_p, log_mean), _leave_one_out(log_q, log_mean), weights)
        kl = _estimate(continuous + atoms, corrected=True)
        reason = None if _is_resolved(kl) else NOT_RESOLVED
        kl = kl if reason is None else None
    difference = _leave_one_out(
        law.distribution(points) - reference.distribution(points), lambda table: table.mean(axis=0)
    )
    areas, heights = zip(*(_gaps(y, difference[:, side]) for side in sides), strict=True)
    w1 = _estimate(times * np.sum(areas, axis=0), corrected=False)
    ks = _estimate(np.max(heights, axis=0), corrected=False)
    return Distances(kl, w1, ks, residual, reason)


def _is_resolved(kl: Estimate) -> bool:
    """Return whether the draws determine a KL divergence."""
    error = kl.error or 0.0
    if not (math.isfinite(kl.value) and math.isfinite(error)):
        return False
    return (
        error <= max(_MOST_ERROR, _MOST_SHARE * kl.value)
        and kl.value >= -_MOST_BELOW * error - _MOST_RESIDUAL
    )


def _half_line(law: OutputLaw, reference: OutputLaw) -> Array:
    """Return y > 0, even in log y, from 1e-3 deviations of the narrowest to 11 of the widest normal."""
    variances = np.concatenate([law.variances, reference.variances])
    variances = variances[variances > 0]
    shift = max((float(np.abs(m).max()) for m in (law.means, reference.means) if m is not None), default=0.0)
    first = math.log(1e-3 * math.sqrt(float(variances.min())))
    last = math.log(shift + 11 * math.sqrt(float(variances.max())))
    return np.asarray(np.exp(np.arange(first, last + _STEP, _STEP)))


def _weights(y: Array) -> Array:
    """Return trapezoidal weights in log y. The first also covers the interval from zero to the first y."""
    weights = _STEP * y
    weights[0] /= 1 - math.exp(-_STEP)  # the geometric series of the points left out
    return weights


def _leave_one_out(table: Array, average: Callable[[Array], Array]) -> Array:
    """Average a table (K, points) over all its rows, then over all rows except each one."""
    rows = [average(table), *(average(np.delete(table, k, axis=0)) for k in range(len(table)))]
    return np.stack(rows)


def _estimate(values: Array, corrected: bool) -> Estimate:
    return combine(float(values[0]), values[1:].tolist(), corrected)


def _kl(log_p: Array, log_q: Array, weights: Array) -> Array:
    # p log(p/q) - p + q = p (t + expm1(-t)) with t = log(p/q): never negative, no cancellation. If
    # p is smaller than q by a factor e^-500, only q remains.
    t = log_p - log_q
    integrand = np.where(t > -500, np.exp(log_p) * (t + np.expm1(-np.maximum(t, -500))), np.exp(log_q))
    return np.asarray(integrand @ weights)


def _atom_kl(law: OutputLaw, reference: OutputLaw) -> Array | None:
    """Return the KL of atoms at zero, over all batches and without each; None if infinite or unknown."""
    if law.has_density and reference.has_density:
        return np.zeros(BATCHES + 1)
    if law.means is not None or reference.means is not None:
        # Without a residual the atom is at zero. With one it may be elsewhere.
        return None
    p, q = (
        _leave_one_out(
            np.array([[float((batch == 0).mean())] for batch in np.array_split(side.variances, BATCHES)]),
            lambda table: table.mean(axis=0),
        )[:, 0]
        for side in (law, reference)
    )
    if bool(((p > 0) & (q == 0)).any()):
        return None
    return np.asarray(scipy.special.kl_div(p, q))  # p log(p/q) - p + q


def _gaps(y: Array, difference: Array) -> tuple[Array, Array]:
    """Return the integral and the supremum of |difference| on one half line, by a spline in log |y|."""
    u = np.log(y)
    # The spline's steps of 0.005 leave an error of the maximum below 3e-6 times its second derivative in u.
    fine = np.linspace(u[0], u[-1], _REFINE * (len(u) - 1) + 1)
    values = np.abs(_refine(difference))
    areas: Array = np.trapezoid(values * np.exp(fine), fine, axis=1) + values[:, 0] * y[0]
    return areas, values.max(axis=1)


def _refine(values: Array) -> Array:
    """Return a cubic spline ("not a knot") on a finer grid; importing SciPy's takes longer than this."""
    # Second differences are (bend[i-1] + 4 bend[i] + bend[i+1]) / 6. The ends continue in a straight line.
    # The same as SciPy's "not a knot" spline, whose import takes longer than a small comparison.
    bands = np.full((3, values.shape[1] - 2), [[1.0], [4.0], [1.0]])
    bands[1, [0, -1]] = 6.0
    bands[[0, 2], [1, -2]] = 0.0
    inner = scipy.linalg.solve_banded((1, 1), bands, 6 * np.diff(values, 2).T).T
    bend = np.hstack([2 * inner[:, :1] - inner[:, 1:2], inner, 2 * inner[:, -1:] - inner[:, -2:-1]])
    t = np.arange(_REFINE) / _REFINE
    weights = 1 - t, t, ((1 - t) ** 3 - (1 - t)) / 6, (t**3 - t) / 6
    columns = values[:, :-1], values[:, 1:], bend[:, :-1], bend[:, 1:]
    fine = sum(column[..., None] * weight for column, weight in zip(columns, weights, strict=True))
    return np.hstack([np.reshape(fine, (len(values), -1)), values[:, -1:]])


def gaussian_kde(sample: Array, points: Array) -> Array:
    """Return a Gaussian kernel density estimate with Scott's bandwidth `std n^(-1/5)`."""
    width = float(np.std(sample, ddof=1)) * len(sample) ** -0.2
    if not width > 0:
        raise InputError("all sampled values are equal; a kernel density estimate needs a sample that varies")
    spacing = (points[-1] - points[0]) / (len(points) - 1)
    split = max(1, int(np.ceil(_CELLS * spacing / width)))
    step = spacing / split
    pad = int(np.ceil(8 * width / step))
    inside = split * (len(points) - 1) + 1
    position = np.clip((sample - points[0]) / step + pad, 0, inside + 2 * pad - 1.000001)
    cell = position.astype(np.int64)
    share = position - cell
    size = inside + 2 * pad
    # The sample is binned on a fine grid, so the cost hardly depends on the sample size.
    mass = np.bincount(cell, 1 - share, size) + np.bincount(cell + 1, share, size)
    offsets = np.arange(-pad, pad + 1) * (step / width)
    kernel = np.exp(-(offsets**2) / 2) / (np.sqrt(2 * np.pi) * width * len(sample))
    smooth: Array = scipy.signal.fftconvolve(mass, kernel, mode="same")
    return np.maximum(smooth[pad : pad + inside : split], 0.0)


def kernel_kl(sample: Array, reference: Array, points: int = 500) -> float:
    """Return the paper's estimate of the KL divergence between two samples (kernel densities)."""
    low = min(float(sample.min()), float(reference.min()))
    high = max(float(sample.max()), float(reference.max()))
    grid = np.linspace(low, high, points)
    p, q = (gaussian_kde(values, grid) + _FLOOR for values in (sample, reference))
    return float(np.trapezoid(p * np.log(p / q), grid))
