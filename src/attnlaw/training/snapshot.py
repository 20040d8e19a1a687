"""The spectra of a model in training, at one step: a row for the step and a row for every matrix.

| quantity | in the row of a matrix | in the row of the step |
|---|---|---|
| `proxies` | `log10_contribution` | log10 of each proxy |
| `stable_rank` | sum s_i^2 / s_1^2 | median over the matrices of a group |
| `outliers` | singular values beyond the edge of the finite-size null | sum over a group |
| `alpha` | exponent of the power-law tail of the eigenvalues | median over a group |

The numbers are those of `attnlaw.audit` and of its fits; tests of the fits (bootstraps) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.auditing import Audit, audit
from attnlaw.auditing.rows import spectrum_of
from attnlaw.base.errors import InputError
from attnlaw.base.steps_schema import PROXIES, STEP_GROUPS, STEP_MATRICES, STEPS
from attnlaw.base.tables import frame
from attnlaw.fits.fit import eigenvalues, null_for, without_round_off
from attnlaw.fits.tail import power_law_tails
from attnlaw.spectra.measure import GROUPS
from attnlaw.spectra.spectrum import Spectrum

QUANTITIES = ("proxies", "stable_rank", "outliers", "alpha")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What was measured at one step: `row` and `matrices` have the columns of `records.steps_schema`."""

    step: int
    row: dict[str, Any]
    matrices: pl.DataFrame

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers of the row that are there, by the names under which loggers show them."""
        numeric = [name for name, dtype in STEPS.items() if dtype.is_numeric() and name != "step"]
        known = {name: self.row.get(name) for name in numeric}
        return {f"spectra/{name}": float(value) for name, value in known.items() if value is not None}


def take_snapshot(
    model: Any, name: str, step: int, quantities: Sequence[str], options: Mapping[str, Any]
) -> Snapshot:
    """Audit the module as it is now; `options` go to `attnlaw.audit`.

    Parameters are read one matrix at a time, without gradients and without random numbers of torch or numpy.
    """
    require_whole(model)
    found = audit(model, **{**options, "name": name})
    matrices = _matrices(found, step, quantities)
    row = {
        "step": step,
        "model": name,
        **(_proxies(found.summary["proxies"]) if "proxies" in quantities else {}),
        **_over_groups(matrices),
        "status": "; ".join(found.summary["warnings"]) or "measured",
        "attnlaw_version": __version__,
    }
    return Snapshot(step, row, matrices)


def failed_snapshot(name: str, step: int, reason: str) -> Snapshot:
    """A step whose weights could not be measured: a row of nulls that says why."""
    row = {"step": step, "model": name, "status": reason, "attnlaw_version": __version__}
    return Snapshot(step, row, frame([], STEP_MATRICES))


def require_whole(model: Any) -> None:
    """An `InputError` where the weights are split over processes, so that none of them holds a matrix."""
    wrapped = any(type(part).__name__ == "FullyShardedDataParallel" for part in model.modules())
    split = any(hasattr(weight, "device_mesh") or hasattr(weight, "ds_id") for weight in model.parameters())
    if wrapped or split:
        raise InputError(
            f"{type(model).__name__}: its weights are split over processes (FSDP or ZeRO-3), expected whole "
            "ones; audit saved checkpoints instead"
        )


def _matrices(found: Audit, step: int, quantities: Sequence[str]) -> pl.DataFrame:
    spectra = _spectra(found)
    columns = found.matrices.with_columns(
        pl.lit(step).alias("step"),
        pl.Series("outliers", _outliers(spectra) if "outliers" in quantities else [None] * len(spectra)),
        pl.Series("alpha", _alphas(spectra) if "alpha" in quantities else [None] * len(spectra)),
    ).select(pl.col(name).cast(dtype) for name, dtype in STEP_MATRICES.items())
    unwanted = {"log10_contribution": "proxies", "stable_rank": "stable_rank"}
    return columns.with_columns(
        pl.lit(None, STEP_MATRICES[column]).alias(column)
        for column, quantity in unwanted.items()
        if quantity not in quantities
    )


def _spectra(found: Audit) -> list[Spectrum | None]:
    """The measured spectra; None where one was approximated."""
    rows = found.matrices.iter_rows(named=True)
    return [
        None if values is None else spectrum_of(row, values)
        for row, values in zip(rows, found.spectra["singular_values"], strict=True)
    ]


def _outliers(spectra: Sequence[Spectrum | None]) -> list[int | None]:
    """Values beyond the null's edge; None where there is no null or no edge."""
    nulls = [None if spectrum is None else null_for(spectrum) for spectrum in spectra]
    return [
        None if spectrum is None or null is None else null.compare(without_round_off(spectrum)).outliers
        for spectrum, null in zip(spectra, nulls, strict=True)
    ]


def _alphas(spectra: Sequence[Spectrum | None]) -> list[float | None]:
    tails = power_law_tails([() if spectrum is None else eigenvalues(spectrum) for spectrum in spectra])
    return [None if tail is None else tail.alpha for tail in tails]


def _proxies(found: Mapping[str, Mapping[str, float | None]] | None) -> dict[str, float | None]:
    return {} if found is None else {f"log10_{name}": found[name]["log10"] for name in PROXIES}


def _over_groups(matrices: pl.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for group in STEP_GROUPS:
        own = matrices.filter(pl.col("kind").is_in(GROUPS[group]))
        outliers = own["outliers"].drop_nulls()
        row[f"stable_rank_{group}"] = own["stable_rank"].median()
        row[f"outliers_{group}"] = outliers.sum() if outliers.len() else None
        row[f"alpha_{group}"] = own["alpha"].median()
    return row
