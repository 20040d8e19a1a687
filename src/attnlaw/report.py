"""Write a page and figures from saved results. Nothing is computed again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, islice
from operator import add
from pathlib import Path

from attnlaw.core.answer import Answer
from attnlaw.core.errors import InputError, printable
from attnlaw.core.files import figures_directory, writable_directory, write_all
from attnlaw.core.result import MANIFEST, Result
from attnlaw.core.settings import check_value
from attnlaw.core.tables import short_names, unique_names
from attnlaw.core.verb import attempt
from attnlaw.render.charts.figure import Figure, number_duplicates, unique_suffixes
from attnlaw.render.charts.packages import has_packages, require_packages, warn_without_packages
from attnlaw.render.charts.paper import figure_files
from attnlaw.render.model_names import model_names
from attnlaw.render.output_options import ENDINGS
from attnlaw.render.pages.page import Part, failure_sentences, results_page
from attnlaw.verbs import STUDY_VERBS, VERBS
from attnlaw.verbs.audit import page as audit_page
from attnlaw.verbs.views import answer_of, figures_of, load, page_of

Place = str | os.PathLike[str]
OnError = Callable[[InputError], object]


def write_report(
    directories: Sequence[Place],
    out: Place | None = None,
    figures: str | None = None,
    on_error: OnError | None = None,
) -> Path:
    """Write report.html from directories that attnlaw wrote. Return the path of the page.

    Args:
        directories: directories that a verb, a study or a monitor wrote. If there are several, the page
            compares them.
        out: the directory of the page. None writes the page into the directory, which must be the only one.
        figures: "pdf", "svg" or "png" also writes every chart, in the style of a paper, to figures/ next to
            the page. None writes only the page.
        on_error: a function that receives the error of each result that cannot be read. With it, the page
            shows the other results. Without it, the error is raised.

    Raises:
        InputError: if no directory has a readable result, or if several directories are given without `out`.
    """
    return write_files(directories, out, figures, on_error)[0]


def write_files(
    directories: Sequence[Place], out: Place | None, figures: str | None, on_error: OnError | None = None
) -> list[Path]:
    """Write the page, and the figures if requested, like `write_report`.

    Return the paths of the page and of all figures.
    """
    folders = [Path(directory) for directory in directories]
    if figures is not None:
        check_value("figures", figures, str, choices=ENDINGS)
        require_packages("saving figures")
    if out is None and len(folders) != 1:
        raise InputError(
            f"report: found {len(folders)} directories, so attnlaw cannot choose where to "
            "write the page; add --out DIR"
        )
    loaded: list[list[Result]] = []
    read: list[Path] = []
    failures: list[InputError] = []
    for folder in folders:
        results, errors = _load_results(folder)
        failures += errors
        if results:
            loaded.append(results)
            read.append(folder)
    if failures and (on_error is None or not loaded):
        raise failures[0]
    for error in failures:
        if on_error is not None:
            on_error(error)
    short = short_names(set(map(str, read)))
    names = unique_names(printable(short[str(folder)]) for folder in read)
    target = writable_directory(folders[0] if out is None else out)
    figures_folder = None if figures is None else figures_directory(target)
    page, drawn = _page(loaded, names, failures)
    if any(figure.on_page for figure in drawn) and not has_packages():
        warn_without_packages()
    written = {target / "report.html": page.encode()}
    if figures_folder is not None and figures is not None:
        written |= figure_files(drawn, figures_folder, figures)
    write_all(written)
    return [path for path in written if path.suffix in (".html", f".{figures}")]


def _load_results(folder: Path) -> tuple[list[Result], list[InputError]]:
    """Load all results in a directory, with fitted laws among the tables of the audit, and their errors."""
    first = attempt(load, folder)
    if isinstance(first, InputError):
        return [], [first]
    names = [name for name in VERBS | STUDY_VERBS if "task" in first.rows.columns]
    others = [attempt(load, folder / name) for name in names if (folder / name / MANIFEST).exists()]
    results = [first, *(other for other in others if not isinstance(other, InputError))]
    by_verb = {result.verb.name: result for result in results}
    if {"audit", "fit"} <= by_verb.keys() and len(by_verb["audit"]) == len(by_verb["fit"]):
        audit = by_verb["audit"]
        by_verb["audit"] = replace(audit, tables={**audit.tables, **by_verb["fit"].tables})
    return list(by_verb.values()), [other for other in others if isinstance(other, InputError)]


def _page(
    loaded: Sequence[Sequence[Result]], names: Sequence[str], failures: Sequence[InputError]
) -> tuple[str, list[Figure]]:
    left_out = " ".join(f"Could not read: {error}." for error in failures)
    if len(loaded) == len(loaded[0]) == 1 and not failures:
        figures = figures_of(loaded[0][0])
        return page_of(loaded[0][0], figures), figures
    audits = [[result for result in results if audit_page.has_page(result)] for results in loaded]
    others = [[result for result in results if not audit_page.has_page(result)] for results in loaded]
    drawn = [number_duplicates(list(chain(*map(figures_of, results)))) for results in others]
    if len(loaded) > 1:
        prefixes = unique_suffixes({name: name for name in names})
        drawn = [
            [replace(figure, name=f"{prefixes[name][1:]}_{figure.name}") for figure in figures]
            for name, figures in zip(names, drawn, strict=True)
        ]
    parts = [Part(*part) for part in zip(others, drawn, names, strict=True)]
    every = [figure for figures in drawn for figure in figures]
    if not any(audits):
        return results_page(parts, left_out, _joint_answer(others, names)), every
    audit = reduce(add, [result for results in audits for result in results])
    figures = figures_of(audit)
    numbered = [(number, part) for number, part in enumerate(parts, start=1) if part.results]
    sections = [part.figure_section(number, several=len(parts) > 1) for number, part in numbered]
    beside = [f"{part.name} ({part.title})" for part, seen in zip(parts, audits, strict=True) if not seen]
    note = [
        _runs_sentence(audits, names, audit),
        f"Also on this page: {', '.join(beside)}." if beside else "",
        left_out,
        failure_sentences([Part(results, (), name) for results, name in zip(loaded, names, strict=True)]),
    ]
    page = audit_page.page(audit, figures, list(filter(None, sections)), " ".join(filter(None, note)))
    return page, [*figures, *every]


def _joint_answer(loaded: Sequence[Sequence[Result]], names: Sequence[str]) -> Answer | None:
    lines = []
    for name, results in zip(names, loaded, strict=True):
        for result in results:
            known, whose = answer_of(result), name if len(loaded) > 1 else result.verb.name
            lines += [replace(line, text=f"{whose}: {line.text}") for line in (known.lines if known else ())]
    return Answer(tuple(lines)) if lines else None


def _runs_sentence(audits: Sequence[Sequence[Result]], names: Sequence[str], whole: Result) -> str:
    """Return a sentence that says which models came from which directory, or "" for a single directory."""
    left = iter(zip(model_names(whole), whole.rows["status"], strict=True))
    runs = []
    for name, results in zip(names, audits, strict=True):
        models = [model for model, status in islice(left, sum(map(len, results))) if status != "failed"]
        runs += [f"{name} ({', '.join(models)})"] if results else []
    return f"Runs: {', '.join(runs)}." if len(runs) > 1 else ""
