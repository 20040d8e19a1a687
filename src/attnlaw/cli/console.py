"""Where the command line writes: results on standard output, progress and warnings on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from attnlaw.errors import printable
from attnlaw.records.files import to_json

output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Write one line to standard error as it is: names in it are neither markup nor orders to a terminal."""
    messages.print(printable(line), markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Write JSON alone to standard output."""
    sys.stdout.write(to_json(value) + "\n")


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """Yield `report(done, total)`, drawn as a bar on standard error when that is a terminal."""
    if not messages.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(printable(description), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
