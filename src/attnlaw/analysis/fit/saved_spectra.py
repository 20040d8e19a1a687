"""Build spectra again from the tables that an audit saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from attnlaw.analysis.columns import LOCATION
from attnlaw.core.quantity import column_kinds
from attnlaw.spectra.spectrum import Spectrum

# Columns that identify a matrix, and columns that `spectrum_from_row` reads.
LOCATIONS = tuple(column_kinds(LOCATION))
SPECTRUM_FACTS = (
    "rows",
    "cols",
    "inner",
    "latent",
    "norm_21",
    "norm_11",
    "norm_11_error",
    "route",
    "precision",
)


def spectrum_from_row(row: dict[str, Any], values: pl.Series | None) -> Spectrum:
    """Build a spectrum from a saved row and its singular values, which are None if it was approximated."""
    return Spectrum(
        np.zeros(1) if values is None else values.to_numpy(),
        (row["rows"], row["cols"]),
        row["norm_21"],
        row["norm_11"],
        row["route"],
        inner=row["inner"],
        precision=row["precision"],
        norm_11_error=row["norm_11_error"],
        latent=row["latent"],
    )
