"""The record of an audit: tables, trees and summaries, how it shows itself, and how it is saved."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.audit.laws import fit_tree
from attnlaw.analysis.audit.rows import TABLES
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.checkpoints.network import Network
from attnlaw.core.errors import InputError
from attnlaw.core.files import (
    read_bounded,
    require_replaceable,
    to_json,
    to_parquet,
    writable_directory,
    write_all,
)
from attnlaw.core.model_tables import ModelTables
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.old_result import frame_html
from attnlaw.core.result_files import save_results
from attnlaw.spectra.spectrum import Spectrum

MOST_SUMMARY = 64  # megabytes of summary.json
# What a notebook shows: of findings their places, of layers the columns that say most.
PLACE = ("layer", "stack", "head", "expert", "kind", "tensor")
SHARES = ("share_qk", "share_vo", "share_cross", "share_ffn")
LAYER = ("model", "layer", "stack", "log10_alpha", *SHARES, "adaptivity")


@dataclass(frozen=True, eq=False)
class Audit(ModelTables, verb="audit"):
    """The numbers of one or several models: rows, the trees that they were flattened from, a summary each.

    `findings`, `matrices`, `spectra` and `layers` are polars tables whose columns
    `attnlaw.analysis.columns` lists; so are `fits` and `curves`, once `with_fits()`. `summaries` are dicts of
    plain values, `cases` the quantities of each model by name, `trees` the measured spectra (None where a
    matrix was not selected), `subjects` what the rules of findings looked at.
    """

    summaries: tuple[dict[str, Any], ...]
    matrices: pl.DataFrame
    spectra: pl.DataFrame
    layers: pl.DataFrame
    fits: pl.DataFrame | None = None
    curves: pl.DataFrame | None = None
    cases: tuple[dict[str, Any], ...] = ()
    trees: tuple[Network[Spectrum | None], ...] = ()
    findings: pl.DataFrame | None = None
    subjects: tuple[Subject, ...] = ()

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables that are there, by name."""
        named = {name: getattr(self, name) for name in TABLES}
        return {name: table for name, table in named.items() if table is not None}

    def with_fits(self, seed: int = 0, progress: Progress = no_progress) -> Audit:
        """The same audit with spectral laws fitted to every matrix (tables `fits` and `curves`)."""
        fits = fit_tree(list(zip(self.names, self.trees, strict=True)), seed, progress)
        return replace(self, fits=fits.matrices, curves=fits.curves)

    def with_summary(self, summary: dict[str, Any]) -> Audit:
        """The same audit of one model with this summary."""
        return replace(self, summaries=(summary,))

    @property
    def remark(self) -> str | None:
        """What is missing, and why."""
        return "; ".join(case["remark"] for case in self.cases if case["remark"]) or None

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
        write_all({Path(path): safe.write_csv().encode()})
        return Path(path)

    def save(
        self, directory: str | os.PathLike[str], as_list: bool = False, figures: str | None = None
    ) -> Path:
        """Write the tables (parquet), summary.json and report.html; with `figures` ("pdf") figures/ too.

        An audit that is there is replaced, its fits too. A summary.json that is no audit's is refused.
        """
        folder = writable_directory(directory)
        lost = [name for name in TABLES if name not in self.tables()] if holds_audit(folder) else []
        stale = [require_replaceable(folder / f"{name}.parquet") for name in lost]
        files = {f"{name}.parquet": to_parquet(table) for name, table in self.tables().items()}
        files["summary.json"] = f"{to_json(self.as_json(as_list))}\n".encode()
        save_results(folder, "audit", files, figures)
        for path in stale:  # of rows that were replaced
            path.unlink(missing_ok=True)
        return folder

    def __repr__(self) -> str:
        return f"<Audit {'; '.join(map(_summary_line, self.summaries))}>"

    def _repr_html_(self) -> str:
        lines = "".join(
            f"<p><b>Audit</b> of {escape(_summary_line(summary))}</p>" for summary in self.summaries
        )
        if self.findings is None or not self.findings.height:
            findings_html = "" if self.findings is None else "<p>no findings</p>"
        else:
            findings_html = frame_html(self.findings, ("model", "level", "rule", *PLACE, "meaning"))
        return f"{lines}{findings_html}{frame_html(self.layers, LAYER)}"


def holds_audit(folder: Path) -> bool:
    """Whether an audit was saved in the directory; an `InputError` where summary.json is another's."""
    path = require_replaceable(folder / "summary.json")
    if not path.exists():
        return False
    try:
        content = json.loads(read_bounded(path, MOST_SUMMARY))
        summaries = content if isinstance(content, list) else [content]
        known = summaries and all(
            {"model", "proxies", "attnlaw_version"} <= summary.keys() for summary in summaries
        )
    except (ValueError, RecursionError, AttributeError):  # an `InputError` is a `ValueError`
        known = False
    if not known:
        raise InputError(f"{folder}: holds another summary.json, of no audit; give an empty directory")
    return True


def _summary_line(summary: dict[str, Any]) -> str:
    """A model's name, family and size, and its first proxy where it has proxies."""
    text = f"{summary['model']}: {summary['family']}, {summary['matrices']} matrices"
    proxy = summary["proxies"] and summary["proxies"]["spectrum_adaptive"]["log10"]
    return text if proxy is None else f"{text}, log10 proxy {proxy:.2f}"
