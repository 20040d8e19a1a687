"""Run the study of a paper's figure, draw its page, and compare its rows with published numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.files import figures_directory, write_all
from attnlaw.core.progress import Progress
from attnlaw.core.tables import quantity_frame
from attnlaw.render.charts.packages import has_packages
from attnlaw.render.charts.paper import figure_files
from attnlaw.report import write_report
from attnlaw.reproduce.comparison import COMPARISON, compare, published_figures
from attnlaw.reproduce.papers import Paper, PaperFigure
from attnlaw.study import Backend, read_study, run
from attnlaw.study.export import collect_results
from attnlaw.study.store import open_store

STOPPED = "stopped"


@dataclass(frozen=True)
class FigureRun:
    """The outcome of reproducing one figure.

    The status is "done", "failed" or "stopped". `remark` says what failed, and what to do about it. `seconds`
    is the time of all tasks together. `lines` are the comparisons from `compare`.
    """

    paper: Paper
    figure: PaperFigure
    status: str
    remark: str | None
    lines: Sequence[dict[str, Any]] = ()
    tasks: int = 0
    seconds: float = 0.0

    def describe(self, quick: bool) -> dict[str, Any]:
        """Return the outcome as a JSON object. The keys are those of a verb's JSON."""
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


def run_figure(
    paper: Paper,
    figure: PaperFigure,
    folder: Path,
    progress: Progress,
    *,
    quick: bool = False,
    ending: str = "pdf",
    jobs: int | None = None,
) -> FigureRun:
    """Run the study of a figure in a folder, write its page, and compare with published numbers.

    Finished tasks are not computed again. If there is an `InputError`, its message is the remark of a failed
    run.

    Args:
        quick: whether to use the values of the study's table [quick].
        ending: the file format of the figures: "pdf", "svg" or "png". No figures are written if a package
            that draws is missing.
        jobs: the number of workers of a local Dask cluster. None computes everything in this process.
    """
    needs = f"; it needs {figure.needs}" if figure.needs else ""
    try:
        study = read_study(figure.study, quick=quick)
        study_status = run(study, folder, Backend(jobs=jobs), retry_failed=True, progress=progress)
    except InputError as error:
        return FigureRun(paper, figure, Outcome.FAILED, f"{error}{needs}")
    with open_store(folder) as store:
        results = collect_results(study, store)
    lines = []
    if results:
        parts = [part for result in results for part in (result, result.simulation) if part is not None]
        rows = pl.concat([part.rows for part in parts], how="diagonal_relaxed")
        random_verbs = [name for name, verb in study.verbs.items() if verb.is_random]
        lines = compare(paper.arxiv, figure.study, rows, random_verbs)
        write_report([folder], figures=ending if has_packages() else None)
        if has_packages():
            shown = published_figures(lines, results[0].verb.label)
            write_all(figure_files(shown, figures_directory(folder), ending))
    status, remark = str(Outcome.DONE), None
    if study_status.stopped:
        status, remark = STOPPED, "stopped, but every finished row is kept; run the same command to continue"
    elif study_status.failures:
        first = study_status.failures[0].error
        status, remark = Outcome.FAILED, f"{len(study_status.failures)} tasks failed: {first}{needs}"
    return FigureRun(paper, figure, status, remark, lines, study_status.tasks, study_status.seconds)


def write_comparison(runs: Iterable[FigureRun], path: Path) -> bool:
    """Write the comparisons of all runs to a CSV file. Return False if there are no comparisons to write."""
    table = quantity_frame(COMPARISON, (line for figure_run in runs for line in figure_run.lines))
    if table.height:
        write_all({path: table.write_csv().encode()})
    return table.height > 0
