"""What an audit returns: tables of rows, a summary per model, and the files they go to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.base.errors import InputError
from attnlaw.base.files import parquet, read_bounded, replace_all, replaceable, to_json, usable_directory
from attnlaw.report.saved import KEPT, MOST_SUMMARY, AuditRows


@dataclass(frozen=True, eq=False)
class Audit(AuditRows):
    """The rows of one or several models, with a summary (a dict of plain values) for each.

    `matrices`, `spectra` and `layers` are polars tables whose columns `attnlaw.base.schema` lists; `fits`
    and `curves`, once `fitted()`, those of `attnlaw.base.fit_schema`.
    """

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the only model."""
        (only,) = self.summaries
        return only

    def fitted(self, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Audit:
        """The same audit with spectral laws fitted to every matrix (tables `fits` and `curves`)."""
        from attnlaw.auditing.fitting import fit_spectra

        found = fit_spectra(self.spectra, self.matrices, seed, progress)
        return replace(self, fits=found.matrices, curves=found.curves)

    def to_pandas(self) -> Any:
        """The matrix rows as a pandas table (needs the `pandas` extra)."""
        try:
            return self.matrices.to_pandas()
        except ModuleNotFoundError as error:
            message = "to_pandas needs pandas and pyarrow; install them with: pip install 'attnlaw[pandas]'"
            raise InputError(message) from error

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the matrix rows as CSV, without the two columns that hold lists.

        A text that a spreadsheet would take for a formula (it begins with =, +, - or @) gets an apostrophe.
        """
        plain = self.matrices.select(name for name, dtype in self.matrices.schema.items() if dtype != pl.List)
        safe = plain.with_columns(pl.col(pl.String).str.replace(r"^([=+\-@\t\r])", "'$1"))
        replace_all({Path(path): safe.write_csv().encode()})
        return Path(path)

    def save(
        self, directory: str | os.PathLike[str], as_list: bool = False, figures: str | None = None
    ) -> Path:
        """Write the tables (parquet), summary.json and report.html; with `figures` ("pdf") figures/ too.

        An audit that is there is replaced, its fits too. A summary.json that is no audit's is refused.
        """
        from attnlaw.report.audit_figures import audit_figures
        from attnlaw.report.page import audit_page
        from attnlaw.report.paper import save_figures

        folder = usable_directory(directory)
        lost = [name for name in KEPT if name not in self.tables()] if holds_audit(folder) else []
        stale = [replaceable(folder / f"{name}.parquet") for name in lost]
        files = {folder / f"{name}.parquet": parquet(table) for name, table in self.tables().items()}
        files[folder / "summary.json"] = f"{to_json(self.as_json(as_list))}\n".encode()
        files[folder / "report.html"] = audit_page(self).encode()
        if figures is None:
            replace_all(files)
        else:
            usable_directory(folder / "figures")
            save_figures(audit_figures(self), folder / "figures", figures, files)
        for path in stale:  # of rows that were replaced
            path.unlink(missing_ok=True)
        return folder

    def as_json(self, as_list: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """One summary, or a list when there are several models (or when `as_list` asks for one)."""
        return list(self.summaries) if as_list or len(self.summaries) > 1 else self.summaries[0]

    def __repr__(self) -> str:
        return f"<Audit {'; '.join(map(_in_short, self.summaries))}>"

    def _repr_html_(self) -> str:
        names = ", ".join(escape(name) for name in self.names)
        return f"<p><b>attnlaw audit</b> of {names}</p>{self.layers._repr_html_()}"


def holds_audit(folder: Path) -> bool:
    """Whether an audit was saved in the directory; an `InputError` where summary.json is another's."""
    path = replaceable(folder / "summary.json")
    if not path.exists():
        return False
    try:
        found = json.loads(read_bounded(path, MOST_SUMMARY))
        summaries = found if isinstance(found, list) else [found]
        known = summaries and all({"model", "proxies", "attnlaw_version"} <= one.keys() for one in summaries)
    except (ValueError, RecursionError, AttributeError):  # an `InputError` is a `ValueError`
        known = False
    if not known:
        raise InputError(f"{folder}: holds another summary.json, of no audit; give an empty directory")
    return True


def _in_short(summary: dict[str, Any]) -> str:
    """A model's name, family and size, and its first proxy where it has proxies."""
    text = f"{summary['model']}: {summary['family']}, {summary['matrices']} matrices"
    proxy = summary["proxies"] and summary["proxies"]["spectrum_adaptive"]["log10"]
    return text if proxy is None else f"{text}, log10 proxy {proxy:.2f}"
