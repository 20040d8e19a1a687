"""Compare theory with simulation: extrapolation of measured means in 1/d, z-scores, distance of spectra.

The theory is a limit d -> infinity. A trained student of size d deviates from it at order 1/d (with tokens by
several percent at d = 60). So the means of several sizes are fitted by weighted least squares to

    y(d) = y_infinity + slope/d,    weights 1/standard_error(d)^2

and the theory is compared with y_infinity: z = (y_infinity - theory)/error, which disagrees above 3. The
error includes that of the theory if it is itself an average (softmax). `misfit` is the weighted sum of
squares left per degree of freedom, about 1 if the sizes follow 1/d.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.theory.laws.law import Law
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.simulate import QUANTITIES, Measurement

DISAGREE = 3.0  # standard errors


@dataclass(frozen=True)
class Extrapolation:
    """The limit for d -> infinity of a measured mean, from a fit to several sizes d."""

    value: float
    standard_error: float
    slope: float  # coefficient of 1/d
    misfit: float | None  # weighted sum of squares left per degree of freedom; None for two sizes


@dataclass(frozen=True)
class Comparison:
    """The theoretical and the measured value of one quantity, each with a standard error."""

    quantity: str
    theory: float | None
    theory_error: float
    value: float
    standard_error: float
    z: float | None  # difference over the combined error; None without a theory or without scatter
    slope: float | None  # coefficient of 1/d; None for one size
    misfit: float | None


@dataclass(frozen=True)
class Agreement:
    """Comparisons of all quantities, and the distance of the spectra at the largest size."""

    comparisons: tuple[Comparison, ...]
    sizes: tuple[int, ...]
    sensing: str
    spectrum_distance: float

    @property
    def worst(self) -> float:
        """The largest absolute z-score of all comparisons."""
        return max((abs(row.z) for row in self.comparisons if row.z is not None), default=0.0)

    def __getitem__(self, quantity: str) -> Comparison:
        return next(row for row in self.comparisons if row.quantity == quantity)

    def rows(self) -> list[dict[str, Any]]:
        return [vars(row) | {"sizes": list(self.sizes), "sensing": self.sensing} for row in self.comparisons]


def extrapolate(sizes: ArrayLike, means: ArrayLike, standard_errors: ArrayLike) -> Extrapolation:
    """Fit `means` to a constant plus a multiple of 1/d, by weighted least squares.

    The fit has no term of order 1/d^2. If small sizes need one, the misfit is well above 1.
    """
    d, y, s = (np.asarray(values, dtype=float) for values in (sizes, means, standard_errors))
    if not d.shape == y.shape == s.shape or d.ndim != 1 or np.unique(d).size < 2:
        raise InputError(
            f"extrapolation: found {np.unique(d).size} different sizes, expected at least 2, each with a "
            "mean and a standard error; simulate another size"
        )
    if not np.all(s > 0):
        raise InputError("extrapolation: one standard error is zero; simulate more seeds")
    # Centred regression: the intercept at 1/d = 0 is the weighted mean, moved along the slope.
    w = 1.0 / s**2
    u = 1.0 / d - w @ (1.0 / d) / w.sum()
    slope = float((w * u) @ y / ((w * u) @ u))
    offset = float(w @ (1.0 / d) / w.sum())
    value = float(w @ y / w.sum()) - slope * offset
    variance = 1.0 / w.sum() + offset**2 / ((w * u) @ u)
    left = float(w @ (y - value - slope / d) ** 2)
    return Extrapolation(value, float(np.sqrt(variance)), slope, left / (d.size - 2) if d.size > 2 else None)


def largest_chance_difference(seeds: int, comparisons: int = 1) -> float:
    """Return how many standard errors a difference may have by chance (Student's t)."""
    tail = float(scipy.special.ndtr(-DISAGREE)) / comparisons
    return -float(scipy.special.stdtrit(max(seeds - 1, 1), tail))


def require_seeds(measured: Iterable[Any]) -> None:
    """Raise an `InputError` if a measurement has a single seed, because it then has no standard error."""
    if any(measurement.seeds < 2 for measurement in measured):
        raise InputError(
            "agreement: found a single seed, expected at least 2 for a standard error; raise seeds"
        )


def agreement(prediction: Prediction, measurements: Sequence[Measurement]) -> Agreement:
    """Compare a prediction with simulations of the same problem.

    Several sizes are extrapolated to the limit. With a single size, the comparison includes the deviation of
    order 1/d.

    Raises an `InputError` if the simulations belong to different problems, have only one seed, or have an
    alpha that differs by more than 1%.

    >>> from attnlaw.theory.learn.problem import Problem
    >>> from attnlaw.theory.learn.simulate import simulate
    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> problem = Problem(alpha=0.3, noise=0.5, weight_decay=0.6)
    >>> measured = simulate(problem, size=30, seeds=6, seed=0, sensing="goe")
    >>> abs(agreement(state_evolution(problem), [measured])["norm"].z) < 3
    True
    """
    if (
        len({(m.problem, m.sensing) for m in measurements}) > 1
        or measurements[0].problem != prediction.problem
    ):
        raise InputError(
            "agreement: the measurements belong to different problems; compare one problem at a time"
        )
    require_seeds(measurements)
    rounded = [m.rounding for m in measurements if m.rounding is not None]
    if rounded:
        raise InputError(f"agreement: {rounded[0]}; choose a larger dimension, or use that alpha")
    ordered = sorted(measurements, key=lambda m: m.size)
    if len({m.size for m in ordered}) < len(ordered):
        raise InputError(
            "agreement: two measurements have the same size; combine them into one with more seeds"
        )
    largest = ordered[-1]
    return Agreement(
        comparisons=tuple(
            _compare(name, prediction, ordered) for name in QUANTITIES if getattr(largest, name) is not None
        ),
        sizes=tuple(m.size for m in ordered),
        sensing=largest.sensing,
        spectrum_distance=spectrum_distance(largest.eigenvalues, prediction.spectrum),
    )


def spectrum_distance(eigenvalues: ArrayLike, law: Law) -> float:
    """Return the Kolmogorov-Smirnov distance between eigenvalues and a law."""
    pooled = np.sort(np.asarray(eigenvalues, dtype=float), axis=None)
    # Between eigenvalues the empirical function is flat and the law rises, so the extremes are at the ends.
    just_below = np.nextafter(pooled, -np.inf)
    at = np.searchsorted(pooled, pooled, side="right") / pooled.size - law.cdf(pooled)
    below = np.searchsorted(pooled, pooled, side="left") / pooled.size - law.cdf(just_below)
    # Eigenvalues repel each other, so the distance has no p-value of independent draws.
    return float(max(np.abs(at).max(), np.abs(below).max()))


def _compare(name: str, prediction: Prediction, measurements: Sequence[Measurement]) -> Comparison:
    theory: Estimate | None = getattr(prediction, name)
    expected, theory_error = (None, 0.0) if theory is None else (theory.value, theory.error or 0.0)
    measured = [(m.size, getattr(m, name).value, getattr(m, name).error or 0.0) for m in measurements]
    _, value, error = measured[-1]
    if expected is None or not all(error > 0 for *_, error in measured):
        return Comparison(name, expected, theory_error, value, error, None, None, None)
    slope, misfit = None, None
    if len(measured) > 1:
        fit = extrapolate(*zip(*measured, strict=True))
        value, error, slope, misfit = fit.value, fit.standard_error, fit.slope, fit.misfit
    z = (value - expected) / math.hypot(error, theory_error)
    return Comparison(name, expected, theory_error, value, error, z, slope, misfit)
