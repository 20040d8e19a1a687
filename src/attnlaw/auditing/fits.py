"""What fitting returns: a row per matrix, the curves a report draws, and the files they go to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from attnlaw.base.files import parquet, replace_all, usable_directory
from attnlaw.base.laws import LAW_NAMES
from attnlaw.base.tables import distinct_names, stacked
from attnlaw.fits.describe import LEVEL
from attnlaw.fits.null import false_alarms

# Columns of a row that the JSON of a matrix repeats under the same name.
PLAIN = ("law", "random_p_value", "outliers", "kappa", "noise_level", "threshold", "rank_fraction", "status")


@dataclass(frozen=True)
class Rejections:
    """How many matrices of a model are not random at level 0.01, and whether chance explains that many.

    `expected` is the mean, and `p_value` the probability of so many or more, if every matrix were random: the
    false alarms of a freshly initialised model. The probability takes the matrices as independent. Under
    grouped queries heads share keys and values, false alarms come together, and it is too small.
    """

    tested: int
    rejected: int
    expected: float
    p_value: float

    @classmethod
    def count(cls, rows: pl.DataFrame) -> Rejections:
        tested = rows.filter(pl.col("random_p_value").is_not_null())
        groups = tested.group_by("null_shape", "null_draws").len().select("len", "null_draws").rows()
        rejected = int((tested["random_p_value"] <= LEVEL).sum())
        chances = false_alarms(groups)
        mean = float(chances @ np.arange(chances.size))
        return cls(tested.height, rejected, mean, min(float(chances[rejected:].sum()), 1.0))


@dataclass(frozen=True, eq=False)
class Fits:
    """The laws of one or several models; the columns of both tables are those of `records.fit_schema`."""

    matrices: pl.DataFrame
    curves: pl.DataFrame

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(self.matrices["model"]))

    def __add__(self, other: Fits) -> Fits:
        """Both in one: rows of the first, then rows of the second; a name met again gets a number."""
        names = distinct_names(self.models, other.models)
        return Fits(stacked(self.matrices, other.matrices, names), stacked(self.curves, other.curves, names))

    def _by_model(self) -> list[tuple[str, pl.DataFrame]]:
        return [(str(model), rows) for (model,), rows in self.matrices.group_by("model", maintain_order=True)]

    def rejections(self) -> dict[str, Rejections]:
        """Of each model: the matrices that are not random, against a freshly initialised one."""
        return {model: Rejections.count(rows) for model, rows in self._by_model()}

    def as_json(self, as_list: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """One object per model (a list for several, or when `as_list` asks for one)."""
        objects = [
            {
                "model": model,
                "not_random": vars(Rejections.count(rows)),
                "matrices": [_as_json(row) for row in rows.iter_rows(named=True)],
                "attnlaw_version": rows["attnlaw_version"][0],
            }
            for model, rows in self._by_model()
        ]
        return objects if as_list or len(objects) > 1 else objects[0]

    def save(self, directory: str | os.PathLike[str], figures: str | None = None) -> Path:
        """Write fits.parquet and curves.parquet; with `figures` ("pdf") the map of laws too."""
        folder = usable_directory(directory)
        files = {
            folder / "fits.parquet": parquet(self.matrices),
            folder / "curves.parquet": parquet(self.curves),
        }
        if figures is not None:
            from attnlaw.report.fit_charts import law_map
            from attnlaw.report.style import chart_bytes

            laws = folder / f"laws.{figures}"
            files[laws] = chart_bytes(law_map(self.matrices), laws)
        replace_all(files)
        return folder

    def __repr__(self) -> str:
        return f"<Fits {'; '.join(f'{model}: {_in_short(rows)}' for model, rows in self._by_model())}>"

    def _repr_html_(self) -> str:
        return str(self.matrices._repr_html_())


def _in_short(rows: pl.DataFrame) -> str:
    """How many matrices follow each law; those without a law could not be fitted."""
    counts = dict(rows["law"].fill_null("not fitted").value_counts().iter_rows())
    return ", ".join(f"{counts[law]} {law}" for law in (*LAW_NAMES, "not fitted") if law in counts)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    alpha = {"value": row["alpha"], "error": row["alpha_error"], "p_value": row["alpha_p_value"]}
    place = {name: row[name] for name in ("layer", "stack", "head", "expert", "kind")}
    return place | {name: row[name] for name in PLAIN} | {"alpha": alpha}
