"""Fit laws to every matrix of a model, or to the spectra that an audit saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.auditing.fits import Fits
from attnlaw.auditing.rows import matrix_rows, spectrum_of, spectrum_rows
from attnlaw.base.errors import InputError
from attnlaw.base.fit_schema import CURVES, FITS
from attnlaw.base.schema import MATRICES, PLACE, SPECTRA
from attnlaw.base.tables import frame
from attnlaw.fits.describe import describe
from attnlaw.fits.fit import null_for, obstacle
from attnlaw.fits.null import Null
from attnlaw.models import open_model
from attnlaw.spectra.measure import Selection, measure

Progress = Callable[[int, int], None]


def fit_model(
    source: Any,
    *,
    name: str | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    layers: str | int | None = None,
    only: str | Sequence[str] | None = None,
    jobs: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fits:
    """Fit spectral laws to every head's QK and VO and every feed-forward matrix of a checkpoint.

    `seed` fixes the draws of the nulls and of the bootstrap; the rest is as in `attnlaw.audit`.

    >>> import numpy as np
    >>> entries = np.random.default_rng(0).standard_normal((128, 32))
    >>> block = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    >>> fit_model(block, heads=2).matrices["law"].to_list()
    ['random', 'random', 'random', 'random']
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: expected a positive number")
    model = open_model(source, heads, name, map, adapter)
    measured = measure(model, Selection.parse(layers, only, len(model.layers)), jobs, progress)
    spectra = frame(spectrum_rows(model, measured), SPECTRA)
    return fit_spectra(spectra, frame(matrix_rows(model, measured, None), MATRICES), seed, progress)


def fit_spectra(
    spectra: pl.DataFrame, matrices: pl.DataFrame, seed: int = 0, progress: Progress | None = None
) -> Fits:
    """Fit laws to measured spectra: two tables of an `Audit`, or spectra.parquet and matrices.parquet.

    The rows of both tables must be those of the same matrices, in the same order.
    """
    places = [name for name in PLACE if name in matrices.columns]  # older audits know no experts
    if not spectra.select(places).equals(matrices.select(places)):
        raise InputError(
            "fit: the tables of spectra and of matrices list other matrices; take both of one audit"
        )
    rows: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    nulls: dict[str | None, Null] = {}
    for done, (row, values) in enumerate(
        zip(matrices.iter_rows(named=True), spectra["singular_values"], strict=True), start=1
    ):
        place = {key: row[key] for key in (*places, "rows", "cols")}
        common = {"seed": seed, "attnlaw_version": __version__}
        # An approximate spectrum comes without its values.
        spectrum = spectrum_of(row, pl.Series([0.0]) if values is None else values)
        if reason := obstacle(spectrum):
            rows.append(place | common | {"status": f"not fitted: {reason}"})
            continue
        found = describe(spectrum, seed)
        if (null := null_for(spectrum, seed)) is not None:
            nulls[found.null_shape] = null
        rows.append(place | common | found.numbers | {"null_shape": found.null_shape})
        if found.curve is not None:
            x, density = found.curve
            laws.append(
                place | {"curve": "law", "law": found.drawn, "x": x.tolist(), "density": density.tolist()}
            )
        if progress is not None:
            progress(done, matrices.height)
    return Fits(frame(rows, FITS), frame([*_null_rows(nulls), *laws], CURVES))


def _null_rows(nulls: dict[str | None, Null]) -> list[dict[str, Any]]:
    rows = []
    for shape, null in nulls.items():
        x, density = null.curve
        rows.append(
            {
                "curve": "null",
                "null_shape": shape,
                "law": "random",
                "x": x.tolist(),
                "density": density.tolist(),
            }
        )
    return rows
