"""The command line: parse, call one library function, write. One file per verb."""

from __future__ import annotations

import os
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
    except KeyboardInterrupt:
        sys.stderr.write("attnlaw: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has gone (`attnlaw ... | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
