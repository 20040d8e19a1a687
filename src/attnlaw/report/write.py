"""One page, and figures for a paper, from rows that were saved. Nothing is recomputed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.base.charts import ENDINGS
from attnlaw.base.declare import Verb
from attnlaw.base.errors import InputError
from attnlaw.base.files import parquet, replace_all, usable_directory
from attnlaw.base.quantity import Table, columns
from attnlaw.base.results import ROWS, save_results
from attnlaw.base.settings import declared, require
from attnlaw.base.tables import distinct_names, frame, schema_of, short_names, without_nan
from attnlaw.report.audited import audit_figures
from attnlaw.report.charts import figures_of
from attnlaw.report.compared import diff_page
from attnlaw.report.init_page import init_page
from attnlaw.report.labels import failures, same
from attnlaw.report.lens_page import lens_page
from attnlaw.report.margins_page import margins_page
from attnlaw.report.marks import Figure
from attnlaw.report.page import Section, audit_page, figure_section, meanings, rows_page
from attnlaw.report.paper import save_figure, save_figures
from attnlaw.report.read import read_saved
from attnlaw.report.read_rows import side_by_side
from attnlaw.report.saved import Saved
from attnlaw.report.source import Source, endings
from attnlaw.report.style import finite


def write_report(
    directories: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    figures: str | None = None,
) -> Path:
    """Write report.html (and figures/) from whatever attnlaw wrote into directories; the page's path.

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
    if figures is not None:
        require("figures", figures, str, choices=ENDINGS)
    if out is None and len(folders) != 1:
        raise InputError(f"report: found {len(folders)} directories; say where the page goes with --out DIR")
    parts = [read_saved(folder) for folder in folders]
    if len(parts) > 1:
        parts = _named(parts)
    drawn = [[*figures_of(part.sources), *part.figures] for part in parts]
    if len(parts) > 1:
        runs = endings({part.run: part.run for part in parts})
        drawn = [
            [replace(figure, name=f"{runs[part.run][1:]}_{figure.name}") for figure in own]
            for part, own in zip(parts, drawn, strict=True)
        ]
    page, every = _page(parts, drawn)
    target = usable_directory(folders[0] if out is None else out)
    written = {target / "report.html": page.encode()}
    if figures is None:
        replace_all(written)
        return list(written)
    if every:
        usable_directory(target / "figures")
    return [*written, *save_figures(every, target / "figures", figures, written)]


def _named(parts: Sequence[Saved]) -> list[Saved]:
    """The parts, each with a name of its own: the last part of its path, or all of it where two agree."""
    short = short_names({str(part.folder): None for part in parts})
    names: list[str] = []
    for part in parts:
        names += distinct_names(names, [short[str(part.folder)]]).values()
    return [replace(part, run=name) for part, name in zip(parts, names, strict=True)]


# Verbs whose rows, alone on a page, have one of their own.
PAGES = {"diff": diff_page, "init": init_page, "lens": lens_page, "margins": margins_page}
Done = Sequence[tuple[Verb[Any, Any], Sequence[tuple[Any, Any]]]]
"""A verb with its cases and their results, then the verb beside it with its own."""


def save(done: Done, folder: str | os.PathLike[str], figures: str | None = None) -> Path:
    """Write what a command found: attnlaw.json, rows.parquet, its tables, its page; figures/ where asked.

    A result may be the `InputError` that its case met.
    """
    return save_results(folder, done[0][0].name, _files(done), figures)


def draw(done: Done, path: Path) -> None:
    """Write the first figure of what a command found."""
    drawn = figures_in_hand(done)
    if not drawn:
        raise InputError(f"{path}: nothing can be drawn of this; ask for several cases, or for a table")
    save_figure(drawn[0], path)


def figures_in_hand(done: Done) -> list[Figure]:
    """The figures of what was found, before anything is written."""
    alone = len(done[0][1]) == 1
    return figures_of(side_by_side({verb.name: _in_hand(verb, pairs, alone) for verb, pairs in done}))


def _in_hand(verb: Verb[Any, Any], pairs: Sequence[tuple[Any, Any]], drawn: bool) -> Source:
    """Rows that were just made, as a chart takes them: they are what the verb declares, and need no check."""
    infinite = {name for name, one in declared(verb.settings).items() if one.rule.infinite}
    kept = [(case, found) for case, found in pairs if not isinstance(found, InputError)]
    rows = [
        {name: value if name in infinite else finite(value) for name, value in verb.row(*pair).items()}
        | {"case": place}
        for place, pair in enumerate(kept)
    ]
    tables = {
        table.name: without_nan(pl.concat(parts, how="diagonal_relaxed"))
        for table in verb.tables
        if (parts := _parts(table, dict(enumerate(found for _, found in kept)), drawn))
    }
    return Source(verb, frame(rows, schema_of(verb.schema) | {"case": pl.Int64()}), tables, "case")


def _files(done: Done) -> dict[str, bytes]:
    """Rows and tables as files."""
    rows, tables = _frames(done)
    return {ROWS: parquet(rows)} | {f"{name}.parquet": parquet(table) for name, table in tables.items()}


def _frames(done: Done) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Rows, and tables by name; `case` is the place of a row."""
    every = [(verb, *pair) for verb, pairs in done for pair in pairs]
    kinds = {name: kind for verb, _ in done for name, kind in verb.schema.items()}
    tables = {}
    for verb, _ in done:
        results = {
            place: found
            for place, (of, _, found) in enumerate(every)
            if of is verb and not isinstance(found, InputError)
        }
        for table in verb.tables:
            if parts := _parts(table, results):
                tables[table.name] = pl.concat(parts, how="diagonal_relaxed")
    return frame((_row(*one) for one in every), schema_of(kinds)), tables


def _parts(table: Table[Any], results: Mapping[int, Any], drawn: bool = False) -> list[pl.DataFrame]:
    """A table of several results, by their places; `drawn`: also one for a figure alone."""
    take = table.drawn if drawn and table.drawn else table.rows
    parts = {place: take(found) for place, found in results.items()}
    return [
        part.with_columns(case=pl.lit(place, dtype=pl.Int64))
        for place, part in parts.items()
        if part is not None
    ]


def _row(verb: Verb[Any, Any], case: Any, found: Any) -> dict[str, Any]:
    row = verb.row(case, found)
    return row | {"status": "failed", "remark": str(found)} if isinstance(found, InputError) else row


def _page(parts: Sequence[Saved], drawn: Sequence[Sequence[Figure]]) -> tuple[str, list[Figure]]:
    """The page, and all figures: of all audits together, then of each other part."""
    several = len(parts) > 1
    sections = [
        section
        for number, (part, own) in enumerate(zip(parts, drawn, strict=True), start=1)
        if (section := _section(part, own, number, several)) is not None
    ]
    every = [figure for own in drawn for figure in own]
    audits = [part.audit for part in parts if part.audit is not None]
    others = [part for part in parts if part.audit is None]
    names = ", ".join(f"{part.name} ({part.title})" for part in others)
    lost = _losses(parts)
    if audits:
        audit = reduce(add, audits)
        runs = [(part.name, part.audit.names) for part in parts if part.audit is not None]
        whose = f"Runs: {_whose(runs, audit.names)}." if len(runs) > 1 else ""
        note = " ".join(filter(None, [whose, f"Beside them: {names}." if names else "", lost]))
        return audit_page(audit, sections, note), [*audit_figures(audit), *every]
    if not several and parts[0].sources and parts[0].sources[0].verb.name in PAGES:
        return PAGES[parts[0].sources[0].verb.name](parts[0].sources[0], sections, lost), every
    tables = [
        table.select(pl.lit(part.name).alias("run"), pl.exclude("run")) if several else table
        for part in parts
        if (table := part.rows if part.listed is None else part.listed) is not None
    ]
    rows = pl.concat(tables, how="diagonal_relaxed")
    verbs = list({verb.name: verb for part in parts for verb in part.verbs}.values())
    of = f" of {names}" if several else ""
    allowed = ", and the figures that they allow" if every else "; no figure can be drawn from them"
    lead = [f"{rows.height} rows{of}{allowed}.", lost, "" if several else same(rows, _found(verbs))]
    title = " · ".join(dict.fromkeys(part.title for part in parts))
    found = [meanings(*pair, several=len(verbs) > 1) for part in parts for pair in part.found]
    told = [*sections, *(section for section in found if section is not None)]
    return rows_page(title, " ".join(filter(None, lead)), told, rows, verbs), every


def _section(part: Saved, drawn: Sequence[Figure], number: int, several: bool) -> Section | None:
    """The figures of a part; of several parts, too, where they come from and what its rows share."""
    lead = ""
    if part.rows is not None and several and (drawn or part.audit is None):
        source = f"the {part.rows.height} rows in {part.name}."
        shared = same(part.rows, _found(part.verbs))
        lead = f"{'Drawn from' if drawn else 'No figure can be drawn from'} {source} {shared}".strip()
    title, link = (f"{part.name}: {part.title}", part.name) if several else ("Figures", None)
    return figure_section(f"part-{number}", title, drawn, lead, link)


def _whose(runs: Sequence[tuple[str, Sequence[str]]], shown: Sequence[str]) -> str:
    """Which of the models shown came from which run.

    >>> _whose([("first", ["bert"]), ("second", ["bert", "gpt"])], ["bert", "bert (2)", "gpt"])
    'first (bert), second (bert (2), gpt)'
    """
    left = iter(shown)
    return ", ".join(f"{run} ({', '.join(next(left) for _ in own)})" for run, own in runs)


def _found(verbs: Sequence[Verb[Any, Any]]) -> list[str]:
    """The columns that verbs find, in rows and in tables."""
    every = [one for verb in verbs for one in (verb.quantities, *(table.columns for table in verb.tables))]
    return [name for quantities in every for name in columns(quantities)]


def _losses(parts: Sequence[Saved]) -> str:
    """What failed, by part where there are several."""
    found = [(part.name, failures(part.rows)) for part in parts if part.rows is not None]
    return " ".join(f"{name}: {text}" if len(parts) > 1 else text for name, text in found if text)
