"""One matrix of a model that was audited, or is now: the spectrum that laws are fitted to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.audit.audit import audit
from attnlaw.analysis.audit.record import Audit
from attnlaw.analysis.audit.rows import SPECTRUM_COLUMNS, spectrum_from_row
from attnlaw.analysis.columns import PLACE
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import require_known
from attnlaw.core.tables import read_table
from attnlaw.spectra.spectrum import Spectrum

PLACES = tuple(column.name for column in PLACE)


def spectrum_at(source: Any, **place: Any) -> Spectrum:
    """The spectrum of the only matrix at a place: layer, kind and, where there are several, head or expert.

    `source` is an `Audit`, a directory that `attnlaw audit --out` wrote, or a checkpoint.

    >>> import numpy as np
    >>> entries = np.random.default_rng(0).standard_normal((128, 32))
    >>> block = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> spectrum_at(found, layer=0, head=1, kind="qk").shape
    (32, 32)
    """
    for name in place:
        require_known(name, dict.fromkeys(PLACES), "a matrix's place")
    matrices, spectra = audit_tables(source)
    met = pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in place.items())
    rows = matrices.with_row_index("_row").filter(met)
    description = ", ".join(f"{name} {value}" for name, value in place.items())
    if rows.height != 1:
        raise InputError(
            f"{description}: found {rows.height} matrices, expected one; say which by {', '.join(PLACES)}"
        )
    row = rows.row(0, named=True)
    values = spectra["singular_values"][row["_row"]]
    if values is None:
        raise InputError(f"{description}: its spectrum was approximated and has no values; audit it exactly")
    return spectrum_from_row(row, values)


def audit_tables(source: Any, progress: Progress = no_progress) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables of matrices and of their spectra, in the same order."""
    if isinstance(source, Audit):
        return source.matrices, source.spectra
    if is_saved(source):
        folder, remedy = Path(source), f"write them with: attnlaw audit MODEL --out {source}"
        matrices, spectra = (
            read_table(folder / f"{name}.parquet", remedy, needed)
            for name, needed in SPECTRUM_COLUMNS.items()
        )
        return matrices, spectra
    new_audit = audit(ModelSettings.parse({"model": source}, "audit"), progress=progress)
    return new_audit.matrices, new_audit.spectra


def is_saved(source: Any) -> bool:
    """Whether it is a directory that an audit wrote."""
    return isinstance(source, str | os.PathLike) and all(
        (Path(source) / f"{name}.parquet").is_file() for name in SPECTRUM_COLUMNS
    )
