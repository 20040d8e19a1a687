"""`attnlaw study list|new VERB` and `attnlaw study run|resume|status|export FILE --out DIR`"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.command.report import Report, report
from attnlaw.core.output_options import require_directory_name
from attnlaw.core.settings import Settings, setting, setting_like, settings_dataclass
from attnlaw.study.backends import Backend

if TYPE_CHECKING:
    from attnlaw.study.file import Study
    from attnlaw.study.run import Cost, StudyStatus

STOPPED = 130  # the exit status of what Ctrl-C ended


@settings_dataclass
class StudyLocation(Settings):
    """A study file and the directory of its rows."""

    file: str = setting(
        help="The study (TOML, see docs/scale.md), or a name of study list.", positional=True, metavar="FILE"
    )
    out: str = setting(help="Where the store and the rows are.", metavar="DIR")

    def check(self) -> None:
        require_directory_name(self.out)

    def read(self) -> Study:
        from attnlaw.study.file import read_study

        return read_study(self.file)


@settings_dataclass
class List(Settings):
    """The studies that come with attnlaw: what each is about, of how many tasks, and its paper.

    Each runs by its name: attnlaw study run NAME --out DIR. The same from Python: read_study(NAME)
    """

    json: bool = setting(False, "Print JSON and nothing else.")


@settings_dataclass
class New(Settings):
    """Print a study file to fill in: every key of a verb with its meaning, what it may be, and its default.

    The same from Python: attnlaw.study.template.template(verb)
    """

    verb: str = setting(help="A verb, also one of studies alone.", positional=True, metavar="VERB")


@settings_dataclass
class StudyRunSettings(StudyLocation, Backend):
    """What `run` and `resume` share: where the tasks are computed."""

    json: bool = setting(False, "Print JSON and nothing else.")

    def check(self) -> None:
        StudyLocation.check(self)
        Backend.check(self)

    @property
    def backend(self) -> Backend:
        return Backend(jobs=self.jobs, dask=self.dask, slurm=self.slurm)


@settings_dataclass
class Run(StudyRunSettings):
    """Compute what is missing of a study and export its rows to DIR.

    The same from Python: attnlaw.study.run(read_study(FILE), DIR, Backend(jobs=...), force=...), and for
    figures attnlaw.report.write.write_report([DIR], figures="png")
    """

    force: bool = setting(False, "Compute everything anew.")
    figures: str | None = setting_like(
        Report, "figures", help="Also write report.html, and every chart to figures/."
    )


@settings_dataclass
class Resume(StudyRunSettings):
    """Go on with a study that was stopped or killed: only what is missing is computed.

    The same from Python: attnlaw.study.resume(read_study(FILE), DIR, Backend(...), retry_failed=...)
    """

    failed: bool = setting(False, "Also try what failed once more.")


@settings_dataclass
class Status(StudyLocation):
    """How far a study has come, also while it runs.

    The same from Python: attnlaw.study.status(read_study(FILE), DIR)
    """

    json: bool = setting(False, "Print JSON and nothing else.")


@settings_dataclass
class Export(StudyLocation):
    """Write the finished rows and their tables to DIR, also while the study runs.

    The same from Python: attnlaw.study.export.export(read_study(FILE), store)
    """


def list_shipped(options: List) -> int:
    from rich.table import Table
    from rich.text import Text

    from attnlaw.render.terminal.console import output, print_json
    from attnlaw.study.file import read_study
    from attnlaw.study.shipped import shipped_studies, study_description

    entries: list[dict[str, Any]] = [
        {
            "study": name,
            "tasks": len(study.tasks),
            "verbs": list(study.verbs),
            "about": study_description(study.path),
        }
        for name in shipped_studies()
        for study in (read_study(name),)
    ]
    if options.json:
        print_json(entries)
        return 0
    table = Table("study", box=None, pad_edge=False)
    table.add_column("tasks", justify="right")
    table.add_column("about", overflow="fold")
    for entry in entries:
        table.add_row(entry["study"], str(entry["tasks"]), Text(entry["about"].split(". ")[0].rstrip(".")))
    output.print(table)
    return 0


def new(options: New) -> int:
    import sys

    from attnlaw.study.template import template
    from attnlaw.verbs import find_verb

    sys.stdout.write(template(find_verb(options.verb)))
    return 0


def run(options: Run) -> int:
    from attnlaw.study.run import run

    ended = _compute(run, options, force=options.force)
    if options.figures is not None and ended != STOPPED:
        report(Report(directories=(options.out,), out=None, figures=options.figures))
    return ended


def resume(options: Resume) -> int:
    from attnlaw.study.run import resume

    return _compute(resume, options, retry_failed=options.failed)


def status(options: Status) -> int:
    from attnlaw.study.run import status

    _print_status(status(options.read(), options.out), options, options.json)
    return 0


def export(options: Export) -> int:
    from attnlaw.core.result import ROWS
    from attnlaw.render.terminal.console import print_message
    from attnlaw.study.export import export
    from attnlaw.study.store import open_store

    study = options.read()
    with open_store(options.out) as store:
        folders = export(study, store)
    for folder in folders:
        print_message(f"wrote {folder / ROWS}")
    if not folders:
        print_message("no task is finished yet: there is nothing to write")
    return 0


COMMANDS = {
    "list": (List, list_shipped),
    "new": (New, new),
    "run": (Run, run),
    "resume": (Resume, resume),
    "status": (Status, status),
    "export": (Export, export),
}


def _compute(function: Callable[..., StudyStatus], run_settings: StudyRunSettings, **options: bool) -> int:
    from attnlaw.render.terminal.console import print_message, progress

    study, place = run_settings.read(), run_settings.backend
    with progress(f"study {Path(run_settings.file).name}") as shown:
        standing = function(
            study,
            run_settings.out,
            place,
            announce=lambda cost: print_message(_cost_line(cost)),
            progress=shown,
            **options,
        )
    _print_status(standing, run_settings, run_settings.json)
    return STOPPED if standing.stopped else 1 if standing.failures else 0


def _cost_line(cost: Cost) -> str:
    """What a run will cost, in a line."""
    tasks = f"{cost.tasks} task{'s' if cost.tasks > 1 else ''} to compute"
    if cost.first is None or cost.seconds is None:
        return f"{tasks}; the first one failed, so there is no estimate of the time"
    workers = f"{cost.workers} worker{'s' if cost.workers > 1 else ''}"
    first, whole = format_duration(cost.first), format_duration(cost.seconds)
    return f"{tasks}; the first took {first}, all take about {whole} on {workers}"


def format_duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> [format_duration(seconds) for seconds in (0.0123, 3.21, 150.0, 9000.0, 400000.0)]
    ['12 ms', '3.2 s', '2.5 min', '2.5 h', '4.6 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1g} ms"


def _print_status(study_status: StudyStatus, location: Any, json: bool) -> None:
    """Where the study stands, what failed, and what to do next."""
    from attnlaw.render.terminal.console import output, print_json, print_message
    from attnlaw.study.run import failure_lines

    if json:
        print_json(study_status.describe())
        return
    state = ", a run is at work" if study_status.running else ""
    failed = f", {len(study_status.failures)} failed" if study_status.failures else ""
    missing = f", {study_status.missing} missing" if study_status.missing else ""
    output.print(
        f"{study_status.done} of {study_status.tasks} tasks done{failed}{missing}{state}", soft_wrap=True
    )
    again = f"attnlaw study resume {shlex.quote(location.file)} --out {shlex.quote(location.out)}"
    lines = failure_lines(study_status.failures)
    if study_status.failures:
        lines.append(f"the failed rows carry their error; retry them with: {again} --failed")
    if study_status.stopped:
        lines.append(f"stopped; every finished row is kept; go on with: {again}")
    elif study_status.missing and not study_status.running:
        lines.append(f"go on with: {again}")
    for line in lines:
        print_message(line)
