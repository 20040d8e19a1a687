"""The command `attnlaw reproduce [list | PAPER | FIGURE] --out DIR`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text

from attnlaw.core.errors import BadSetting
from attnlaw.core.estimate import Outcome
from attnlaw.core.settings import Settings, setting, setting_like, settings_dataclass
from attnlaw.render.charts.packages import has_packages, warn_without_packages
from attnlaw.render.output_options import ENDINGS, JSON_HELP, output_option, require_directory_name
from attnlaw.render.terminal.console import Column, output, print_json, print_message, print_table, progress
from attnlaw.render.terminal.screen import print_definitions, print_hanging, print_next
from attnlaw.reproduce.papers import (
    OTHER_SETUP,
    OTHER_SETUP_MEANS,
    PAPERS,
    UNTESTED,
    find_figures,
    published_lines,
)
from attnlaw.verbs.workers import Workers

if TYPE_CHECKING:
    from attnlaw.reproduce.run import FigureRun

LIST = "list"
ROUNDING = 1e-12  # a smaller relative difference is that of rounding
LEAST_SHOWN = 1e-5  # smaller relative differences are not written out


@settings_dataclass
class Reproduce(Settings):
    """Repeat the figures of a paper, and compare our numbers with the published ones.

    attnlaw writes a directory for each figure (rows, report.html, figures/) to DIR, and the comparison as
    published.csv. Finished results are kept. If you stop the command, run it again to continue.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw reproduce list": "see all papers and figures",
        "attnlaw reproduce learn-curves --quick --out curves": "repeat one figure with fewer points",
    }

    name: str | None = setting(
        None,
        "Paper (such as 2506.01582) or figure (such as learn-tokens) to repeat; list shows all of "
        "them (default).",
        positional=True,
        metavar="NAME",
    )
    out: str | None = output_option(
        None, "Directory for the results, the figures and the table that compares the numbers.", metavar="DIR"
    )
    quick: bool = setting(
        False,
        "Use fewer random draws and points, and skip large figures, so that each paper takes at most "
        "two minutes.",
    )
    figures: str = output_option("pdf", "File format of the figures.", choices=ENDINGS)
    jobs: int | None = setting_like(
        Workers, "jobs", help="Number of worker processes (default: compute in this process)."
    )
    json: bool = output_option(False, JSON_HELP)

    def check(self) -> None:
        require_directory_name(self.out)
        if self.name is None or self.name == LIST:
            return
        find_figures(self.name)
        if self.out is None:
            raise BadSetting("out", f"is missing; type attnlaw reproduce {self.name} --out DIR")

    def execute(self) -> int:
        if self.name in (None, LIST) or self.out is None:
            return _list(self.json)
        from attnlaw.reproduce.run import STOPPED, run_figure, write_comparison

        if not has_packages():
            warn_without_packages()
        runs: list[FigureRun] = []
        for paper, figure in find_figures(str(self.name)):
            if self.quick and figure.large and self.name != figure.study:
                again = f"attnlaw reproduce {figure.study} --out DIR"
                print_message(f"{figure.study}: a quick run leaves this out. Compute it with: {again}")
                continue
            folder = Path(self.out) / figure.study
            with progress(f"{paper.arxiv} {figure.study}") as report:
                figure_run = run_figure(
                    paper, figure, folder, report, quick=self.quick, ending=self.figures, jobs=self.jobs
                )
            runs.append(figure_run)
            if not self.json:
                _show(figure_run)
            if figure_run.remark:
                print_message(f"{figure.study}: {figure_run.remark}")
            if figure_run.status == STOPPED:
                break
        path = Path(self.out) / "published.csv"
        is_written = write_comparison(runs, path)
        if self.json:
            print_json([figure_run.describe(self.quick) for figure_run in runs])
        elif is_written:
            print_message(f"wrote {path}")
        for paper in dict.fromkeys(figure_run.paper for figure_run in runs):
            print_message(f"{paper.arxiv}: compared with {paper.compared}.")
        if not self.json:
            out = shlex.quote(self.out)
            whole = {
                f"attnlaw reproduce {self.name} --out {out}": "the same figure with all points and draws"
            }
            print_next(output, whole if self.quick else {"attnlaw reproduce list": "all papers and figures"})
        statuses = {figure_run.status for figure_run in runs}
        return 130 if STOPPED in statuses else 1 if Outcome.FAILED in statuses else 0


COMMANDS = {"reproduce": Reproduce}


def _show(figure_run: FigureRun) -> None:
    figure, lines = figure_run.figure, figure_run.lines
    output.print(Text(f"{figure_run.paper.arxiv} {figure.study}: {figure.about}", style="bold"))
    if not lines:
        if figure_run.status == Outcome.DONE:
            tasks = f"{figure_run.tasks} {'task' if figure_run.tasks == 1 else 'tasks'}"
            text = f"{tasks} done. There are no published numbers to compare with."
            output.print(Text(text, style="dim"))
        return
    print_hanging(output, Text(), _agreement(lines))
    labels = [[line["quantity"].replace("_", " "), *filter(None, line["case"].split("; "))] for line in lines]
    shared = [word for word in labels[0] if all(word in words for words in labels)] if len(labels) > 1 else []
    if shared:
        output.print(Text(", ".join(shared), style="dim"))
    percents = [_percent(line["difference"]) for line in lines]
    kinds = {"beside": OTHER_SETUP}
    whose = {kinds.get(line["kind"], line["kind"]) for line in lines}
    cases = [", ".join(word for word in words if word not in shared) for words in labels]
    number = next(iter(whose)) if len(whose) == 1 else "number"
    columns = [
        Column("", cases, is_text=True),
        Column("whose", [kinds.get(line["kind"], line["kind"]) for line in lines], is_text=True),
        Column(number, [str(line["published"]) for line in lines]),
        Column("attnlaw", [str(line["ours"]) for line in lines]),
        Column("difference", percents),
        Column("z", ["" if line["z"] is None else f"{line['z']:+.2f}" for line in lines]),
    ]
    empty = {column.title for column in columns if column.title and not any(column.cells)}
    alone = {"whose"} if len(whose) == 1 else set()  # then the next column has the word as its title
    kept = [column for column in columns if column.title not in empty | alone]
    print_table(output, kept, ("difference",))
    if any(line["kind"] == "beside" for line in lines):
        output.print(Text(OTHER_SETUP_MEANS))
    if figure.note:
        output.print(Text(figure.note))


def _percent(difference: float | None) -> str:
    if difference is None:
        return ""
    if abs(difference) <= ROUNDING:
        return "equal"
    if abs(difference) < LEAST_SHOWN:
        return f"<{100 * LEAST_SHOWN:g}%"
    return f"{100 * difference:+.2g}%" if abs(difference) < 1 else f"{100 * difference:+.0f}%"


def _agreement(lines: Sequence[Mapping[str, Any]]) -> str:
    tested = [line for line in lines if line["kind"] not in UNTESTED]
    scores = [abs(line["z"]) for line in tested if line["z"] is not None]
    known = [line for line in tested if line["difference"] is not None]
    if not known:
        return f"{len(lines)} numbers are shown for comparison, but none of them can be tested."
    largest = max((abs(line["difference"]) for line in known), default=0.0)
    numbers = "One number" if len(tested) == 1 else f"{len(tested)} numbers"
    most = _percent(largest).lstrip("+").replace("<", "below ")
    text = (
        f"{numbers} compared: {'no difference' if most == 'equal' else f'the largest difference is {most}'}"
    )
    if scores:
        text += f"; the largest, in standard errors (z), is {max(scores):.1f}"
    return f"{text}."


def _list(json: bool) -> int:
    entries: list[dict[str, Any]] = []
    rows: list[tuple[str | Text, str | Text, str]] = []
    for paper in PAPERS:
        rows.append((Text(paper.arxiv, style="bold"), Text(paper.title, style="bold"), ""))
        rows.append(("  compared with", Text(paper.compared, style="dim"), ""))
        if paper.command:
            rows.append(("  command", paper.command, ""))
        for figure in paper.figures:
            count = len(published_lines(figure.study))
            rows.append((f"  {figure.study}", figure.about, str(count or "")))
            names = {"paper": paper.arxiv, "title": paper.title, "figure": figure.study}
            known = {"about": figure.about, "numbers": count, "needs": figure.needs or None}
            entries.append({**names, **known, "compared": paper.compared, "note": figure.note or None})
        if not paper.figures:
            known = {"figure": None, "compared": paper.compared, "command": paper.command}
            entries.append({"paper": paper.arxiv, "title": paper.title, **known})
    if json:
        print_json(entries)
        return 0
    figures, abouts, counts = zip(*rows, strict=True)
    about = Column("about", abouts, is_text=True, wraps=True)
    print_table(output, [Column("figure", figures, is_text=True), about, Column("numbers", counts)])
    meaning = "how many published or reference numbers attnlaw compares with its results"
    output.print()
    print_definitions(output, {"numbers": meaning})
    output.print()
    print_next(output, {"attnlaw reproduce learn-curves --quick --out curves": "repeat one figure"})
    return 0
