"""The commands `attnlaw study list`, `study new VERB` and `study run|resume|status|export FILE --out DIR`."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from attnlaw import study
from attnlaw.command.report import Report
from attnlaw.core.errors import InputError
from attnlaw.core.result import ROWS
from attnlaw.core.settings import Settings, setting, setting_like, settings_dataclass
from attnlaw.core.words import count_of
from attnlaw.render.output_options import (
    JSON_HELP,
    output_option,
    require_directory_name,
    require_packages_of,
)
from attnlaw.render.terminal.console import (
    Column,
    format_duration,
    output,
    print_json,
    print_message,
    print_table,
    progress,
)
from attnlaw.render.terminal.screen import print_next
from attnlaw.study import Backend, StudyStatus, read_study
from attnlaw.study.export import export
from attnlaw.study.run import Cost
from attnlaw.study.shipped import shipped_studies, study_description
from attnlaw.study.store import open_store
from attnlaw.study.study_file import template
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb

MOST_ERRORS = 5  # different errors that are printed
STOPPED = 130  # exit status after Ctrl-C


@settings_dataclass
class StudyLocation(Settings):
    """A study file, and the directory for the results of the study."""

    file: str = setting(
        help="Study file (TOML), or the name of a study that `attnlaw study list` shows.",
        positional=True,
        metavar="FILE",
    )
    out: str = output_option(
        help="Directory of the study, where attnlaw keeps finished tasks, rows and reports.", metavar="DIR"
    )

    def check(self) -> None:
        require_directory_name(self.out)


@settings_dataclass
class List(Settings):
    """List the studies that come with attnlaw, with their subject and their number of tasks."""

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study list": "see which studies come with attnlaw",
        "attnlaw study list --json": "list the studies and their verbs as JSON",
    }
    python: ClassVar[str] = "attnlaw.study.read_study(NAME) reads a study by its name."

    json: bool = output_option(False, JSON_HELP)

    def execute(self) -> int:
        studies = {name: read_study(name) for name in shipped_studies()}
        abouts = [study_description(study.path) for study in studies.values()]
        if self.json:
            entries = [
                {"study": name, "tasks": len(study.tasks), "verbs": list(study.verbs), "about": about}
                for (name, study), about in zip(studies.items(), abouts, strict=True)
            ]
            print_json(entries)
            return 0
        columns = [
            Column("study", list(studies), is_text=True),
            Column("tasks", [str(len(study.tasks)) for study in studies.values()]),
            Column("about", [about.split(". ")[0].rstrip(".") for about in abouts], is_text=True, wraps=True),
        ]
        print_table(output, columns)
        output.print()
        print_next(
            output, {"attnlaw study run NAME --out DIR": "compute a study; resume it if it is stopped"}
        )
        return 0


@settings_dataclass
class New(Settings):
    """Print a study file to fill in, with the meaning, the values and the default of every key.

    Some verbs have no command and run only in studies, such as two_layer and ensemble.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study new learn > curves.toml": "start a study of learning curves",
        "attnlaw study new audit": "see which settings a study of checkpoints can vary",
    }
    python: ClassVar[str] = "attnlaw.study.study_file.template(verb) returns the same text."

    verb: str = setting(
        help="Command that the study repeats, such as learn.", positional=True, metavar="VERB"
    )

    def execute(self) -> int:
        known = {**VERBS, **STUDY_VERBS}
        if self.verb not in known:
            close = difflib.get_close_matches(self.verb, known, n=1)
            others = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(VERBS)}"
            only = "" if close else f", or of those that run only in studies: {', '.join(STUDY_VERBS)}"
            raise InputError(f"{self.verb}: attnlaw has no computation of this name; {others}{only}")
        sys.stdout.write(template(find_verb(self.verb)))
        return 0


@settings_dataclass
class StudyRunSettings(StudyLocation, Backend):
    """Options that `run` and `resume` share: the study, its directory, and the workers."""

    json: bool = output_option(False, JSON_HELP)

    def check(self) -> None:
        StudyLocation.check(self)
        Backend.check(self)


@settings_dataclass
class Run(StudyRunSettings):
    """Compute the missing tasks of a study, and write its rows to DIR.

    Finished tasks are kept. If you stop the command, run it again to continue.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study run limit-width --out width": "run a study that comes with attnlaw",
        "attnlaw study run curves.toml --out curves --jobs 4": "run your own study in four processes",
    }
    python: ClassVar[str] = "attnlaw.study.run(attnlaw.study.read_study(FILE), DIR) computes the same rows."

    force: bool = setting(False, "Compute all tasks again, including the finished ones.")
    figures: str | None = setting_like(
        Report, "figures", help="Also write report.html, and every chart to DIR/figures."
    )

    def check(self) -> None:
        StudyRunSettings.check(self)
        require_packages_of(figures=self.figures)

    def execute(self) -> int:
        ended = _compute(study.run, self, drawn=self.figures is not None, force=self.force)
        if self.figures is not None and ended != STOPPED:
            Report(directories=(self.out,), out=None, figures=self.figures).execute()
        return ended


@settings_dataclass
class Resume(StudyRunSettings):
    """Continue a study that was stopped, and compute only the missing tasks."""

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study resume limit-width --out width": "continue a study that was stopped",
        "attnlaw study resume limit-width --out width --failed": "continue, and also try failed tasks again",
    }
    python: ClassVar[str] = (
        "attnlaw.study.resume(attnlaw.study.read_study(FILE), DIR) computes the same rows."
    )

    failed: bool = setting(False, "Also run the tasks again that failed before.")

    def execute(self) -> int:
        return _compute(study.resume, self, retry_failed=self.failed)


@settings_dataclass
class Status(StudyLocation):
    """Show how many tasks of a study are done, failed or missing, also while it runs."""

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study status limit-width --out width": "see how many tasks are done",
        "attnlaw study status limit-width --out width --json": "print the same as JSON",
    }
    python: ClassVar[str] = (
        "attnlaw.study.status(attnlaw.study.read_study(FILE), DIR) returns the same counts."
    )

    json: bool = output_option(False, JSON_HELP)

    def execute(self) -> int:
        _print_status(study.status(read_study(self.file), self.out), self)
        return 0


@settings_dataclass
class Export(StudyLocation):
    """Write the finished rows and their tables to DIR, also while the study runs."""

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw study export limit-width --out width": "write all finished rows to files",
        "attnlaw study export curves.toml --out curves": "do the same for your own study",
    }

    def execute(self) -> int:
        study = read_study(self.file)
        with open_store(self.out) as store:
            folders = export(study, store)
        for folder in folders:
            print_message(f"wrote {folder / ROWS}")
        if folders:
            print_next(output, _report_command(self.out))
        else:
            print_message("No task is finished yet, so there is nothing to write.")
        return 0


COMMANDS = {"list": List, "new": New, "run": Run, "resume": Resume, "status": Status, "export": Export}


def _report_command(out: str) -> dict[str, str]:
    return {f"attnlaw report {shlex.quote(out)}": "a page with the figures and all rows"}


def _compute(
    function: Callable[..., StudyStatus], place: StudyRunSettings, drawn: bool = False, **options: bool
) -> int:
    """Compute tasks, print the status, and return the exit status. `drawn`: a page follows anyway."""

    def announce(cost: Cost) -> None:
        tasks = f"{count_of(cost.tasks, 'task')} to compute."
        if cost.first is None or cost.seconds is None:
            print_message(f"{tasks} The first one failed, so attnlaw cannot estimate the time.")
            return
        first, whole = format_duration(cost.first), format_duration(cost.seconds)
        workers = count_of(cost.workers, "worker")
        print_message(f"{tasks} The first took {first}; all will take about {whole} on {workers}.")

    study = read_study(place.file)
    with progress(f"study {Path(place.file).name}") as shown:
        standing = function(study, place.out, place, announce=announce, progress=shown, **options)
    _print_status(standing, place, drawn)
    return STOPPED if standing.stopped else 1 if standing.failures else 0


def _print_status(standing: StudyStatus, place: StudyRunSettings | Status, drawn: bool = False) -> None:
    if place.json:
        print_json(standing.describe())
        return
    state = " A run is computing the missing tasks now." if standing.running else ""
    failed = f", {len(standing.failures)} failed" if standing.failures else ""
    missing = f", {standing.missing} missing" if standing.missing else ""
    tasks = count_of(standing.tasks, "task")
    output.print(f"{standing.done} of {tasks} done{failed}{missing}.{state}", soft_wrap=True)
    again = f"attnlaw study resume {shlex.quote(place.file)} --out {shlex.quote(place.out)}"
    errors = Counter(failure.error for failure in standing.failures).most_common()
    lines = [f"{count_of(count, 'task')} failed: {error}" for error, count in errors[:MOST_ERRORS]]
    if len(errors) > MOST_ERRORS:
        lines.append(f"There are {count_of(len(errors) - MOST_ERRORS, 'other error')}.")
    if standing.failures:
        lines.append(
            f"The column remark shows the error of each failed row. Try them again with: {again} --failed"
        )
    if standing.stopped:
        lines.append(f"Stopped. Every finished row is kept. Continue with: {again}")
    elif standing.missing and not standing.running:
        lines.append(f"Continue with: {again}")
    for line in lines:
        print_message(line)
    if standing.done and not (standing.stopped or standing.missing or drawn):
        print_next(output, _report_command(place.out))
