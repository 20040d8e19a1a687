"""Target eigenvalues outside the bulk, and the outliers of the trained matrix that they cause.

A single target eigenvalue s, of no weight in the limit, appears at `s + delta^2 int dmu*(t)/(s-t)` in `S* +
delta Z` as long as `delta^2 int dmu*(t)/(s-t)^2 < 1`. Its squared overlap is one minus that (Baik, Ben Arous
and Peche; Capitaine, Donati-Martin and Feral). A mode of a power law, of weight 1/d, is an outlier if noise
blurs it into an interval of its own. For untied attention s is a singular value, mu* has both signs, and the
overlap is that of left and of right singular vectors (Benaych-Georges and Nadakuditi, arXiv 1103.2221).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.theory.laws.convolution_nodes import biane_atoms
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Base
from attnlaw.theory.learn.target import Target


@dataclass(frozen=True)
class Outlier:
    """An outlier of the trained matrix, and the target eigenvalue that causes it."""

    target: float  # eigenvalue of the target
    location: float  # eigenvalue of the trained matrix
    overlap: float  # squared overlap of the two eigenvectors


def find_outliers(
    target: Target, delta: float, threshold: float | None, shrinkage: float, cut: float | None = None
) -> tuple[Outlier, ...]:
    """Find the outliers of `shrinkage (X - threshold)_+` with `X = S* + delta Z`, largest first.

    The matrix is not thresholded if `threshold` is None. Values of X below `cut` are also set to zero.
    """
    base = target.law
    candidates = []
    for spike in target.spikes:
        if not any(low <= spike <= high for low, high in (*base.intervals, *((x, x) for x, _ in base.atoms))):
            candidates.append((spike, *_moments(base, spike)))
    for mode in isolated_modes(target, delta):
        if mode is not None:
            candidates.append((mode, *_moments(base, mode)))
    outliers = []
    for spike, first, second in sorted(candidates, reverse=True):
        place = spike + delta**2 * first
        location = place - (threshold or 0.0)
        if delta**2 * second < 1 and (threshold is None or place > max(threshold, cut or 0.0)):
            outliers.append(Outlier(spike, shrinkage * location, 1 - delta**2 * second))
    return tuple(outliers)


def shrunk_outliers(target: Target, a: float) -> tuple[Outlier, ...]:
    """Find the outliers of the Bayes-optimal estimate. It maps x, the noisy position of s, to `2 s - x`."""
    # Noise moves s to x with a^2 g = x - s, so x - 2 a^2 g is as far below s as x is above.
    return tuple(
        Outlier(seen.target, 2 * seen.target - seen.location, seen.overlap)
        for seen in find_outliers(target, a, None, 1.0)
    )


def isolated_modes(target: Target, delta: float) -> list[float | None]:
    """Return for each interval of the noisy spectrum the only target eigenvalue in it, if there is one."""
    base = target.law
    if target.exponent is None or target.dimension is None or not isinstance(base, Discrete):
        return []
    values, weights = base.arrays
    # With both signs a mode has half its weight on each side. Count only the positive one.
    sides = 2 if target.both_signs else 1
    single = np.isclose(weights * target.dimension * sides, 1.0) & (values > 0)
    parts = biane_atoms(values, weights, delta)
    alone = [part.stop - part.start == 1 and single[part.start] for part in parts]
    return [float(values[part.start]) if lone else None for part, lone in zip(parts, alone, strict=True)]


def _moments(base: Base, place: float) -> tuple[float, float]:
    """Return `int dmu*(t)/(s-t)` and `int dmu*(t)/(s-t)^2`, without the mass that mu* has at s itself."""
    points, weights = base.nodes()
    atoms = np.array(base.atoms).reshape(-1, 2)
    gap = place - np.concatenate([points, atoms[:, 0]])
    weight = np.concatenate([weights, atoms[:, 1]])[gap != 0]
    gap = gap[gap != 0]
    return float((weight / gap).sum()), float((weight / gap**2).sum())
