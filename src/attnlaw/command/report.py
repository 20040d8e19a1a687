"""The command `attnlaw report DIR...`, which writes a page from saved results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from attnlaw.core.errors import InputError
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.render.output_options import ENDINGS, output_option, require_directory_name, require_packages_of
from attnlaw.render.terminal.console import print_message


@settings_dataclass
class Report(Settings):
    """Write one page (report.html) about saved results. Nothing is computed again.

    A directory may hold the results of a command with --out, of a study, or of a training run that attnlaw
    monitored. Several directories are compared side by side.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw report results": "write the page of saved results again",
        "attnlaw report results curves --out both --figures pdf": "put two results on one page, with figures",
    }
    python: ClassVar[str] = 'attnlaw.report.write_report(["results"], figures="pdf") writes the same page.'

    directories: tuple[str, ...] = setting(
        help="Directory with saved results.", positional=True, metavar="DIR"
    )
    out: str | None = output_option(
        None,
        "Directory to write report.html to (default: the directory of results, if there is only one).",
        metavar="DIR",
    )
    figures: str | None = output_option(
        None, "Also save every chart to DIR/figures, sized for a two-column paper.", choices=ENDINGS
    )

    def check(self) -> None:
        require_directory_name(self.out, *self.directories)
        require_packages_of(figures=self.figures)

    def execute(self) -> int:
        from attnlaw.report import write_files

        out = None if self.out is None else Path(self.out)
        failures: list[InputError] = []
        folders = [Path(name) for name in self.directories]
        page, *drawn = write_files(folders, out, self.figures, failures.append)
        for error in failures:
            print_message(f"attnlaw: {error}")
        names = ", ".join(figure.name for figure in drawn)
        also = f" and in {page.parent / 'figures'}: {names}" if drawn else ", but no figures"
        print_message(f"wrote {page}{also if self.figures else ''}")
        return 1 if failures else 0


COMMANDS = {"report": Report}
