"""Fit laws to every matrix of a model, or to the spectra of a saved audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.analysis.columns import MATRICES, SPECTRA, location_row
from attnlaw.analysis.fit import CURVES, FITS, LAWS
from attnlaw.analysis.fit.describe import describe
from attnlaw.analysis.fit.null import Null, Rejections, null_of_spectrum, obstacle
from attnlaw.analysis.fit.saved_spectra import LOCATIONS, SPECTRUM_FACTS, spectrum_from_row
from attnlaw.analysis.fit.summary import law_counts
from attnlaw.checkpoints.network import Network
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import quantity_frame, require_columns, to_schema
from attnlaw.spectra.measure import Selection, measure
from attnlaw.spectra.spectrum import Spectrum

Row = dict[str, Any]
SPECTRUM_COLUMNS = {
    "matrices": {
        name: kind for name, kind in column_kinds(MATRICES).items() if name in (*LOCATIONS, *SPECTRUM_FACTS)
    },
    "spectra": {
        name: kind for name, kind in column_kinds(SPECTRA).items() if name != "singular_values_applied"
    },
}


@dataclass(frozen=True, eq=False)
class Fits:
    """The laws of all matrices of one model.

    Args:
        matrices: a table with a row for each matrix and the columns of `attnlaw.analysis.fit.FITS`.
        curves: a table of densities to draw over spectra, with the columns of `attnlaw.analysis.fit.CURVES`.
    """

    matrices: pl.DataFrame
    curves: pl.DataFrame

    @property
    def quantities(self) -> dict[str, Any]:
        """Numbers of the model by name: how many matrices follow each law, and how many differ from noise."""
        tests = self.matrices.select("random_p_value", "null_shape", "null_draws").iter_rows()
        laws = dict(self.matrices["law"].drop_nulls().value_counts().iter_rows())
        return {
            "matrix_count": self.matrices.height,
            **{law.column: laws.get(name, 0) for name, law in LAWS.items()},
            **{f"not_random_{name}": value for name, value in vars(Rejections.count(tests)).items()},
        }

    def __repr__(self) -> str:
        counts = law_counts(self.matrices)
        return f"<Fits {', '.join(f'{count} {law}' for law, count in counts.items())}>"


def fit(settings: ModelSettings, seed: int = 0, progress: Progress = no_progress) -> Fits:
    """Fit spectral laws to every head's QK and VO and every feed-forward matrix of a checkpoint.

    `seed` is that of the nulls and of the bootstrap.

    >>> import numpy as np
    >>> entries = np.random.default_rng(0).standard_normal((128, 32))
    >>> block = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    >>> fit(ModelSettings(model=block, heads=2)).matrices["law"].to_list()
    ['random', 'random', 'random', 'random']
    """
    model = settings.open()
    spectra = measure(model, Selection.from_settings(settings, model.network), settings.jobs, progress)
    return fit_tree(model.name, spectra, seed, progress)


def fit_tree(
    name: str, tree: Network[Spectrum | None], seed: int = 0, progress: Progress = no_progress
) -> Fits:
    """Fit laws to the measured spectra of the model `name`, and skip matrices without one."""
    placed = [
        (location_row(name, location), spectrum)
        for location, spectrum in tree.leaves()
        if spectrum is not None
    ]
    return _fit_matrices(placed, seed, progress)


def fit_spectra(
    spectra: pl.DataFrame, matrices: pl.DataFrame, seed: int = 0, progress: Progress = no_progress
) -> Fits:
    """Fit laws to the spectra of a saved audit: the tables of spectra.parquet and matrices.parquet.

    An `InputError` says that a column is missing, or that the tables list different matrices.
    """
    remedy = "take both tables from the same audit"
    spectra, matrices = (
        require_columns(table, to_schema(SPECTRUM_COLUMNS[name]), f"fit: the table of {name}", remedy)
        for name, table in (("spectra", spectra), ("matrices", matrices))
    )
    if not spectra.select(LOCATIONS).equals(matrices.select(LOCATIONS)):
        raise InputError(
            f"fit: the tables of spectra and of matrices do not list the same matrices; {remedy}"
        )
    rows = zip(matrices.iter_rows(named=True), spectra["singular_values"], strict=True)
    placed = [({key: row[key] for key in LOCATIONS}, spectrum_from_row(row, values)) for row, values in rows]
    return _fit_matrices(placed, seed, progress)


def _fit_matrices(placed: Sequence[tuple[Row, Spectrum]], seed: int, progress: Progress) -> Fits:
    rows: list[Row] = []
    laws: list[Row] = []
    nulls: dict[str | None, Null] = {}
    for done, (location, spectrum) in enumerate(placed, start=1):
        common = {"rows": spectrum.shape[0], "cols": spectrum.shape[1], "seed": seed}
        row = location | common | {"attnlaw_version": __version__}
        if reason := obstacle(spectrum):
            rows.append(row | {"status": Outcome.NOT_FITTED, "remark": reason})
        else:
            description = describe(spectrum, seed)
            if (null := null_of_spectrum(spectrum, seed)) is not None:
                nulls[description.null_shape] = null
            rows.append(row | description.numbers | {"null_shape": description.null_shape})
            if description.curve is not None:
                drawn = {"curve": "law", "law": description.curve_law}
                laws.append(location | drawn | _curve(*description.curve))
        progress(done, len(placed))
    shapes = [
        {"curve": "null", "null_shape": shape, "law": "random"} | _curve(*null.curve)
        for shape, null in nulls.items()
    ]
    return Fits(quantity_frame(FITS, rows), quantity_frame(CURVES, [*shapes, *laws]))


def _curve(x: Any, density: Any) -> Row:
    return {"x": x.tolist(), "density": density.tolist()}
