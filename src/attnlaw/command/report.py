"""`attnlaw report DIR...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlaw.command.options import directory


def command(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="What audits, studies and monitors wrote.", parser=directory),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the page goes; the only DIR unless given.", parser=directory),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(
            metavar="pdf|svg|png", help="Also write every chart for a two-column paper, to figures/."
        ),
    ] = None,
) -> None:
    """Write report.html from saved rows, several runs side by side; nothing is computed anew.

    The same from Python: attnlaw.report.write.write_report([DIR, ...], out=DIR, figures="pdf")
    """
    from attnlaw.command.console import say
    from attnlaw.report.write import write_files

    page, *drawn = write_files(directories, out, figures)
    names = ", ".join(figure.name for figure in drawn)
    also = f" and in {page.parent / 'figures'}: {names}" if drawn else "; no figures: its rows allow none"
    say(f"wrote {page}{also if figures else ''}")
