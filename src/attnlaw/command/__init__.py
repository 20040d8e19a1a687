"""The command line: it turns words into settings, runs a verb, and shows a table, JSON or a page. The exit
status is 0 (done), 1 (a file or a computation failed), 2 (a bad option), 3 (a rule failed) or 130
(interrupted). Only `app` imports cyclopts, and only `main`, which answers Ctrl-C, imports what takes time."""

from __future__ import annotations

import os
import sys
import warnings
from io import TextIOWrapper

from attnlaw import __version__

COLLECT_AFTER = 20_000  # new objects between two searches of the garbage collector; Python's default is 700
TYPE_CHECKING = False  # importing typing takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


class OutputClosed(Exception):
    """An error for output that cannot be written. `head` may end early, which needs no message."""


class UsageError(Exception):
    """An error about a bad option, as one line with option names. The exit status is 2."""


class GuardedOutput:
    """Standard output that raises `OutputClosed`, to distinguish its errors from those of files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._call_stream(self._stream.write, text))

    def flush(self) -> None:
        self._call_stream(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _call_stream(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            message = f"standard output cannot be written ({error.strerror}); redirect it to another file"
            raise OutputClosed(message) from error


def main() -> None:
    """Run `attnlaw` on `sys.argv`, and exit with its status. Every expected error is printed as one line."""
    try:
        status = _run_command()
    except KeyboardInterrupt:
        _exit_with_message("stopped", 130)
    else:
        sys.exit(status)


def _run_command() -> int:
    import gc

    from attnlaw.core.errors import InputError

    # Imports and charts make many small objects and hardly any cycles, so search for cycles less often.
    gc.set_threshold(COLLECT_AFTER)
    # Several BLAS threads slow down small matrices; large ones are measured in threads of attnlaw.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Results say themselves what is wrong with a number. Filters that the user gives to Python come first.
    warnings.filterwarnings("ignore", category=RuntimeWarning, append=True)
    warnings.filterwarnings("ignore", module=r"attnlaw\.", append=True)
    prepare_streams()
    try:
        if sys.argv[1:] in (["--version"], ["-V"]):  # answered without the command-line library
            sys.stdout.write(f"attnlaw {__version__}\n")
            status = 0
        else:
            from attnlaw.command.app import run

            status = run(sys.argv[1:])
        sys.stdout.flush()
        return status
    except OutputClosed as error:
        # Discard the rest of the buffer, or the interpreter would try to write it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _exit_with_message(str(error), 1)
    except (UsageError, InputError) as error:
        _exit_with_message(str(error), 2 if isinstance(error, UsageError) else 1)
    except MemoryError as error:
        size = error or "no size given"
        _exit_with_message(f"this does not fit into memory ({size}); choose a smaller size", 1)
    except OSError as error:
        message = f"the operating system reported an error ({error!r}); try again"
        if error.filename is not None:
            message = f"{error.filename}: {error.strerror}; give another path"
        _exit_with_message(str(InputError(message)), 1)


def prepare_streams() -> None:
    """Make standard output replace letters that a terminal cannot show. Exit if it is closed."""
    if sys.stderr is None:  # closed, so no message can be printed
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (open until the end)
    if sys.stdout is None:
        _exit_with_message("standard output is closed; redirect it, for example to /dev/null", 1)
    from attnlaw.core.plain_text import HANDLER

    # A terminal that cannot show a bar or a Greek letter gets something similar, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)
    sys.stdout = GuardedOutput(sys.stdout)
    # Some terminals report a width of 0, with which nothing could be shown.
    if not os.environ.get("COLUMNS", "0").strip("0"):
        os.environ.pop("COLUMNS", None)


def _exit_with_message(line: str, status: int) -> NoReturn:
    if line:
        print(f"attnlaw: {line}", file=sys.stderr)  # noqa: T201 (rich is not needed for one line)
    sys.exit(status)
