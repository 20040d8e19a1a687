"""Split an audit into units that workers measure, and join their results. A unit is one matrix, or QK or VO
of all heads of a block: a case of the verb `audit.unit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnlaw.checkpoints.settings import PRECISIONS, STORAGE, Arithmetic, ModelSettings
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import CasePart, Verb, run_each_case

if TYPE_CHECKING:
    import polars as pl

    from attnlaw.analysis.audit.audit import Audit
    from attnlaw.verbs.audit import AuditSettings


@settings_dataclass
class UnitSettings(ModelSettings):
    """Measure one part of a model: one matrix, or QK or VO of all heads of an attention block."""

    approximate: bool = setting(
        False, "Estimate the singular values of matrices whose shorter side is at least 8192."
    )
    precision: str = setting(
        STORAGE,
        "Floating-point precision of the singular values: always float64 (double), or float32 if the "
        "weights have at most 16 bits (storage).",
        choices=PRECISIONS,
    )
    exact: bool = setting(
        False, "Add up every entry of large matrices for the (1,1) norm, instead of a sample of columns."
    )
    first: int = setting(
        0, "Index of the first matrix to measure, in the order of the table of matrices.", minimum=0
    )
    state: str = setting(
        "",
        "Sizes and modification times of the checkpoint's files. If they change, attnlaw measures "
        "the matrices again.",
    )


@dataclass(frozen=True, eq=False)
class UnitRecords:
    """What a worker returns for one unit (a part of an audit): its packed records."""

    matrices: int
    records: pl.DataFrame


def run(case: UnitSettings, progress: Progress) -> UnitRecords:
    from attnlaw.analysis.audit.units import measure_unit

    whole = replace(case, first=0)  # equal for all units, so that a worker opens the model once
    arithmetic = Arithmetic(case.approximate, case.precision, case.exact)
    return UnitRecords(*measure_unit(whole, arithmetic, case.first, case.state))


def split_into_units(case: AuditSettings) -> list[CasePart]:
    """Return the parts of an audit (units), each with the settings that a worker needs."""
    from attnlaw.analysis.audit.units import file_state, local_path, selected_units

    units = selected_units(case, case.options, case.arithmetic)
    given: dict[str, Any] = {
        name: None if getattr(case, name) is None else local_path(getattr(case, name))
        for name in ("model", "map", "adapter")
    }
    state = file_state(*given.values())
    first = UnitSettings(**given, **vars(case.arithmetic), heads=case.heads, jobs=1, state=state)
    return [CasePart(replace(first, first=unit.first), unit.members, unit.operations) for unit in units]


def join_units(case: AuditSettings, tables: Iterable[Mapping[str, Any]]) -> Audit:
    """Build the audit result from the tables of its units, in the order of `split_into_units`."""
    from attnlaw.analysis.audit.units import audit_from_units

    records = (unit_tables["records"] for unit_tables in tables)
    return audit_from_units(case, case.options, case.arithmetic, records)


UNIT = Verb(
    "audit.unit",
    "One part of an audit",
    UnitSettings,
    (Quantity("matrices", "number of weight matrices that are measured together", kind="int"),),
    run_each_case(run),
    tables=(
        TableSpec(
            "records", (Quantity("record", "singular values of one matrix, packed into bytes", kind="bytes"),)
        ),
    ),
)
