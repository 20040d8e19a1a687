"""`attnlaw report DIR...`: a page of whatever attnlaw wrote."""

from __future__ import annotations

from pathlib import Path

from attnlaw.base.charts import ENDINGS
from attnlaw.base.settings import Settings, setting, settings
from attnlaw.command.perform import require_named


@settings
class Report(Settings):
    """Write report.html from saved rows, several runs side by side; nothing is computed anew.

    The same from Python: attnlaw.report.write.write_report([DIR, ...], out=DIR, figures="pdf")
    """

    directories: tuple[str, ...] = setting(
        help="What verbs, studies and monitors wrote.", positional=True, metavar="DIR"
    )
    out: str | None = setting(None, "Where the page goes; the only DIR unless given.", metavar="DIR")
    figures: str | None = setting(
        None,
        "Also write every chart for a two-column paper, to figures/.",
        choices=ENDINGS,
    )

    def check(self) -> None:
        require_named(self.out, *self.directories)


def report(asked: Report) -> int:
    from attnlaw.command.console import say
    from attnlaw.report.write import write_files

    out = None if asked.out is None else Path(asked.out)
    page, *drawn = write_files([Path(name) for name in asked.directories], out, asked.figures)
    names = ", ".join(figure.name for figure in drawn)
    also = f" and in {page.parent / 'figures'}: {names}" if drawn else "; no figures: its rows allow none"
    say(f"wrote {page}{also if asked.figures else ''}")
    return 0


COMMANDS = {"report": (Report, report)}
