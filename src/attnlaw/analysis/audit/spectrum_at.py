"""One matrix of a model that was audited, or is now: the spectrum that laws are fitted to."""

from __future__ import annotations

from typing import Any

import polars as pl

from attnlaw.analysis.audit.audit import audit
from attnlaw.analysis.audit.laws import PLACES, spectrum_from_row
from attnlaw.analysis.audit.record import Audit
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.core.settings import require_known
from attnlaw.spectra.spectrum import Spectrum


def spectrum_at(source: Any, **place: Any) -> Spectrum:
    """The spectrum of the only matrix at a place: layer, kind and, where there are several, head or expert.

    `source` is an audit (`attnlaw.load(DIR)` reads one that was saved), or a checkpoint, which is audited.

    >>> import numpy as np
    >>> entries = np.random.default_rng(0).standard_normal((128, 32))
    >>> block = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> spectrum_at(found, layer=0, head=1, kind="qk").shape
    (32, 32)
    """
    for name in place:
        require_known(name, dict.fromkeys(PLACES), "a matrix's place")
    if not isinstance(source, Result | Audit):
        source = audit(ModelSettings.parse({"model": source}, "audit"))
    matrices, spectra = source.matrices, source.spectra
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
