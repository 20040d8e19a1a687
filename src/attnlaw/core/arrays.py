"""Array types for annotations, and checks of the arrays that a user passes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.errors import InputError

Reals = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Indices = NDArray[np.intp]
# Smaller numbers have less than 12 digits in float64, because they are multiples of 5e-324.
SMALLEST = 2.0**-1074 / 1e-12


def as_float(
    array: NDArray[Any], dtype: type[np.floating[Any]] = np.float64, copy: bool = True
) -> NDArray[Any]:
    """Return the array in `dtype`, without warnings about NaN and infinity: callers check for these."""
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(dtype, copy=copy)


@lru_cache(maxsize=32)
def sample_indices(width: int, most: int) -> Indices:
    """Return at most `most` whole numbers below `width` in ascending order, the same in every run."""
    if width <= most:
        return np.arange(width)
    return np.sort(np.random.default_rng([width, most]).choice(width, most, replace=False))


def require_shapes(fits: bool, what: str, expected: str, **arrays: NDArray[Any]) -> None:
    """Raise an `InputError` that lists the shapes of the arrays, unless `fits` is true."""
    if not fits:
        shapes = " and ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
        raise InputError(f"{what}: found {shapes}; expected {expected}")


def require_spectral_values(
    name: str, values: ArrayLike, remedy: str, positive: bool = False, empty: bool = False
) -> Reals:
    """Return eigenvalues or singular values as a flat array.

    Raise an `InputError` if a value is negative or not finite, or if there are no values and `empty` is
    false. If `positive` is true, at least one value must be above 0.
    """
    flat_values = np.asarray(values, dtype=float).ravel()
    bad = not np.isfinite(flat_values).all() or (flat_values < 0).any()
    if bad or (positive and not flat_values.any()) or not (flat_values.size or empty):
        more = ", with at least one above 0" if positive else ""
        raise InputError(f"{name}: expected finite numbers that are not negative{more}; {remedy}")
    return flat_values
