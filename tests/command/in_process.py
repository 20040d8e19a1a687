"""The command line run in this process: as many commands as a test likes, none of them a new interpreter."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rich.console import Console

from attnlaw import command
from attnlaw.render.terminal import console


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, and what it wrote to both outputs."""

    status: int
    stdout: str
    stderr: str


def terminal(width: int, **more: Any) -> Console:
    """A console that is a terminal of this width without colours."""
    return Console(width=width, height=50, force_terminal=True, color_system=None, **more)


def invoke(*words: object, status: int = 0, columns: int | None = None) -> Ended:
    """Run `attnlaw WORDS...`; the exit status must be the expected one.

    The output is a terminal with so many columns, or a file if none are given.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["attnlaw", *map(str, words)]),
        mock.patch.dict("os.environ", {"COLUMNS": str(columns or 80)}),
        mock.patch.object(console.output, "_width", columns or 80),
        mock.patch.object(console.output, "_height", 50),
        mock.patch.object(console.output, "_force_terminal", columns is not None),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            command.main()
        except SystemExit as end:
            code = end.code
    ended = Ended(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())
    assert ended.status == status, ended.stderr
    return ended
