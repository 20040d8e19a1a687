"""Target eigenvalues that stand out of the bulk, and where the trained matrix shows them.

A target eigenvalue s of no weight is seen at `s + delta^2 int dmu*(t)/(s-t)` in `S* + delta Z` as long as
`delta^2 int dmu*(t)/(s-t)^2 < 1`, with squared overlap one minus that (Baik, Ben Arous and Peche; Capitaine,
Donati-Martin and Feral for a deformed Wigner matrix). A student then shifts and scales it.
"""

from __future__ import annotations

import numpy as np

from attnlaw.aim.prediction import Outlier
from attnlaw.aim.target import Target
from attnlaw.laws.discrete import Discrete
from attnlaw.laws.free_convolution import Base


def find_outliers(target: Target, delta: float, threshold: float, shrinkage: float) -> tuple[Outlier, ...]:
    """Outliers of `shrinkage (X - threshold)_+`, largest first: spikes, and single modes of a power law.

    >>> spiked = Target.marchenko_pastur(0.5).with_spikes(8.0)
    >>> [round(outlier.location, 3) for outlier in find_outliers(spiked, 1.0, 0.0, 1.0)]
    [8.14]
    """
    base = target.law
    found = []
    for spike in target.spikes:
        if not any(low <= spike <= high for low, high in (*base.intervals, *((x, x) for x, _ in base.atoms))):
            found.append((spike, *_moments(base, spike)))
    if target.kind == "power-law" and isinstance(base, Discrete) and target.dimension:
        values, weights = base.arrays
        single = np.isclose(weights * target.dimension, 1.0)
        for index in np.flatnonzero(single):
            others = np.arange(values.size) != index
            gap = values[index] - values[others]
            found.append(
                (
                    float(values[index]),
                    float((weights[others] / gap).sum()),
                    float((weights[others] / gap**2).sum()),
                )
            )
    outliers = []
    for spike, first, second in sorted(found, reverse=True):
        location = spike + delta**2 * first - threshold
        if delta**2 * second < 1 and location > 0:
            outliers.append(Outlier(spike, shrinkage * location, 1 - delta**2 * second))
    return tuple(outliers)


def _moments(base: Base, spike: float) -> tuple[float, float]:
    """`int dmu*(t)/(s-t)` and `int dmu*(t)/(s-t)^2`."""
    points, weights = base.nodes()
    atoms = np.array(base.atoms).reshape(-1, 2)
    gap = spike - np.concatenate([points, atoms[:, 0]])
    weight = np.concatenate([weights, atoms[:, 1]])
    return float((weight / gap).sum()), float((weight / gap**2).sum())
