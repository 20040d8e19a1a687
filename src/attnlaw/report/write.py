"""One page, and figures for a paper, from rows that were saved. Nothing is recomputed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.errors import InputError
from attnlaw.records.files import replacing, usable_directory
from attnlaw.report.audit_figures import audit_figures
from attnlaw.report.figure import Figure
from attnlaw.report.page import Section, audit_page, figure_section, rows_page
from attnlaw.report.paper import ENDINGS, save_figures
from attnlaw.report.saved import AuditRows, read_audit
from attnlaw.report.series_charts import step_charts
from attnlaw.report.study_figures import study_figures

ROWS, STEPS = Path("rows", "rows.parquet"), Path("steps.parquet")


def write_report(
    directories: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: str | None = None,
) -> Path:
    """Write report.html (and figures/) from the rows of audits, studies and monitored runs; the page's path.

    It goes to `out`, or into the only directory. `figures` is "pdf", "svg" or "png".
    """
    folders = [Path(directory) for directory in directories]
    if out is None and len(folders) != 1:
        raise InputError(f"report: {len(folders)} directories; say where the page goes with --out DIR")
    if figures is not None and figures not in ENDINGS:
        raise InputError(f"--figures {figures}: expected one of {', '.join(ENDINGS)}")
    target = usable_directory(folders[0] if out is None else out)
    audits: list[AuditRows] = []
    tables: list[pl.DataFrame] = []
    drawn: list[Figure] = []
    sections: list[Section] = []
    for folder in folders:
        if (folder / "summary.json").exists():
            audits.append(read_audit(folder))
            continue
        rows, title, own = _study(folder) if (folder / ROWS).exists() else _steps(folder)
        anchor = f"part-{len(sections) + 1}"
        named = [
            replace(figure, name=f"{anchor}-{figure.name}") if len(folders) > 1 else figure for figure in own
        ]
        drawn += named
        tables.append(rows)
        lead = f"Drawn from the {rows.height} rows in {folder.name}."
        section = figure_section(anchor, title, named, lead, link=folder.name)
        sections += [section] if section else []
    audit = reduce(add, audits) if audits else None
    page = audit_page(audit, sections) if audit else rows_page(_title(tables), sections, _joined(tables))
    with replacing(target / "report.html") as draft:
        draft.write_text(page, encoding="utf-8")
    if figures is not None:
        every: Iterable[Figure] = [*(audit_figures(audit) if audit else []), *drawn]
        save_figures(every, target / "figures", figures)
    return target / "report.html"


def _study(folder: Path) -> tuple[pl.DataFrame, str, list[Figure]]:
    rows = _read(folder / ROWS, {"verb", "status", "task"}, "attnlaw study run FILE --out DIR")
    verbs = list(dict.fromkeys(rows["verb"]))
    return rows, f"Study of {', '.join(verbs)}", study_figures(rows, folder)


def _steps(folder: Path) -> tuple[pl.DataFrame, str, list[Figure]]:
    if not (folder / STEPS).exists():
        raise InputError(
            f"{folder}: found neither summary.json (an audit), {ROWS} (a study) nor {STEPS} (a monitored "
            "run); give a directory that attnlaw wrote with --out"
        )
    rows = _read(folder / STEPS, {"step", "model"}, "attnlaw.training.SpectralMonitor")
    quantities = [
        name
        for name, dtype in rows.schema.items()
        if dtype.is_numeric() and name != "step" and rows[name].count()
    ]
    caption = (
        "Each quantity during training, by step. A stable rank that falls and outliers that appear mean that "
        "few directions take over; proxies that grow without end mean norms that do."
    )
    figures = (
        [Figure("steps", "Against the step", caption, partial(step_charts, rows, quantities))]
        if quantities
        else []
    )
    return rows, "Training run", figures


def _read(path: Path, needed: set[str], source: str) -> pl.DataFrame:
    try:
        rows = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read ({reason}); write it again with {source}") from error
    missing = sorted(needed - set(rows.columns))
    if missing or not rows.height:
        found = f"no column {missing[0]}" if missing else "no rows"
        raise InputError(f"{path}: found {found}; write it again with {source}")
    return rows


def _joined(tables: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tables, how="diagonal_relaxed")


def _title(tables: list[pl.DataFrame]) -> str:
    verbs: list[Any] = [
        verb
        for table in tables
        if "verb" in table.columns
        for verb in table["verb"].unique(maintain_order=True)
    ]
    if not verbs:
        return "Training run"
    names = {"learn": "What attention learns", "limit": "The law of attention layers"}
    known = list(dict.fromkeys(names[verb.split(".")[0]] for verb in verbs if verb.split(".")[0] in names))
    return " · ".join(known) or "Study"
