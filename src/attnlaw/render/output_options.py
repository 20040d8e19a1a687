"""Options that all commands share: how results are shown and where they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.result import Result
from attnlaw.core.settings import OptionPanel, Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb
from attnlaw.render.charts.packages import require_packages

ENDINGS = dict.fromkeys(("pdf", "svg", "png"))  # the possible endings of a figure's file
JSON_HELP = "Print JSON and nothing else."
output_option = partial(setting, panel=OptionPanel.OUTPUT)
Records = Iterator[Any]
Failure = tuple[Any, InputError]  # a case and its error


def require_directory_name(*directories: str | None) -> None:
    """Raise a `BadSetting` for an empty directory name. An empty shell variable causes one."""
    if "" in directories:
        raise BadSetting("out", "found an empty name; give a directory (a dot means the current directory)")


def require_packages_of(**options: str | None) -> None:
    """Raise an `InputError` if the user requests figures but the packages that draw are missing."""
    for name, value in options.items():
        if value is not None:
            require_packages(as_option(name))


@settings_dataclass
class OutputOptions(Settings):
    """The options for showing and saving results, which all verbs share."""

    details: bool = output_option(False, "Show every number that attnlaw computed, not only the summary.")
    json: bool = output_option(False, JSON_HELP)
    out: str | None = output_option(
        None,
        "Write an interactive report (report.html) and tables (parquet) to this directory.",
        metavar="DIR",
    )
    figures: str | None = output_option(
        None,
        "With --out, also save every chart to DIR/figures, sized for a two-column paper. Needs "
        "attnlaw[charts].",
        choices=ENDINGS,
        requires="out",
    )
    figure: str | None = output_option(
        None, "Save the main chart as this file (.pdf, .svg or .png). Needs attnlaw[charts].", metavar="FILE"
    )

    def check(self) -> None:
        require_directory_name(self.out)
        if self.figure is not None and Path(self.figure).suffix[1:] not in ENDINGS:
            raise BadSetting("figure", f"expected a name that ends in .{', .'.join(ENDINGS)}", self.figure)
        require_packages_of(figure=self.figure, figures=self.figures)

    def run_cases(self, verb: Verb[Any, Any], cases: Sequence[Any], progress: Callable[..., None]) -> Records:
        """Yield the record (or the `InputError`) of each case as soon as it is computed."""
        return verb.run(cases, progress)

    def short_circuit(self) -> int | None:
        """Run an option that replaces the verb, if given. Return its exit status, or None."""
        return None

    def interruptible(self, verb: Verb[Any, Any]) -> AbstractContextManager[None]:
        """Return a context manager for the whole run, which may keep finished parts for the next run."""
        return nullcontext()

    def finish(self, result: Result, failures: Sequence[Failure] = ()) -> int:
        """Do more with the result and the failed cases, such as writing reports. Return the exit status."""
        return 0
