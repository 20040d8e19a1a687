"""`audit.unit`: one unit of an audit, a matrix or the heads of one product, measured by a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Quantity, Table
from attnlaw.base.settings import setting, settings
from attnlaw.models.settings import PRECISIONS, STORAGE, Arithmetic, ModelSettings

if TYPE_CHECKING:
    import polars as pl


@settings
class UnitSettings(ModelSettings):
    """One unit of a model."""

    approximate: bool = setting(False, "Estimate it where it is large.")
    precision: str = setting(STORAGE, "How precisely it is factorised.", choices=PRECISIONS)
    exact: bool = setting(False, "Norms of entries from every entry.")
    first: int = setting(0, "Number of its first matrix, in the order of rows.", least=0)
    state: str = setting("", "Sizes and times of the checkpoint's files: a new one is measured anew.")


@dataclass(frozen=True, eq=False)
class Measured:
    """How many matrices a unit has, and its records (see `attnlaw.auditing.units`)."""

    matrices: int
    records: pl.DataFrame


def run(case: UnitSettings, progress: Progress) -> Measured:
    from dataclasses import replace

    from attnlaw.auditing.units import measured_unit

    whole = replace(case, first=0)  # the same of all units: a worker opens the model once
    arithmetic = Arithmetic(case.approximate, case.precision, case.exact)
    matrices, records = measured_unit(whole, arithmetic, case.first, case.state)
    return Measured(matrices, records)


def unit_of(case: ModelSettings, arithmetic: Arithmetic) -> UnitSettings:
    """The settings of the first unit of a model that workers are to open."""
    from attnlaw.auditing.units import on_disk, state_of

    given: dict[str, Any] = {
        name: None if getattr(case, name) is None else on_disk(getattr(case, name))
        for name in ("model", "map", "adapter")
    }
    state = state_of(*given.values())
    return UnitSettings(**given, **vars(arithmetic), heads=case.heads, jobs=1, state=state)


UNIT = Verb(
    "audit.unit",
    "One unit of an audit",
    UnitSettings,
    (Quantity("matrices", "matrices measured together", kind="int"),),
    each(run),
    tables=(Table("records", (Quantity("record", "packed", kind="bytes"),), lambda found: found.records),),
)
