"""Options that commands share: how results are shown and where they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnlaw.core.errors import BadSetting
from attnlaw.core.result import Result
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb

OUTPUT = "Output"
# What the file of a figure may end in.
ENDINGS = dict.fromkeys(("pdf", "svg", "png"))


def require_directory_name(*directories: str | None) -> None:
    """A `BadSetting` for a directory without a name, as of a shell variable that is not set."""
    if "" in directories:
        raise BadSetting("out", "found an empty name; give a directory (. is the one you are in)")


@settings_dataclass
class OutputOptions(Settings):
    """How results are shown, the same for every verb."""

    json: bool = setting(False, "Print JSON and nothing else.", panel=OUTPUT)
    out: str | None = setting(None, "Write rows (parquet) and report.html.", metavar="DIR", panel=OUTPUT)
    figures: str | None = setting(
        None,
        "With --out: every chart for a two-column paper, too.",
        choices=ENDINGS,
        requires="out",
        panel=OUTPUT,
    )
    figure: str | None = setting(
        None, "Draw the first chart (.pdf, .svg, .png).", metavar="FILE", panel=OUTPUT
    )

    def check(self) -> None:
        require_directory_name(self.out)
        if self.figure is not None and Path(self.figure).suffix[1:] not in ENDINGS:
            raise BadSetting("figure", f"expected a name that ends in .{', .'.join(ENDINGS)}", self.figure)

    def run_cases(
        self, verb: Verb[Any, Any], cases: Sequence[Any], progress: Callable[..., None]
    ) -> Iterator[Any]:
        """The results of cases, each as it comes, or the `InputError` that it met."""
        return verb.run(cases, progress)

    def short_circuit(self) -> int | None:
        """What an option asks for in place of the verb's work; its exit status, None where none does."""
        return None

    def finish(self, result: Result) -> int:
        """Do what is left with the result of all cases; return the exit status."""
        return 0
