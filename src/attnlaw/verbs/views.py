"""Show, draw, save and load results, with the parts of a verb's folder (see CONTRIBUTING.md) or generic
views."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attnlaw.core.answer import Answer
from attnlaw.core.errors import InputError, as_input_error, require_some
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import (
    figures_directory,
    read_json,
    require_replaceable,
    writable_directory,
    write_all,
)
from attnlaw.core.progress import Progress
from attnlaw.core.result import MANIFEST, ROWS, SIMULATION, SUMMARY, Result
from attnlaw.core.verb import Verb
from attnlaw.core.version import require_readable_version
from attnlaw.render.charts.packages import has_packages, require_packages, warn_without_packages
from attnlaw.render.terminal.console import notebook_progress, output, print_message
from attnlaw.render.terminal.screen import typed_options
from attnlaw.verbs import find_verb, verb_module

if TYPE_CHECKING:
    from rich.console import Console

    from attnlaw.render.charts.figure import Figure

PAGE = "report.html"
progress = notebook_progress  # `core.verb`, which cannot import `render`, takes it from here
STORE = "store.sqlite"  # the store of a study, in the directory of its rows


def find_part(verb: Verb[Any, Any], name: str) -> ModuleType | None:
    """Import a file of a verb's folder, such as `charts`. Return None if there is no such file."""
    module = verb_module(verb.name)
    package = import_module(module)
    if not hasattr(package, "__path__") or find_spec(f"{module}.{name}") is None:
        return None
    return import_module(f"{module}.{name}")


def answer_of(result: Result) -> Answer | None:
    """Return the answer of a verb, or None if the verb has none or no case was computed."""
    part = find_part(result.verb, "answer")
    if part is None or not (result.rows["status"] != Outcome.FAILED).any():
        return None
    answer: Answer = part.answer(result)
    return answer


def show(result: Result, console: Console | None = None, details: bool = False) -> None:
    """Print a result as its command does, with the error of each failed case. `details` shows all."""
    terminal, console = find_part(result.verb, "terminal"), console or output
    if terminal is None:
        show_end(result, console, details)
        return
    shown, show_case = [], getattr(terminal, "show_case", lambda *_: None)
    for part in filter(None, (result, result.simulation)):
        for case in part:
            if case.row()["status"] == Outcome.FAILED:
                print_message(f"attnlaw: {case.row()['remark']}")
            else:
                show_case(case, console, details)
                shown += [case] if part is result else []
    if shown:
        show_end(replace(Result.concat(shown), simulation=result.simulation), console, details)


def show_end(result: Result, console: Console, details: bool = False) -> None:
    """Print what follows the last case, or the whole result of a verb without `terminal.py`."""
    terminal = find_part(result.verb, "terminal")
    with typed_options(["--details"] if details else []):
        if terminal is None:
            from attnlaw.render.terminal.view import show

            show(result, console, answer_of(result), details)
        elif hasattr(terminal, "show_summary"):
            terminal.show_summary(result, console, details)


def figures_of(result: Result) -> list[Figure]:
    """Return the declared figures. Otherwise, draw the first quantity, or the simulation alone."""
    from attnlaw.render.charts.figure import Figure, number_duplicates
    from attnlaw.render.charts.lines import first_quantity

    if result.simulation is not None and (result.rows["status"] == "failed").all():
        return figures_of(result.simulation)
    module = find_part(result.verb, "charts")
    drawn: list[Figure] = []
    for name in result.verb.charts:
        figures = getattr(module, name)(result)
        drawn += [figures] if isinstance(figures, Figure) else figures or ()
    return number_duplicates(drawn or first_quantity(result))


def page_of(result: Result, figures: Sequence[Figure]) -> str:
    """Return the content of report.html."""
    from attnlaw.render.pages.page import Part, results_page

    part = find_part(result.verb, "page")
    if part is None or not (result.rows["status"] != "failed").any():
        return results_page([Part([result], figures)], answer=answer_of(result))
    html: str = part.page(result, figures)
    return html


def notebook_html(result: Result) -> str:
    """Return the HTML that a notebook shows: the verb's special view, or its quantities."""
    from attnlaw.render.pages.notebook import result_html

    special = getattr(find_part(result.verb, "page"), "notebook_html", None)
    return str(result_html(result, answer_of(result)) if special is None else special(result))


def plot(result: Result, name: str | None = None) -> Any:
    """Return the chart of this name, or the first chart. A notebook can show the chart without a network."""
    from attnlaw.render.charts.style import offline_chart

    return offline_chart(figure_to_plot(result, name).draw())


def figure_to_plot(result: Result, name: str | None = None) -> Figure:
    """Return the figure of this name, or the first figure. Raise an `InputError` if nothing can be drawn."""
    drawn = {figure.name: figure for figure in figures_of(result.for_plotting())}
    if not drawn:
        raise InputError(
            f"{result.verb.name}: there is nothing to draw; compute several cases, for example a range of "
            "values"
        )
    if name is not None and name not in drawn:
        raise InputError(f"{result.verb.name}: found no chart {name!r}; expected one of {', '.join(drawn)}")
    return drawn[name or next(iter(drawn))]


def save(result: Result, directory: str | os.PathLike[str], figures: str | None, progress: Progress) -> Path:
    """Write the files of a result and report.html, as `Result.save` describes.

    Rows and tables are written before anything is drawn. Then the files of an older result in the directory
    are removed, including its page.
    """
    from attnlaw.render.charts.paper import figure_files

    if figures is not None:
        require_packages("saving figures")
    folder = result_directory(directory, result.verb)
    page = require_replaceable(folder / PAGE)
    figures_folder = None if figures is None else figures_directory(folder)
    whole = result.for_saving(progress)
    replace_files(folder, {require_replaceable(folder / name): data for name, data in whole.files().items()})
    page.unlink(missing_ok=True)
    drawn = figures_of(whole)
    if any(figure.on_page for figure in drawn) and not has_packages():
        warn_without_packages()
    contents = {page: page_of(whole, drawn).encode()}
    if figures_folder is not None and figures is not None:
        contents |= figure_files(drawn, figures_folder, figures)
    write_all(contents)
    return folder


def result_directory(path: str | os.PathLike[str], verb: Verb[Any, Any]) -> Path:
    """Return the directory for a result, which is created if needed.

    Raise an `InputError` if it has a study, or a summary.json that is not part of a result.
    """
    folder = writable_directory(path)
    if (folder / STORE).exists():
        raise InputError(
            f"{folder}: this directory has a study, which results would overwrite; choose another directory"
        )
    require_replaceable(folder / MANIFEST)
    if verb.summary is not None:
        _require_own_summary(folder, written_files(folder))
    return folder


def _require_own_summary(folder: Path, written: Sequence[Path]) -> None:
    if (folder / SUMMARY).exists() and folder / SUMMARY not in written:
        raise InputError(f"{folder}: has a {SUMMARY} that attnlaw did not write; choose an empty directory")


def replace_files(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write the files of a result into a directory, and remove the files of an older result."""
    before = written_files(folder)
    if folder / SUMMARY in contents:
        _require_own_summary(folder, before)
    write_all(contents)
    for path in before:
        if path not in contents:
            path.unlink(missing_ok=True)


def written_files(folder: Path) -> list[Path]:
    """Return the paths of all files that the result in a directory can have. Without a result, return []."""
    if not (folder / MANIFEST).exists():
        return []
    names = [MANIFEST, ROWS]
    with suppress(InputError):
        verb = _find_written_verb(folder, _read_manifest(folder))
        names += [] if verb.summary is None else [SUMMARY]
        names += [] if verb.simulation is None else [SIMULATION]
        specs = [*verb.tables, *(() if verb.simulation is None else verb.simulation.tables)]
        names += [f"{spec.name}.parquet" for spec in specs]
    return [folder / name for name in names]


def load(directory: str | os.PathLike[str]) -> Result:
    """Read a result from a directory that a command, a study, a monitor or `Result.save` wrote.

    Args:
        directory: A directory with the file attnlaw.json.

    Returns:
        The same result, but without the records (Python objects). Its tables and quantities are attributes as
        before.

    >>> import attnlaw
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = attnlaw.learn(alpha=0.3).save(folder)
    ...     attnlaw.load(folder).rows["alpha"].to_list()
    [0.3]
    """
    folder = Path(directory)
    with as_input_error(f"{folder}: cannot be read", "give a directory that attnlaw wrote"):
        known, running = (folder / MANIFEST).exists(), (folder / STORE).exists()
    if not known and running and not (folder / "rows").exists():  # where 0.2.0 had the rows of a study
        raise InputError(
            f"{folder}: this directory has a study without exported rows; once a task is finished, run: "
            f"attnlaw study export FILE --out {folder}"
        )
    if not known:
        problem = (
            f"this directory has no results of attnlaw 0.3 ({MANIFEST} is missing)"
            if folder.is_dir()
            else "is a file"
        )
        problem = problem if folder.exists() else "no such directory"
        raise InputError(
            f"{folder}: {problem}; expected a directory that a command with --out, a study or a training run "
            "wrote"
        )
    document = _read_manifest(folder)
    path, name = folder / MANIFEST, document["verb"]
    require_readable_version(document.get("version"), str(path), f"run attnlaw {name} ... again")
    verb = _find_written_verb(folder, document)
    command = "attnlaw study export FILE" if running else f"attnlaw {verb.name} ..."
    remedy = f"write it again with: {command} --out {folder}"
    lines = document.get("lines", {})
    if not isinstance(lines, dict):
        raise InputError(f"{path}: the list of files is missing; {remedy}")
    for file in lines:
        require_some((folder / file).exists(), folder, f"file {file}", remedy)
    result = Result.open(folder, verb, remedy)
    for file, frame in result.frames.items():
        if frame.height != lines.get(file, frame.height):
            raise InputError(f"{folder / file}: found {frame.height} lines, expected {lines[file]}; {remedy}")
    return result


def _read_manifest(folder: Path) -> dict[str, Any]:
    document = read_json(folder / MANIFEST, "write the directory again")
    if not isinstance(document, dict) or not isinstance(document.get("verb"), str):
        raise InputError(f"{folder / MANIFEST}: the name of the verb is missing; write the directory again")
    return document


def _find_written_verb(folder: Path, document: Mapping[str, Any]) -> Verb[Any, Any]:
    try:
        return find_verb(document["verb"])
    except InputError as error:
        message = f"{folder / MANIFEST}: {error}; or read it with the version of attnlaw that wrote it"
        raise InputError(message) from error
