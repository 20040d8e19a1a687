"""`attnlaw study run|status|resume|export FILE --out DIR`"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnlaw.command.options import directory

if TYPE_CHECKING:
    from attnlaw.study.file import Study
    from attnlaw.study.places import Place
    from attnlaw.study.run import Cost, Standing

app = typer.Typer(
    help="Sweeps that run in process or on a cluster, and never lose a row.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
ENGINE = "Where it runs"
File = Annotated[Path, typer.Argument(metavar="FILE", help="The study (TOML); see docs/scale.md.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where the store and the rows are.", parser=directory)]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Workers of a local Dask cluster, or on Slurm.", rich_help_panel=ENGINE),
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A running Dask cluster: tcp://HOST:PORT.", rich_help_panel=ENGINE),
]
Slurm = Annotated[
    str | None,
    typer.Option(
        metavar="partition=...,cores=...",
        help="Slurm jobs: also memory, walltime, account, interface; needs --jobs for their number.",
        rich_help_panel=ENGINE,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command("run")
def run_command(
    file: File,
    out: Out,
    jobs: Jobs = None,
    dask: Dask = None,
    slurm: Slurm = None,
    force: Annotated[bool, typer.Option("--force", help="Compute everything anew.")] = False,
    json: Json = False,
) -> None:
    """Compute what is missing of a study and export its rows to DIR/rows.

    The same from Python: attnlaw.study.run(read_study(FILE), DIR, Place(jobs=...), force=...)
    """
    from attnlaw.study import Place, run

    _compute(run, file, out, Place(jobs=jobs, dask=dask, slurm=slurm), json, force=force)


@app.command("resume")
def resume_command(
    file: File,
    out: Out,
    jobs: Jobs = None,
    dask: Dask = None,
    slurm: Slurm = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also try what failed once more.")] = False,
    json: Json = False,
) -> None:
    """Go on with a study that was stopped or killed: only what is missing is computed.

    The same from Python: attnlaw.study.resume(read_study(FILE), DIR, Place(...), retry_failed=...)
    """
    from attnlaw.study import Place, resume

    _compute(resume, file, out, Place(jobs=jobs, dask=dask, slurm=slurm), json, retry_failed=failed)


@app.command("status")
def status_command(file: File, out: Out, json: Json = False) -> None:
    """How far a study has come, also while it runs.

    The same from Python: attnlaw.study.status(read_study(FILE), DIR)
    """
    from attnlaw.command.console import print_json
    from attnlaw.study.run import status

    report = status(_read(file), out)
    if json:
        print_json(report.describe())
        return
    _tell(report, file, out)


@app.command("export")
def export_command(file: File, out: Out) -> None:
    """Write the finished rows to DIR/rows and the tables to DIR/tables, also while the study runs.

    The same from Python: attnlaw.study.export.export(read_study(FILE), store)
    """
    from attnlaw.command.console import say
    from attnlaw.study.export import export
    from attnlaw.study.store import open_store

    study = _read(file)
    with open_store(out) as store:
        written = export(study, store)
    say(f"wrote {written}")


def _read(file: Path) -> Study:
    from attnlaw.study.file import read_study

    return read_study(file)


def _compute(
    function: Callable[..., Standing], file: Path, out: Path, place: Place, json: bool, **options: bool
) -> None:
    from attnlaw.command.console import print_json, progress, say

    study = _read(file)
    with progress(f"study {file.name}") as shown:
        report = function(
            study,
            out,
            place,
            announce=lambda cost: say(_cost(cost)),
            progress=shown,
            **options,
        )
    if json:
        print_json(report.describe())
    else:
        _tell(report, file, out)
    if report.stopped or report.failures:
        raise typer.Exit(130 if report.stopped else 1)


def _cost(cost: Cost) -> str:
    """What a run will cost, in a line."""
    tasks = f"{cost.tasks} task{'s' if cost.tasks > 1 else ''} to compute"
    if cost.first is None or cost.seconds is None:
        return f"{tasks}; the first one failed, so there is no estimate of the time"
    workers = f"{cost.workers} worker{'s' if cost.workers > 1 else ''}"
    return f"{tasks}; the first took {_time(cost.first)}, all take about {_time(cost.seconds)} on {workers}"


def _time(seconds: float) -> str:
    """Seconds as a person says them.

    >>> [_time(seconds) for seconds in (0.0123, 3.21, 150.0, 9000.0, 400000.0)]
    ['12 ms', '3.2 s', '2.5 min', '2.5 h', '4.6 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1g} ms"


def _tell(report: Standing, file: Path, out: Path) -> None:
    """Where the study stands, what failed, and what to do next."""
    from attnlaw.command.console import output, say
    from attnlaw.study.run import reasons

    state = ", a run is at work" if report.running else ""
    failed = f", {len(report.failures)} failed" if report.failures else ""
    missing = f", {report.missing} missing" if report.missing else ""
    output.print(f"{report.done} of {report.tasks} tasks done{failed}{missing}{state}", soft_wrap=True)
    again = f"attnlaw study resume {shlex.quote(str(file))} --out {shlex.quote(str(out))}"
    lines = reasons(report.failures)
    if report.failures:
        lines.append(f"the failed rows carry their error; retry them with: {again} --failed")
    if report.stopped:
        lines.append(f"stopped; every finished row is kept; go on with: {again}")
    elif report.missing and not report.running:
        lines.append(f"go on with: {again}")
    for line in lines:
        say(line)
