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

from attnlaw.core.chart_specs import ENDINGS
from attnlaw.core.errors import InputError
from attnlaw.core.files import to_parquet, writable_directory, write_all
from attnlaw.core.quantity import TableSpec, column_kinds
from attnlaw.core.result_files import ROWS, save_results
from attnlaw.core.settings import check_value, setting_fields
from attnlaw.core.tables import nan_to_null, short_names, to_frame, to_schema, unique_names
from attnlaw.core.verb import Verb
from attnlaw.render.charts.data import ChartData, unique_suffixes
from attnlaw.render.charts.draw import draw_all_figures
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.labels import failure_sentence, shared_settings
from attnlaw.render.charts.paper import save_figure, save_figures
from attnlaw.render.charts.style import finite_or_none
from attnlaw.render.pages.page import Section, figure_section, quantity_section, rows_page
from attnlaw.report.read import read_saved
from attnlaw.report.read_rows import pair_with_simulations
from attnlaw.report.saved import SavedResults
from attnlaw.verbs.audit.frames import audit_figures
from attnlaw.verbs.audit.page import audit_page
from attnlaw.verbs.diff.page import diff_page
from attnlaw.verbs.init.page import init_page
from attnlaw.verbs.lens.page import lens_page
from attnlaw.verbs.margins.page import margins_page


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
        check_value("figures", figures, str, choices=ENDINGS)
    if out is None and len(folders) != 1:
        raise InputError(f"report: found {len(folders)} directories; say where the page goes with --out DIR")
    parts = [read_saved(folder) for folder in folders]
    if len(parts) > 1:
        parts = _with_distinct_names(parts)
    drawn = [[*draw_all_figures(part.sources), *part.figures] for part in parts]
    if len(parts) > 1:
        runs = unique_suffixes({part.run_name: part.run_name for part in parts})
        drawn = [
            [replace(figure, name=f"{runs[part.run_name][1:]}_{figure.name}") for figure in part_figures]
            for part, part_figures in zip(parts, drawn, strict=True)
        ]
    page, every = _page(parts, drawn)
    target = writable_directory(folders[0] if out is None else out)
    written = {target / "report.html": page.encode()}
    if figures is None:
        write_all(written)
        return list(written)
    if every:
        writable_directory(target / "figures")
    return [*written, *save_figures(every, target / "figures", figures, written)]


def _with_distinct_names(parts: Sequence[SavedResults]) -> list[SavedResults]:
    """The parts, each with a name of its own: the last part of its path, or all of it where two agree."""
    short = short_names({str(part.folder): None for part in parts})
    names: list[str] = []
    for part in parts:
        names += unique_names(names, [short[str(part.folder)]]).values()
    return [replace(part, run_name=name) for part, name in zip(parts, names, strict=True)]


# Verbs whose rows, alone on a page, have one of their own.
PAGES = {"diff": diff_page, "init": init_page, "lens": lens_page, "margins": margins_page}
VerbRuns = Sequence[tuple[Verb[Any, Any], Sequence[tuple[Any, Any]]]]
"""A verb with its cases and their results, then the verb beside it with its own."""


def save(done: VerbRuns, folder: str | os.PathLike[str], figures: str | None = None) -> Path:
    """Write what a command found: attnlaw.json, rows.parquet, its tables, its page; figures/ where asked.

    A result may be the `InputError` that its case met.
    """
    return save_results(folder, done[0][0].name, _files(done), figures)


def save_first_figure(done: VerbRuns, path: Path) -> None:
    """Write the first figure of what a command found."""
    drawn = figures_of_results(done)
    if not drawn:
        raise InputError(f"{path}: nothing can be drawn of this; ask for several cases, or for a table")
    save_figure(drawn[0], path)


def figures_of_results(done: VerbRuns) -> list[Figure]:
    """The figures of what was found, before anything is written."""
    alone = len(done[0][1]) == 1
    return draw_all_figures(
        pair_with_simulations({verb.name: _to_chart_data(verb, pairs, alone) for verb, pairs in done})
    )


def _to_chart_data(verb: Verb[Any, Any], pairs: Sequence[tuple[Any, Any]], drawn: bool) -> ChartData:
    """Rows that were just made, as a chart takes them: they are what the verb declares, and need no check."""
    infinite = {
        name for name, setting in setting_fields(verb.settings).items() if setting.rule.allow_infinite
    }
    kept = [(case, result) for case, result in pairs if not isinstance(result, InputError)]
    rows = [
        {
            name: value if name in infinite else finite_or_none(value)
            for name, value in verb.row(*pair).items()
        }
        | {"case": place}
        for place, pair in enumerate(kept)
    ]
    tables = {
        table.name: nan_to_null(pl.concat(parts, how="diagonal_relaxed"))
        for table in verb.tables
        if (parts := _table_parts(table, dict(enumerate(result for _, result in kept)), drawn))
    }
    return ChartData(verb, to_frame(rows, to_schema(verb.schema) | {"case": pl.Int64()}), tables, "case")


def _files(done: VerbRuns) -> dict[str, bytes]:
    """Rows and tables as files."""
    rows, tables = _to_frames(done)
    return {ROWS: to_parquet(rows)} | {f"{name}.parquet": to_parquet(table) for name, table in tables.items()}


def _to_frames(done: VerbRuns) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Rows, and tables by name; `case` is the place of a row."""
    every = [(verb, *pair) for verb, pairs in done for pair in pairs]
    kinds = {name: kind for verb, _ in done for name, kind in verb.schema.items()}
    tables = {}
    for verb, _ in done:
        results = {
            place: result
            for place, (of, _, result) in enumerate(every)
            if of is verb and not isinstance(result, InputError)
        }
        for table in verb.tables:
            if parts := _table_parts(table, results):
                tables[table.name] = pl.concat(parts, how="diagonal_relaxed")
    return to_frame((_row(*entry) for entry in every), to_schema(kinds)), tables


def _table_parts(
    table: TableSpec[Any], results: Mapping[int, Any], drawn: bool = False
) -> list[pl.DataFrame]:
    """A table of several results, by their places; `drawn`: also one for a figure alone."""
    take = table.on_demand if drawn and table.on_demand else table.rows
    parts = {place: take(result) for place, result in results.items()}
    return [
        part.with_columns(case=pl.lit(place, dtype=pl.Int64))
        for place, part in parts.items()
        if part is not None
    ]


def _row(verb: Verb[Any, Any], case: Any, result: Any) -> dict[str, Any]:
    row = verb.row(case, result)
    return row | {"status": "failed", "remark": str(result)} if isinstance(result, InputError) else row


def _page(parts: Sequence[SavedResults], drawn: Sequence[Sequence[Figure]]) -> tuple[str, list[Figure]]:
    """The page, and all figures: of all audits together, then of each other part."""
    several = len(parts) > 1
    sections = [
        section
        for number, (part, figures) in enumerate(zip(parts, drawn, strict=True), start=1)
        if (section := _section(part, figures, number, several)) is not None
    ]
    every = [figure for figures in drawn for figure in figures]
    audits = [part.audit for part in parts if part.audit is not None]
    others = [part for part in parts if part.audit is None]
    names = ", ".join(f"{part.name} ({part.title})" for part in others)
    lost = _failure_sentences(parts)
    if audits:
        audit = reduce(add, audits)
        runs = [(part.name, part.audit.names) for part in parts if part.audit is not None]
        whose = f"Runs: {_models_by_run(runs, audit.names)}." if len(runs) > 1 else ""
        note = " ".join(filter(None, [whose, f"Beside them: {names}." if names else "", lost]))
        return audit_page(audit, sections, note), [*audit_figures(audit), *every]
    if not several and parts[0].sources and parts[0].sources[0].verb.name in PAGES:
        return PAGES[parts[0].sources[0].verb.name](parts[0].sources[0], sections, lost), every
    tables = [
        table.select(pl.lit(part.name).alias("run"), pl.exclude("run")) if several else table
        for part in parts
        if (table := part.rows if part.listed_rows is None else part.listed_rows) is not None
    ]
    rows = pl.concat(tables, how="diagonal_relaxed")
    verbs = list({verb.name: verb for part in parts for verb in part.verbs}.values())
    of = f" of {names}" if several else ""
    allowed = ", and the figures that they allow" if every else "; no figure can be drawn from them"
    lead = [
        f"{rows.height} rows{of}{allowed}.",
        lost,
        "" if several else shared_settings(rows, _result_columns(verbs)),
    ]
    title = " · ".join(dict.fromkeys(part.title for part in parts))
    quantity_sections = [
        quantity_section(*pair, several=len(verbs) > 1) for part in parts for pair in part.rows_by_verb
    ]
    all_sections = [*sections, *(section for section in quantity_sections if section is not None)]
    return rows_page(title, " ".join(filter(None, lead)), all_sections, rows, verbs), every


def _section(part: SavedResults, drawn: Sequence[Figure], number: int, several: bool) -> Section | None:
    """The figures of a part; of several parts, too, where they come from and what its rows share."""
    lead = ""
    if part.rows is not None and several and (drawn or part.audit is None):
        source = f"the {part.rows.height} rows in {part.name}."
        shared = shared_settings(part.rows, _result_columns(part.verbs))
        lead = f"{'Drawn from' if drawn else 'No figure can be drawn from'} {source} {shared}".strip()
    title, link = (f"{part.name}: {part.title}", part.name) if several else ("Figures", None)
    return figure_section(f"part-{number}", title, drawn, lead, link)


def _models_by_run(runs: Sequence[tuple[str, Sequence[str]]], shown: Sequence[str]) -> str:
    """Which of the models shown came from which run.

    >>> _models_by_run([("first", ["bert"]), ("second", ["bert", "gpt"])], ["bert", "bert (2)", "gpt"])
    'first (bert), second (bert (2), gpt)'
    """
    left = iter(shown)
    return ", ".join(f"{run} ({', '.join(next(left) for _ in models)})" for run, models in runs)


def _result_columns(verbs: Sequence[Verb[Any, Any]]) -> list[str]:
    """The columns that verbs find, in rows and in tables."""
    every = [
        quantities
        for verb in verbs
        for quantities in (verb.quantities, *(table.columns for table in verb.tables))
    ]
    return [name for quantities in every for name in column_kinds(quantities)]


def _failure_sentences(parts: Sequence[SavedResults]) -> str:
    """What failed, by part where there are several."""
    losses = [(part.name, failure_sentence(part.rows)) for part in parts if part.rows is not None]
    return " ".join(f"{name}: {text}" if len(parts) > 1 else text for name, text in losses if text)
