"""Compare the rows of a prediction with those of trained students of the same settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from attnlaw.core.estimate import Estimate
from attnlaw.core.result import Result
from attnlaw.theory.learn.agreement import extrapolate

NOT_THE_PROBLEM = ("thresholds", "spectrum")  # settings that say what else is computed


@dataclass(frozen=True)
class TheoryGap:
    """The difference between trained students and theory in a quantity."""

    theory: Estimate
    trained: Estimate
    standard_errors: float  # positive if the trained value is larger


@dataclass(frozen=True)
class TrainedStudents:
    """The students of one case: means by quantity and dimension, and their number at the largest."""

    sizes: Mapping[int, Mapping[str, Estimate]]
    students: int

    @property
    def largest(self) -> int:
        return max(self.sizes)

    @property
    def values(self) -> Mapping[str, Estimate]:
        """The quantities at the largest dimension."""
        return self.sizes[self.largest]

    @cached_property
    def relative_error(self) -> Estimate | None:
        """The error relative to that of learning nothing, in the same dimension."""
        return relative_error(self.values)

    def difference(self, name: str, theory: Estimate) -> TheoryGap | None:
        """Return the difference from infinite dimension, or None if the students have no standard error."""
        measured = [known[name] for known in self.sizes.values() if name in known]
        errors = [value.error for value in measured if value.error and math.isfinite(value.error)]
        if not errors or len(errors) < len(self.sizes):
            return None
        trained = measured[-1]
        if len(measured) > 1:
            fit = extrapolate([*self.sizes], [value.value for value in measured], errors)
            trained = Estimate(fit.value, fit.standard_error)
        noise = math.hypot(trained.error or 0.0, theory.error or 0.0)
        return TheoryGap(theory, trained, (trained.value - theory.value) / noise)


def relative_error(values: Mapping[str, Estimate]) -> Estimate | None:
    """Return the error relative to that of predicting zero, E/Q*. Q* follows from E = q - 2m + Q*."""
    if any(values.get(name) is None for name in ("estimation_error", "norm", "overlap")):
        return None
    second_moment = values["estimation_error"].value - values["norm"].value + 2 * values["overlap"].value
    return values["estimation_error"] / second_moment if second_moment > 0 else None


def trained_students(result: Result) -> list[TrainedStudents | None]:
    """Return, for each finished case, the students that were trained with its settings, or None."""
    if result.simulation is None:
        return [None] * result.finished_rows.height
    rows = result.simulation.finished_rows
    names = [quantity.name for quantity in result.simulation.verb.quantities if quantity.error]
    students = []
    for case in result.finished_rows.iter_rows(named=True):
        same = rows.filter(has_settings_of(result, result.simulation, case, NOT_THE_PROBLEM))
        sizes = {
            int(size): _means(same.filter(pl.col("simulate") == size).to_dicts(), names)
            for size in same["simulate"].unique().sort()
        }
        last = same.filter(pl.col("simulate") == max(sizes)) if sizes else same
        students.append(TrainedStudents(sizes, int(last["seeds"].sum())) if sizes else None)
    return students


def has_settings_of(
    result: Result, simulation: Result, row: Mapping[str, Any], left_out: Sequence[str]
) -> pl.Expr:
    """Return whether the settings of a simulation row and a theory row agree, except those left out."""
    columns, others = result.verb.setting_columns, simulation.verb.setting_columns
    shared = {columns[name]: others[name] for name in columns if name not in left_out}
    fits = (pl.col(other).eq_missing(pl.lit(row[name])) for name, other in shared.items())
    return pl.all_horizontal(fits)


def _means(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Estimate]:
    """Return the means of repetitions, each of which is a mean itself."""
    means = {}
    for name in names:
        values = [row[name] for row in rows if row[name] is not None]
        if not values:
            continue
        errors = [row[f"{name}_error"] for row in rows if row[name] is not None]
        mean = sum(values) / len(values)
        if all(error is not None for error in errors):
            error: float | None = math.hypot(*errors) / len(values)
        elif len(values) > 1:  # each repetition is a single student
            spread = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            error = math.sqrt(spread / len(values))
        else:
            error = None
        means[name] = Estimate(mean, error)
    return means
