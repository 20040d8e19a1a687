"""One page, and figures for a paper, from rows that were saved. Nothing is recomputed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import polars as pl

from attnlaw.base.errors import InputError, printable
from attnlaw.base.files import replace_all, usable_directory
from attnlaw.base.tables import read_table
from attnlaw.report.audit_figures import audit_figures
from attnlaw.report.figure import Figure
from attnlaw.report.fit_charts import law_map
from attnlaw.report.leads import failures, same
from attnlaw.report.page import audit_page, figure_section, rows_page
from attnlaw.report.paper import ENDINGS, save_figures
from attnlaw.report.saved import AuditRows, read_audit, read_audit_study
from attnlaw.report.series_charts import step_charts
from attnlaw.report.study_figures import study_figures
from attnlaw.report.study_rows import ROWS, read_rows
from attnlaw.training.quantities import read_steps

STEPS = Path("steps.parquet")
FITS = "fits.parquet"
STORE = "store.sqlite"  # of a study that runs
TITLES = {"learn": "What attention learns", "limit": "The law of attention layers"}
# More audited models than this are compared by their proxies alone.
MOST_MODELS = 12


@dataclass(frozen=True, eq=False)
class Part:
    """What one directory holds: audited models, or rows with the figures that they allow."""

    name: str
    audit: AuditRows | None = None
    rows: pl.DataFrame | None = None
    title: str = "Training run"
    figures: tuple[Figure, ...] = ()


def write_report(
    directories: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: str | None = None,
) -> Path:
    """Write report.html (and figures/) from the rows of audits, studies and monitored runs; the page's path.

    It goes to `out`, or into the only directory. `figures` is "pdf", "svg" or "png".
    """
    return write_files(directories, out, figures)[0]


def write_files(
    directories: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: str | None = None,
) -> list[Path]:
    """Like `write_report`: the paths of the page and of every figure that its rows allow."""
    folders = [Path(directory) for directory in directories]
    if figures is not None and figures not in ENDINGS:
        raise InputError(f"--figures {figures}: expected one of {', '.join(ENDINGS)}; choose one")
    if out is None and len(folders) != 1:
        raise InputError(f"report: found {len(folders)} directories; say where the page goes with --out DIR")
    parts = [_part(folder) for folder in folders]
    if len(parts) > 1:
        parts = [_numbered(part, number) for number, part in enumerate(parts, start=1)]
    page, drawn = _page(parts)
    target = usable_directory(folders[0] if out is None else out)
    if figures is not None and drawn:
        usable_directory(target / "figures")
    written = {target / "report.html": page.encode()}
    if figures is not None:
        return [*written, *save_figures(drawn, target / "figures", figures, written)]
    replace_all(written)
    return list(written)


def _page(parts: Sequence[Part]) -> tuple[str, list[Figure]]:
    """The page, and all figures: of all audits together, then of each other part."""
    several = len(parts) > 1
    found = [
        figure_section(f"part-{number}", part.title, part.figures, _lead(part, several), link=part.name)
        for number, part in enumerate(parts, start=1)
    ]
    sections = [section for section in found if section is not None]
    drawn = [figure for part in parts for figure in part.figures]
    audits = [part.audit for part in parts if part.audit is not None]
    others = [part for part in parts if part.audit is None and part.rows is not None]
    names = ", ".join(f"{part.name} ({part.title})" for part in others)
    lost = _losses(parts)
    if audits:
        audit = reduce(add, audits)
        note = f"Beside them: {names}. {lost}" if names else lost
        return audit_page(audit, sections, note), [*audit_figures(audit), *drawn]
    tables = [part.rows for part in parts if part.rows is not None]
    rows = pl.concat(tables, how="diagonal_relaxed")
    of = f" of {names}" if several else ""
    lead = [f"{rows.height} rows{of}, and the figures that they allow.", lost, "" if several else same(rows)]
    title = " · ".join(dict.fromkeys(part.title for part in parts))
    return rows_page(title, " ".join(filter(None, lead)), sections, rows), drawn


def _losses(parts: Sequence[Part]) -> str:
    """What failed, by part where there are several."""
    found = [(part.name, failures(part.rows)) for part in parts if part.rows is not None]
    return " ".join(f"{name}: {text}" if len(parts) > 1 else text for name, text in found if text)


def _part(folder: Path) -> Part:
    """What the directory holds, by the files in it."""
    try:
        audit, study, steps, store = (
            (folder / name).exists() for name in ("summary.json", ROWS, STEPS, STORE)
        )
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be looked at ({error.strerror}); give a directory that attnlaw wrote"
        ) from error
    if audit:
        return Part(printable(folder.name), read_audit(folder))
    if study:
        return _study(folder)
    if steps:
        return _steps(folder)
    if (folder / FITS).exists():
        rows = read_table(folder / FITS, "write it again with: attnlaw fit MODEL --out DIR")
        drawn = Figure(
            "laws", "Laws of all matrices", "The law that each matrix follows.", lambda: law_map(rows)
        )
        return Part(printable(folder.name), rows=rows, title="Fitted laws", figures=(drawn,))
    if store:
        raise InputError(
            f"{folder}: holds a study that is not exported yet; attnlaw study export FILE --out {folder}"
        )
    raise InputError(
        f"{folder}: found neither summary.json (an audit), {ROWS} (a study) nor {STEPS} (a monitored run); "
        "give a directory that one of these wrote"
    )


def _study(folder: Path) -> Part:
    rows = read_rows(folder)
    audits = rows.filter(pl.col("verb") == "audit").height
    audit = read_audit_study(rows, folder) if 0 < audits <= MOST_MODELS else None
    drawn = rows if audit is None else rows.filter(pl.col("verb") != "audit")
    verbs = dict.fromkeys(verb.partition(".")[0] for verb in rows["verb"])
    title = " · ".join(TITLES[verb] for verb in verbs if verb in TITLES) or "Audited models"
    return Part(printable(folder.name), audit, rows, title, tuple(study_figures(drawn, folder)))


def _steps(folder: Path) -> Part:
    remedy = "write it again with attnlaw.training.SpectralMonitor"
    rows = read_steps(folder / STEPS, remedy)
    if not rows.height:
        raise InputError(f"{folder / STEPS}: found no rows; {remedy}")
    caption = (
        "Each quantity during training, by step. A stable rank that falls and outliers that appear mean that "
        "few directions take over; proxies that grow without end mean norms that do."
    )
    chart = step_charts(rows)
    figures = () if chart is None else (Figure("steps", "Against the step", caption, lambda: chart),)
    return Part(printable(folder.name), rows=rows, figures=figures)


def _numbered(part: Part, number: int) -> Part:
    """The part with names of its figures that no other part has."""
    named = tuple(replace(figure, name=f"{number}_{figure.name}") for figure in part.figures)
    return replace(part, figures=named)


def _lead(part: Part, several: bool) -> str:
    """Where the figures of a part come from; of several parts, too, what the rows of this one share."""
    if part.rows is None or (part.audit is not None and not part.figures):
        return ""
    source = f"the {part.rows.height} rows in {part.name}."
    shared = f" {same(part.rows)}" if several else ""
    return f"{'Drawn from' if part.figures else 'No figure can be drawn from'} {source}{shared}".strip()
