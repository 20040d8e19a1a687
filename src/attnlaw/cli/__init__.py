"""The command line: parse, call one library function, write. One file per verb."""

from __future__ import annotations

import os
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
        try:
            app()
        finally:
            sys.stdout.flush()
    except InputError as error:
        sys.exit(f"attnlaw: {error}")
    except MemoryError as error:
        sys.exit(f"attnlaw: this does not fit into memory ({error or 'no size given'}); choose smaller sizes")
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:
            raise
        _drop_output()
        sys.exit(f"attnlaw: standard output cannot be written ({error.strerror}); give it another place")


def _drop_output() -> None:
    """Send what is left in the buffer nowhere, so that the interpreter does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
