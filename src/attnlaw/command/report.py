"""The command `attnlaw report DIR...`, which writes a page from saved results."""

from __future__ import annotations

from pathlib import Path

from attnlaw.core.errors import InputError
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.render.output_options import ENDINGS, require_directory_name
from attnlaw.render.terminal.console import print_message


@settings_dataclass
class Report(Settings):
    """Write report.html from saved rows, with several runs side by side. Nothing is computed again.

    The same from Python: attnlaw.report.write_report([DIR, ...], out=DIR, figures="pdf")
    """

    directories: tuple[str, ...] = setting(
        help="What verbs, studies and monitors wrote.", positional=True, metavar="DIR"
    )
    out: str | None = setting(None, "Where the page goes; the only DIR unless given.", metavar="DIR")
    figures: str | None = setting(
        None, "Also write every chart for a two-column paper, to figures/.", choices=ENDINGS
    )

    def check(self) -> None:
        require_directory_name(self.out, *self.directories)

    def execute(self) -> int:
        from attnlaw.report import write_files

        out = None if self.out is None else Path(self.out)
        failures: list[InputError] = []
        folders = [Path(name) for name in self.directories]
        page, *drawn = write_files(folders, out, self.figures, failures.append)
        for error in failures:
            print_message(f"attnlaw: {error}")
        names = ", ".join(figure.name for figure in drawn)
        also = f" and in {page.parent / 'figures'}: {names}" if drawn else "; no figures were drawn"
        print_message(f"wrote {page}{also if self.figures else ''}")
        return 1 if failures else 0


COMMANDS = {"report": Report}
