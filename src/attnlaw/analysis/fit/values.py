"""What fits read off a spectrum: its values without round-off, its shape, and whether it can be fitted.

Singular values up to `1e-10 min(rows, cols) s_1` are round-off and count as zero, so that no fit depends on
the scale of the weights; laws of eigenvalues are fitted to the squares of the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlaw.spectra.spectrum import RANK_TOLERANCE, Spectrum

Reals = NDArray[np.float64]
LARGEST = 1e140


def obstacle(spectrum: Spectrum) -> str | None:
    """Why no law can be fitted to a spectrum, None where one can."""
    if spectrum.route == "lanczos":
        return "the spectrum is approximate, expected all singular values; measure it exactly"
    if spectrum.values[0] and not 1 / LARGEST < spectrum.values[0] < LARGEST:
        return f"squares of singular values near {spectrum.values[0]:.0e} leave float64; rescale the weights"
    return None


def is_head(spectrum: Spectrum) -> bool:
    return spectrum.route in ("qr", "cholesky")


def inner_size(spectrum: Spectrum) -> int | None:
    """d of a product (where it is not known, the number of values: d up to the shorter side), or None."""
    return (spectrum.inner or spectrum.values.size) if is_head(spectrum) else None


def shape_ratio(spectrum: Spectrum) -> float:
    """d_head / N of a head, shorter over longer side of a matrix: the least dimension over the largest."""
    dimensions = (*spectrum.shape, inner_size(spectrum) or spectrum.shape[0])
    return min(dimensions) / max(dimensions)


def without_round_off(spectrum: Spectrum) -> Reals:
    """All singular values, descending, with zeros in place of round-off."""
    tolerance = RANK_TOLERANCE * min(spectrum.shape) * spectrum.spectral
    return np.where(spectrum.values > tolerance, spectrum.values, 0.0)


def positive_values(spectrum: Spectrum) -> Reals:
    """Singular values above round-off, ascending."""
    values = without_round_off(spectrum)[::-1]
    return np.asarray(values[values > 0])


def eigenvalues(spectrum: Spectrum) -> Reals:
    """Squared singular values above round-off, ascending."""
    return np.asarray(positive_values(spectrum) ** 2)
