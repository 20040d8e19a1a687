"""Singular values and norms of matrices, including products of thin factors."""

from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum
from attnlaw.spectra.spectrum import RANK_TOLERANCE, Spectrum

__all__ = ["RANK_TOLERANCE", "Spectrum", "matrix_spectrum", "product_spectrum"]
