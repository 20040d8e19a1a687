"""Where the command line writes: results on standard output, progress and warnings on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from attnlaw.core.errors import printable
from attnlaw.core.estimate import format_with_error
from attnlaw.core.files import to_json

if TYPE_CHECKING:
    from rich.table import Table

FIRST_REPORT, REPORT_INTERVAL = (
    10.0,
    30.0,
)  # seconds until the first line of progress in a log, and between two
BLOCKS = "▁▂▃▄▅▆▇█"
output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def print_message(line: str) -> None:
    """Write one line to standard error as it is: names in it are neither markup nor orders to a terminal."""
    messages.print(printable(line), markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Write JSON alone to standard output, in ASCII: the same whatever encoding the terminal has."""
    sys.stdout.write(to_json(value, ascii_only=True) + "\n")


def print_table(
    console: Console, build: Callable[[Sequence[str]], Table], droppable: Sequence[str] = ()
) -> None:
    """Print `build(left_out)` without cutting a cell; on a narrow screen leave out columns of `droppable`.

    Columns are left out in the order of `droppable`, and a line says so. A table that is still too wide runs
    over the edge.
    """
    for count in range(len(droppable) + 1):
        left_out = droppable[:count]
        table = build(left_out)
        size = Measurement.get(console, console.options.update(width=1000), table)
        if size.maximum <= console.width:
            break
    # Only a column that may wrap can be narrower than its cells.
    least = size.maximum if all(column.no_wrap for column in table.columns) else size.minimum
    if least > console.width:
        table.width = least
    console.print(table, crop=False)
    if left_out:
        console.print(Text(f"A wider screen also shows: {', '.join(left_out)}.", style="dim"))


def format_number(value: Any, form: str = "#.3g", error: Any = None) -> str:
    """The number in its form, or with its error where that reaches the digits shown; nothing for None.

    >>> format_number(2.0), format_number(0.51, ".2f", 0.03), format_number(0.51, ".2f", 1e-4)
    ('2.00', '0.51(3)', '0.51')
    """
    if value is None:
        return ""
    shown = format(float(value), form).removesuffix(".")
    last_digit = 10.0 ** -len(shown.partition(".")[2])
    return format_with_error(float(value), float(error)) if error and error >= last_digit / 2 else shown


def column_table(
    cells: Mapping[str, Sequence[str]], left_out: Sequence[str], texts: Sequence[str] = ()
) -> Table:
    """A table of columns by their titles, numbers to the right, without those left out."""
    from rich.table import Table

    kept = {title: column for title, column in cells.items() if title not in left_out}
    table = Table(box=None, pad_edge=False)
    for title in kept:
        table.add_column(title, justify="left" if title in texts else "right", no_wrap=True)
    for row in zip(*kept.values(), strict=True):
        table.add_row(*row)
    return table


@contextmanager
def progress(description: str) -> Iterator[Callable[..., None]]:
    """Yield `report(done, total, left=None)`: a bar on a terminal, now and then a line where there is none.

    `left` are the seconds to come, where the caller knows them better than by what is done.
    """
    if not messages.is_terminal:
        yield LogProgress(description)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: Any) -> Text:
            left = task.fields.get("left")
            if left is None:
                return super().render(task)
            return Text(_format_duration(left), style="progress.remaining")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeLeft(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(printable(description), total=None)
        yield lambda done, total, left=None: bar.update(task, completed=done, total=total, left=left)


class LogProgress:
    """Print progress for a log: a line after `FIRST_REPORT` seconds, then one every `REPORT_INTERVAL`.

    What is left is told by the pace since the first report: imports and reading come before it.
    """

    def __init__(self, description: str, now: Callable[[], float] = time.monotonic) -> None:
        self.description, self.now = description, now
        self.next = now() + FIRST_REPORT
        self.first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int, left: float | None = None) -> None:
        now = self.now()
        start, before = self.first = self.first or (now, done)
        if now < self.next or done >= total:
            return
        self.next = now + REPORT_INTERVAL
        if left is None and done > before:
            left = (now - start) * (total - done) / (done - before)
        rest = "" if left is None else f", about {_format_duration(left)} left"
        print_message(f"{self.description}: {done} of {total}{rest}")


def _format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def sparkline(values: Sequence[float], top: float) -> str:
    """One block per value, as high as the value is against `top`.

    >>> sparkline([0.0, 1.0, 2.0], top=2.0)
    '▁▅█'
    """
    steps = len(BLOCKS) - 1
    return "".join(BLOCKS[round(steps * value / top) if top > 0 else 0] for value in values)


def bar(fraction: float, width: int = 8) -> str:
    """A horizontal bar, in eighths of a character.

    >>> bar(0.5, width=4)
    '██'
    """
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")
