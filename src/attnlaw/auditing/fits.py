"""What fitting returns: a row per matrix, the curves a report draws, and the files they go to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.records.files import replacing, usable_directory

# Columns of a row that the JSON of a matrix repeats under the same name.
PLAIN = ("law", "random_p_value", "outliers", "kappa", "noise_level", "threshold", "rank_fraction", "status")


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
        taken = set(self.models)
        names: dict[str, str] = {}
        for model in other.models:
            number, name = 1, model
            while name in taken:
                number += 1
                name = f"{model} ({number})"
            names[model] = name
            taken.add(name)
        renamed = pl.col("model").replace(names)
        curves = pl.concat([self.curves, other.curves.with_columns(renamed)])
        # Models of one shape share a null.
        repeated = (pl.col("curve") == "null") & pl.struct("curve", "null_shape").is_duplicated()
        first = pl.struct("curve", "null_shape").is_first_distinct()
        return Fits(
            pl.concat([self.matrices, other.matrices.with_columns(renamed)]),
            curves.filter(~repeated | first),
        )

    def false_alarms(self, level: float = 0.01) -> float | None:
        """Share of matrices whose random_p_value is at most `level`: for a freshly initialised model the
        false-alarm rate, about `level` by the test's validity; None where no matrix was tested."""
        tested = self.matrices["random_p_value"].drop_nulls()
        return float((tested <= level).sum()) / tested.len() if tested.len() else None

    def as_json(self, as_list: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """One object per model (a list for several, or when `as_list` asks for one)."""
        objects = [
            {
                "model": model,
                "matrices": [_as_json(row) for row in rows.iter_rows(named=True)],
                "attnlaw_version": rows["attnlaw_version"][0],
            }
            for (model,), rows in self.matrices.group_by("model", maintain_order=True)
        ]
        return objects if as_list or len(objects) > 1 else objects[0]

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write fits.parquet and curves.parquet."""
        folder = usable_directory(directory)
        for name, table in (("fits", self.matrices), ("curves", self.curves)):
            with replacing(folder / f"{name}.parquet") as draft:
                table.write_parquet(draft)
        return folder

    def _repr_html_(self) -> str:
        return str(self.matrices._repr_html_())


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    alpha = {"value": row["alpha"], "error": row["alpha_error"], "p_value": row["alpha_p_value"]}
    place = {name: row[name] for name in ("layer", "stack", "head", "kind")}
    return place | {name: row[name] for name in PLAIN} | {"alpha": alpha}
