"""`attnlaw report DIR...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="What audits, studies and monitors wrote.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the page goes; the only DIR unless given.")
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
    from attnlaw.cli.console import messages
    from attnlaw.errors import printable
    from attnlaw.report.write import write_report

    page = write_report(directories, out, figures)
    also = f" and {page.parent / 'figures'}" if figures else ""
    messages.print(printable(f"wrote {page}{also}"), markup=False, soft_wrap=True)
