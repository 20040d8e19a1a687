"""The command line: parse, call one library function, write. One file per verb."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """Run `attnlaw`; bad input ends in one line on standard error and exit status 1."""
    from attnlaw.cli.app import app
    from attnlaw.errors import InputError

    # A terminal that cannot show a bar or a Greek letter gets a question mark, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"attnlaw: {error}\n")
        sys.exit(1)
