"""The command line: parse, call one library function, write. One file per verb."""

from __future__ import annotations

import os
import sys
import traceback
from io import TextIOWrapper


def main() -> None:
    """Run `attnlaw`; bad input, and what the system refuses, end in one line and exit status 1."""
    from attnlaw.base.errors import InputError
    from attnlaw.command.app import app

    if sys.stderr is None:  # closed: there is nowhere to say anything
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (open until the end)
    if sys.stdout is None:
        sys.exit("attnlaw: standard output is closed; give it another place, such as /dev/null")
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
            sys.exit(f"attnlaw: {InputError(f'{error.filename}: {error.strerror}; give another path')}")
        if not _was_printing(error):
            sys.exit(f"attnlaw: {InputError(f'the system refused something ({error!r}); try again')}")
        _drop_output()
        sys.exit(f"attnlaw: standard output cannot be written ({error.strerror}); give it another place")


def _was_printing(error: OSError) -> bool:
    """Whether an error that names no file was raised by code that prints; a connection names none either."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("attnlaw.command", "rich.", "typer."))


def _drop_output() -> None:
    """Send what is left in the buffer nowhere, so that the interpreter does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
