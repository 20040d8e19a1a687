"""What an audit returns: tables of rows, a summary per model, and the files they go to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.errors import InputError
from attnlaw.records.files import replacing, to_json

TABLES = ("matrices", "spectra", "layers")


@dataclass(frozen=True, eq=False)
class Audit:
    """The rows of one or several models, with a summary (a dict of plain values) for each.

    `matrices`, `spectra` and `layers` are polars tables whose columns `attnlaw.records.schema` lists.
    """

    summaries: tuple[dict[str, Any], ...]
    matrices: pl.DataFrame
    spectra: pl.DataFrame
    layers: pl.DataFrame

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the only model."""
        (only,) = self.summaries
        return only

    def __add__(self, other: Audit) -> Audit:
        """Both audits in one: rows of the first, then rows of the second."""
        tables = {name: pl.concat([getattr(self, name), getattr(other, name)]) for name in TABLES}
        return Audit(self.summaries + other.summaries, **tables)

    def to_pandas(self) -> Any:
        """The matrix rows as a pandas table (needs the `pandas` extra)."""
        try:
            return self.matrices.to_pandas()
        except ModuleNotFoundError as error:
            message = "to_pandas needs pandas and pyarrow; install them with: pip install 'attnlaw[pandas]'"
            raise InputError(message) from error

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the matrix rows as CSV, without the two columns that hold lists."""
        plain = self.matrices.select(name for name, dtype in self.matrices.schema.items() if dtype != pl.List)
        with replacing(path) as draft:
            plain.write_csv(draft)
        return Path(path)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write matrices.parquet, spectra.parquet, layers.parquet, summary.json and report.html."""
        from attnlaw.report.page import audit_page

        folder = Path(directory)
        if folder.exists() and not folder.is_dir():
            raise InputError(
                f"{folder}: is a file, expected a directory for the results; choose another name"
            )
        page = audit_page(self.summaries, self.matrices, self.spectra, self.layers)
        for name in TABLES:
            with replacing(folder / f"{name}.parquet") as draft:
                getattr(self, name).write_parquet(draft)
        with replacing(folder / "summary.json") as draft:
            draft.write_text(to_json(self.as_json()) + "\n", encoding="utf-8")
        with replacing(folder / "report.html") as draft:
            draft.write_text(page, encoding="utf-8")
        return folder

    def as_json(self) -> dict[str, Any] | list[dict[str, Any]]:
        """One summary, or a list when there are several models."""
        return self.summaries[0] if len(self.summaries) == 1 else list(self.summaries)

    def _repr_html_(self) -> str:
        names = ", ".join(escape(summary["model"]) for summary in self.summaries)
        return f"<p><b>attnlaw audit</b> of {names}</p>{self.layers._repr_html_()}"
