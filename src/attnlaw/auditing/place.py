"""One matrix of a model that was audited, or is now: the spectrum that laws are fitted to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.auditing.audit import audit
from attnlaw.auditing.quantities import PLACE
from attnlaw.auditing.record import Audit
from attnlaw.auditing.rows import spectrum_of
from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import InputError
from attnlaw.base.settings import known_name
from attnlaw.base.tables import read_table
from attnlaw.models.settings import ModelSettings
from attnlaw.spectra.spectrum import Spectrum

PLACES = tuple(one.name for one in PLACE)
TABLES = ("matrices", "spectra")


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
        known_name(name, dict.fromkeys(PLACES), "a matrix's place")
    matrices, spectra = measured(source)
    met = pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in place.items())
    rows = matrices.with_row_index("_row").filter(met)
    told = ", ".join(f"{name} {value}" for name, value in place.items())
    if rows.height != 1:
        raise InputError(
            f"{told}: found {rows.height} matrices, expected one; say which by {', '.join(PLACES)}"
        )
    row = rows.row(0, named=True)
    values = spectra["singular_values"][row["_row"]]
    if values is None:
        raise InputError(f"{told}: its spectrum was approximated and has no values; audit it exactly")
    return spectrum_of(row, values)


def measured(source: Any, progress: Progress = silent) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables of matrices and of their spectra, in the same order."""
    if isinstance(source, Audit):
        return source.matrices, source.spectra
    if is_saved(source):
        folder, remedy = Path(source), f"write them with: attnlaw audit MODEL --out {source}"
        matrices, spectra = (read_table(folder / f"{name}.parquet", remedy) for name in TABLES)
        return matrices, spectra
    found = audit(ModelSettings.of({"model": source}, "audit"), progress=progress)
    return found.matrices, found.spectra


def is_saved(source: Any) -> bool:
    """Whether it is a directory that an audit wrote."""
    return isinstance(source, str | os.PathLike) and all(
        (Path(source) / f"{name}.parquet").is_file() for name in TABLES
    )
