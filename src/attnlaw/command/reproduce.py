"""`attnlaw reproduce [list | PAPER | FIGURE] --out DIR`: run, draw, and set published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.output_options import ENDINGS, require_directory_name
from attnlaw.core.settings import Settings, setting, setting_like, settings_dataclass
from attnlaw.study.backends import Backend
from attnlaw.study.papers import find_figures

if TYPE_CHECKING:
    from attnlaw.study.papers import Paper, PaperFigure

LIST = "list"
TABLE = "published.csv"


@settings_dataclass
class Reproduce(Settings):
    """A paper's figures by the studies that ship: run, drawn, and published numbers set beside ours.

    Into DIR go a directory for each figure (rows, report.html, figures/) and published.csv, the table on the
    screen. What was computed is kept: the same command goes on where it was stopped.
    """

    name: str | None = setting(
        None, "list, a paper (2506.01582), or a figure (learn-tokens).", positional=True, metavar="NAME"
    )
    out: str | None = setting(None, "Where rows, figures and the table go.", metavar="DIR")
    quick: bool = setting(
        False, "Fewer draws and points, no large figures: under two minutes for each paper."
    )
    figures: str = setting("pdf", "How figures are written.", choices=ENDINGS)
    jobs: int | None = setting_like(
        Backend, "jobs", help="Workers of a local Dask cluster; in process without."
    )
    json: bool = setting(False, "Print JSON and nothing else.")

    def check(self) -> None:
        require_directory_name(self.out)
        if self.name is None or self.name == LIST:
            return
        find_figures(self.name)
        if self.out is None:
            raise BadSetting("out", "is missing")


@dataclass(frozen=True)
class FigureRun:
    """A figure that was run: its lines of comparison, how it ended, and what to say."""

    paper: Paper
    figure: PaperFigure
    lines: list[dict[str, Any]]
    status: str
    remark: str | None
    tasks: int = 0
    seconds: float = 0.0

    def describe(self, quick: bool) -> dict[str, Any]:
        """The object of JSON, in the contract of a verb."""
        from attnlaw import __version__

        scores = [line["z"] for line in self.lines if line["z"] is not None]
        return {
            "verb": "reproduce",
            "settings": {"paper": self.paper.arxiv, "figure": self.figure.study, "quick": quick},
            "quantities": {
                "tasks": self.tasks,
                "task_seconds": self.seconds,
                "compared": len(self.lines),
                "rms_z": math.sqrt(sum(z * z for z in scores) / len(scores)) if scores else None,
                "largest_z": max(scores, key=abs) if scores else None,
            },
            "status": self.status,
            "remark": self.remark,
            "tables": {"published": [_plain(line) for line in self.lines]},
            "version": __version__,
        }


def reproduce(options: Reproduce) -> int:
    from attnlaw.render.terminal.console import output, print_json, print_message

    if options.name in (None, LIST) or options.out is None:
        return _list(options.json)
    done: list[FigureRun] = []
    for paper, figure in find_figures(str(options.name)):
        if options.quick and figure.large and options.name == paper.arxiv:
            print_message(
                f"{figure.study}: left out of a quick run; attnlaw reproduce {figure.study} --out DIR has it"
            )
            continue
        figure_run = _run_figure(paper, figure, options)
        done.append(figure_run)
        if not options.json:
            _show(figure_run, output)
        if figure_run.remark:
            print_message(f"{figure.study}: {figure_run.remark}")
        if figure_run.status == STOPPED:
            break
    _write_table(done, Path(options.out))
    if options.json:
        print_json([figure_run.describe(options.quick) for figure_run in done])
    elif any(figure_run.lines for figure_run in done):
        print_message(f"wrote {Path(options.out) / TABLE}")
    for words in dict.fromkeys(figure_run.paper.numbers for figure_run in done if figure_run.paper.numbers):
        print_message(f"{done[0].paper.arxiv}: {words}")
    if any(figure_run.status == STOPPED for figure_run in done):
        return 130
    return 1 if any(figure_run.status == Outcome.FAILED for figure_run in done) else 0


STOPPED = "stopped"
COMMANDS = {"reproduce": (Reproduce, reproduce)}


def _run_figure(paper: Paper, figure: PaperFigure, options: Reproduce) -> FigureRun:
    """Run the study of a figure, draw it, and compare; what cannot be read ends as a remark."""
    import polars as pl

    from attnlaw.core.files import write_all
    from attnlaw.render.charts.paper import figure_files
    from attnlaw.render.charts.published import published_figures
    from attnlaw.render.terminal.console import progress
    from attnlaw.report.write import write_report
    from attnlaw.study import read_study, run
    from attnlaw.study.export import collect_results
    from attnlaw.study.published_numbers import compare
    from attnlaw.study.store import open_store

    assert options.out is not None
    folder = Path(options.out) / figure.study
    needs = f"; it needs {figure.needs}" if figure.needs else ""
    try:
        study = read_study(figure.study, quick=options.quick)
        with progress(f"{paper.arxiv} {figure.study}") as shown:
            standing = run(study, folder, Backend(jobs=options.jobs), retry_failed=True, progress=shown)
    except InputError as error:
        return FigureRun(paper, figure, [], str(Outcome.FAILED), f"{error}{needs}")
    with open_store(folder) as store:
        results = collect_results(study, store)
    lines = []
    if results:
        parts = [part for result in results for part in (result, result.simulation) if part is not None]
        rows = pl.concat([part.rows for part in parts], how="diagonal_relaxed")
        drawn = [name for name, verb in study.verbs.items() if verb.is_random]
        lines = compare(paper.arxiv, figure.study, rows, drawn)
        write_report([folder], figures=options.figures)
        figures = published_figures(lines, results[0].verb.label)
        write_all(figure_files(figures, folder / "figures", options.figures))
    status, remark = str(Outcome.DONE), None
    if standing.stopped:
        status, remark = STOPPED, "stopped; every finished row is kept, the same command goes on"
    elif standing.failures:
        first = standing.failures[0].error
        status, remark = str(Outcome.FAILED), f"{len(standing.failures)} tasks failed: {first}{needs}"
    return FigureRun(paper, figure, lines, status, remark, standing.tasks, standing.seconds)


def _show(figure_run: FigureRun, console: Any) -> None:
    """The figure's numbers beside ours."""
    from rich.text import Text

    from attnlaw.render.terminal.console import column_table, print_table

    title = f"{figure_run.paper.arxiv} {figure_run.figure.study}: {figure_run.figure.about}"
    console.print(Text(title, style="bold"))
    if not figure_run.lines:
        if figure_run.status == Outcome.DONE:
            console.print(
                Text(f"{figure_run.tasks} tasks; no numbers of others stand beside them", style="dim")
            )
        return
    lines = figure_run.lines
    labels = [[line["quantity"].replace("_", " "), *filter(None, line["case"].split("; "))] for line in lines]
    shared = [word for word in labels[0] if all(word in words for words in labels)] if len(labels) > 1 else []
    if shared:
        console.print(Text(", ".join(shared), style="dim"))
    cells = {
        "": [", ".join(word for word in words if word not in shared) for words in labels],
        "theirs": [str(line["published"]) for line in lines],
        "ours": [str(line["ours"]) for line in lines],
        "difference": [_signed(line["difference"], "%") for line in lines],
        "z": [_signed(line["z"]) for line in lines],
        "kind": [line["kind"] for line in lines],
    }
    print_table(
        console,
        lambda left_out: column_table(cells, left_out, texts=("", "kind")),
        ("kind", "difference"),
    )


def _signed(value: float | None, unit: str = "") -> str:
    """A number with its sign and a few digits; percent where that is the unit.

    >>> [_signed(0.0123, "%"), _signed(-1.234), _signed(None)]
    ['+1.2%', '-1.23', '']
    """
    if value is None:
        return ""
    return f"{100 * value:+.2g}%" if unit else f"{value:+.2f}"


def _list(json: bool) -> int:
    """All papers, their figures, and what numbers of others there are."""
    from rich.table import Table
    from rich.text import Text

    from attnlaw.render.terminal.console import output, print_json
    from attnlaw.study.papers import PAPERS
    from attnlaw.study.published_numbers import published_lines

    entries = [
        {
            "paper": paper.arxiv,
            "title": paper.title,
            "figure": figure.study,
            "about": figure.about,
            "numbers": len(published_lines(figure.study)),
            "needs": figure.needs or None,
        }
        for paper in PAPERS
        for figure in paper.figures
    ]
    if json:
        print_json(entries)
        return 0
    table = Table("figure", box=None, pad_edge=False)
    table.add_column("about", overflow="fold")
    table.add_column("numbers", justify="right")
    for paper in PAPERS:
        table.add_row(Text(paper.arxiv, style="bold"), Text(paper.title, style="bold"), "")
        for entry in entries:
            if entry["paper"] == paper.arxiv:
                table.add_row(f"  {entry['figure']}", str(entry["about"]), str(entry["numbers"] or ""))
    output.print(table)
    return 0


def _write_table(done: Sequence[FigureRun], out: Path) -> None:
    from attnlaw.core.files import write_all
    from attnlaw.core.tables import quantity_frame
    from attnlaw.study.published_numbers import COMPARISON

    table = quantity_frame(COMPARISON, (line for figure_run in done for line in figure_run.lines))
    if table.height:
        write_all({out / TABLE: table.write_csv().encode()})


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    """A line as JSON has it: a value with an error is an object."""
    return {
        name: {"value": value.value, "error": value.error} if isinstance(value, Estimate) else value
        for name, value in line.items()
    }
