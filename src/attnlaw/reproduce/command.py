"""`attnlaw reproduce [list | PAPER | FIGURE] --out DIR`: run, draw, and set published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from attnlaw import __version__
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.files import write_all
from attnlaw.core.settings import Settings, setting, setting_like, settings_dataclass
from attnlaw.render.output_options import ENDINGS, require_directory_name
from attnlaw.render.terminal.console import Column, output, print_json, print_message, print_table, progress
from attnlaw.reproduce import papers
from attnlaw.reproduce.papers import Paper, PaperFigure, find_figures
from attnlaw.study import Backend, read_study, run
from attnlaw.study.export import collect_results
from attnlaw.study.store import open_store

LIST = "list"
STOPPED = "stopped"


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

    def execute(self) -> int:
        from attnlaw.core.tables import quantity_frame

        if self.name in (None, LIST) or self.out is None:
            return _list(self.json)
        done: list[FigureRun] = []
        for paper, figure in find_figures(str(self.name)):
            if self.quick and figure.large and self.name == paper.arxiv:
                again = f"attnlaw reproduce {figure.study} --out DIR"
                print_message(f"{figure.study}: left out of a quick run; {again} has it")
                continue
            done.append(_run_figure(paper, figure, self, Path(self.out) / figure.study))
            if not self.json:
                _show(done[-1])
            if done[-1].remark:
                print_message(f"{figure.study}: {done[-1].remark}")
            if done[-1].status == STOPPED:
                break
        table = quantity_frame(papers.COMPARISON, (line for figure_run in done for line in figure_run.lines))
        path = Path(self.out) / "published.csv"
        if table.height:
            write_all({path: table.write_csv().encode()})
        if self.json:
            print_json([figure_run.describe(self.quick) for figure_run in done])
        elif table.height:
            print_message(f"wrote {path}")
        for paper in dict.fromkeys(figure_run.paper for figure_run in done):
            if paper.numbers:
                print_message(f"{paper.arxiv}: {paper.numbers}")
        statuses = {figure_run.status for figure_run in done}
        return 130 if STOPPED in statuses else 1 if Outcome.FAILED in statuses else 0


@dataclass(frozen=True)
class FigureRun:
    """A figure that was run: how it ended, what to say, and its lines of comparison."""

    paper: Paper
    figure: PaperFigure
    status: str
    remark: str | None
    lines: Sequence[dict[str, Any]] = ()
    tasks: int = 0
    seconds: float = 0.0

    def describe(self, quick: bool) -> dict[str, Any]:
        """The object of JSON, in the contract of a verb."""
        scores = [line["z"] for line in self.lines if line["z"] is not None]
        lines = [
            {name: asdict(value) if isinstance(value, Estimate) else value for name, value in line.items()}
            for line in self.lines
        ]
        return {
            "verb": "reproduce",
            "settings": {"paper": self.paper.arxiv, "figure": self.figure.study, "quick": quick},
            "quantities": {
                "tasks": self.tasks,
                "task_seconds": self.seconds,
                "compared": len(lines),
                "rms_z": math.sqrt(sum(z * z for z in scores) / len(scores)) if scores else None,
                "largest_z": max(scores, key=abs, default=None),
            },
            "status": self.status,
            "remark": self.remark,
            "tables": {"published": lines},
            "version": __version__,
        }


COMMANDS = {"reproduce": Reproduce}


def _run_figure(paper: Paper, figure: PaperFigure, options: Reproduce, folder: Path) -> FigureRun:
    """Run the study of a figure, draw it, and compare; what cannot be read ends as a remark."""
    import polars as pl

    from attnlaw.render.charts.paper import figure_files
    from attnlaw.report.write import write_report
    from attnlaw.reproduce.published_figures import published_figures

    needs = f"; it needs {figure.needs}" if figure.needs else ""
    try:
        study = read_study(figure.study, quick=options.quick)
        with progress(f"{paper.arxiv} {figure.study}") as shown:
            standing = run(study, folder, Backend(jobs=options.jobs), retry_failed=True, progress=shown)
    except InputError as error:
        return FigureRun(paper, figure, Outcome.FAILED, f"{error}{needs}")
    with open_store(folder) as store:
        results = collect_results(study, store)
    lines = []
    if results:
        parts = [part for result in results for part in (result, result.simulation) if part is not None]
        rows = pl.concat([part.rows for part in parts], how="diagonal_relaxed")
        drawn = [name for name, verb in study.verbs.items() if verb.is_random]
        lines = papers.compare(paper.arxiv, figure.study, rows, drawn)
        write_report([folder], figures=options.figures)
        figures = published_figures(lines, results[0].verb.label)
        write_all(figure_files(figures, folder / "figures", options.figures))
    status, remark = str(Outcome.DONE), None
    if standing.stopped:
        status, remark = STOPPED, "stopped; every finished row is kept, the same command goes on"
    elif standing.failures:
        first = standing.failures[0].error
        status, remark = Outcome.FAILED, f"{len(standing.failures)} tasks failed: {first}{needs}"
    return FigureRun(paper, figure, status, remark, lines, standing.tasks, standing.seconds)


def _show(figure_run: FigureRun) -> None:
    """The figure's numbers beside ours."""
    figure, lines = figure_run.figure, figure_run.lines
    output.print(Text(f"{figure_run.paper.arxiv} {figure.study}: {figure.about}", style="bold"))
    if not lines:
        if figure_run.status == Outcome.DONE:
            text = f"{figure_run.tasks} tasks; no numbers of others stand beside them"
            output.print(Text(text, style="dim"))
        return
    labels = [[line["quantity"].replace("_", " "), *filter(None, line["case"].split("; "))] for line in lines]
    shared = [word for word in labels[0] if all(word in words for words in labels)] if len(labels) > 1 else []
    if shared:
        output.print(Text(", ".join(shared), style="dim"))
    percents = ["" if line["difference"] is None else f"{100 * line['difference']:+.2g}%" for line in lines]
    cases = [", ".join(word for word in words if word not in shared) for words in labels]
    columns = [
        Column("", cases, is_text=True),
        Column("theirs", [str(line["published"]) for line in lines]),
        Column("ours", [str(line["ours"]) for line in lines]),
        Column("difference", percents),
        Column("z", ["" if line["z"] is None else f"{line['z']:+.2f}" for line in lines]),
        Column("kind", [line["kind"] for line in lines], is_text=True),
    ]
    print_table(output, columns, ("kind", "difference"))


def _list(json: bool) -> int:
    """All papers, their figures, and what numbers of others there are."""
    entries: list[dict[str, Any]] = []
    rows: list[tuple[str | Text, str | Text, str]] = []
    for paper in papers.PAPERS:
        rows.append((Text(paper.arxiv, style="bold"), Text(paper.title, style="bold"), ""))
        for figure in paper.figures:
            count = len(papers.published_lines(figure.study))
            rows.append((f"  {figure.study}", figure.about, str(count or "")))
            names = {"paper": paper.arxiv, "title": paper.title, "figure": figure.study}
            entries.append({**names, "about": figure.about, "numbers": count, "needs": figure.needs or None})
    if json:
        print_json(entries)
        return 0
    figures, abouts, counts = zip(*rows, strict=True)
    about = Column("about", abouts, is_text=True, wraps=True)
    print_table(output, [Column("figure", figures, is_text=True), about, Column("numbers", counts)])
    return 0
