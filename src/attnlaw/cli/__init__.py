"""The command line: parse, call one library function, write. One file per verb."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `attnlaw`; bad input ends in one line on standard error and exit status 1."""
    from attnlaw.cli.app import app
    from attnlaw.errors import InputError

    try:
        app()
    except InputError as error:
        sys.stderr.write(f"attnlaw: {error}\n")
        sys.exit(1)
