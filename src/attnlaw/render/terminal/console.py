"""Print to the terminal: results on standard output, progress and warnings on standard error. In a notebook,
rich (Jupyter) or marimo shows the progress; they are not imported here, as the notebook has done so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from attnlaw.core.errors import printable
from attnlaw.core.estimate import format_with_error
from attnlaw.core.files import to_json
from attnlaw.core.plain_text import to_plain
from attnlaw.core.progress import Progress, TimeLeft, is_early, no_progress

if TYPE_CHECKING:
    import polars as pl

FIRST_REPORT, REPORT_INTERVAL = 10.0, 30.0  # seconds until the first line in a log, and between two
BLOCKS = "▁▂▃▄▅▆▇█"
output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def print_message(line: str) -> None:
    """Print one line on standard error. Markup and control characters in the line are printed as text."""
    messages.print(to_screen(messages, printable(line)), markup=False, soft_wrap=True)


def to_screen(console: Console, text: str) -> str:
    """Return the text with replacements for letters that the screen cannot show."""
    return to_plain(text, console.encoding)


def print_json(value: Any) -> None:
    """Print JSON on standard output, in ASCII, so that it does not depend on the terminal's encoding."""
    sys.stdout.write(to_json(value, ascii_only=True) + "\n")


class Column(NamedTuple):
    """A column of a table."""

    title: str  # may contain rich markup
    cells: Sequence[str | Text]  # one for each line; markup in them has no effect
    is_text: bool = False  # align cells at the left; numbers are aligned at the right
    wraps: bool = False  # let a cell take several lines. Other cells are never cut.
    max_width: int | None = None  # letters in a line of a cell that wraps
    name: str = ""  # how the remark about hidden columns calls it; the title by default


def print_table(
    console: Console, columns: Sequence[Column], droppable: Sequence[str] = (), tight: bool = False
) -> list[str]:
    """Print a table without cutting any cell. Return the titles of the columns that were left out.

    On a narrow screen, the function leaves out `droppable` columns in order and names them. A table that is
    still too wide continues past the edge. Files and logs have no edge and get all columns. A `tight` table
    has one space between columns instead of two.
    """
    table, hidden = _fit_columns(console, columns, droppable, tight)
    size = Measurement.get(console, console.options.update(width=1000), table)
    # Only a column that may wrap can be narrower than its cells.
    least = size.minimum if any(column.wraps for column in columns) else size.maximum
    if least > console.width:
        table.width = least
    console.print(table, crop=False)
    if hidden:
        console.print(Text(f"A wider screen also shows: {', '.join(hidden)}.", style="dim"))
    return hidden


def left_out(console: Console, columns: Sequence[Column], droppable: Sequence[str]) -> list[str]:
    """Return the titles of the columns that `print_table` leaves out."""
    return _fit_columns(console, columns, droppable)[1]


def _fit_columns(
    console: Console, columns: Sequence[Column], droppable: Sequence[str], tight: bool = False
) -> tuple[Table, list[str]]:
    names = [column.name or " ".join(column.title.split()) for column in columns]
    droppable = [name for name in droppable if name in names and console.is_terminal]
    for count in range(len(droppable) + 1):
        dropped = droppable[:count]
        kept = [column for column, name in zip(columns, names, strict=True) if name not in dropped]
        table = Table(box=None, pad_edge=False, collapse_padding=tight)
        for column in kept:
            title = Text.from_markup(to_screen(console, column.title))
            widest = max(line.cell_len for line in title.split(allow_blank=True))
            table.add_column(
                title,
                justify="left" if column.is_text else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
                min_width=None if column.wraps else widest,
                max_width=column.max_width,
            )
        for row in zip(*(column.cells for column in kept), strict=True):
            table.add_row(*(_cell(console, cell) for cell in row))
        size = Measurement.get(console, console.options.update(width=1000), table)
        if size.maximum <= console.width:
            break
    return table, dropped


def _cell(console: Console, cell: str | Text) -> Text:
    if isinstance(cell, str):
        return Text(to_screen(console, cell))
    plain = to_screen(console, cell.plain)
    return cell if plain == cell.plain else Text(plain, style=cell.style)


def number_columns(table: pl.DataFrame, forms: Mapping[str, tuple[str, str]]) -> list[Column]:
    """Return columns that show numbers. `forms` maps titles to a column name and a number format."""
    return [
        Column(title, [format_number(value, form, missing="–") for value in table[name]])
        for title, (name, form) in forms.items()
    ]


def format_number(value: Any, form: str = "#.3g", error: Any = None, missing: str = "") -> str:
    """Return a number as text, and None as `missing`.

    An error is included if it affects the digits that are shown.

    >>> format_number(2.0), format_number(0.51, ".2f", 0.03), format_number(0.51, ".2f", 1e-4)
    ('2.00', '0.51(3)', '0.51')
    """
    if value is None:
        return missing
    shown = format(float(value), form).removesuffix(".")
    last_digit = 10.0 ** -len(shown.partition(".")[2])
    return format_with_error(float(value), float(error)) if error and error >= last_digit / 2 else shown


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that a person would choose.

    >>> [format_duration(seconds) for seconds in (0.0123, 3.21, 150.0, 9000.0, 400000.0)]
    ['12 ms', '3.2 s', '2.5 min', '2.5 h', '4.6 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1g} ms"


class _TimeLeftColumn(ProgressColumn):
    """The time left in a progress bar."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        return Text("" if left is None else f"about {_clock_time(left)} left", style="progress.remaining")


def _clock_time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def progress_bar(description: str) -> tuple[RichProgress, Callable[..., float | None]]:
    """Return a rich progress bar, not shown yet, and its function `report(done, total, left=None)`.

    `left` is the number of seconds left, if the caller knows it better than the pace so far. This function
    returns the number that the bar shows, or None if it is too early for an estimate.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    bar = RichProgress(*columns, _TimeLeftColumn(), console=messages, transient=True)
    task, estimate = bar.add_task(printable(description), total=None), TimeLeft(bar.get_time)

    def report(done: int, total: int, left: float | None = None) -> float | None:
        estimated = estimate.update(done, total)
        shown = None if is_early(done, total) else estimated if left is None else left
        bar.update(task, completed=done, total=total, left=shown)
        return shown

    return bar, report


@contextmanager
def progress(description: str) -> Iterator[Callable[..., Any]]:
    """Yield a function `report(done, total, left=None)` that shows progress: a bar, or lines in a log.

    `left` is the number of seconds left, if the caller knows it better than the pace so far. The bar shows no
    time before 5% of the work is done.
    """
    bar, update = progress_bar(description)
    if messages.is_terminal:
        with bar:
            yield update
        return
    next_line, is_open = bar.get_time() + FIRST_REPORT, False

    def report(done: int, total: int, left: float | None = None) -> None:
        nonlocal next_line, is_open
        shown = update(done, total, left)
        if done == total and is_open:  # so that the last line does not look as if work had stopped
            is_open = False
            print_message(f"{description}: {done} of {total}")
        elif done < total and bar.get_time() >= next_line:
            is_open = True
            next_line = bar.get_time() + REPORT_INTERVAL
            rest = "" if shown is None else f", about {_clock_time(shown)} left"
            print_message(f"{description}: {done} of {total}{rest}")

    yield report


def sparkline(values: Sequence[float], top: float) -> str:
    """Return a text with one block character for each value, whose height shows the value relative to `top`.

    >>> sparkline([0.0, 1.0, 2.0], top=2.0)
    '▁▅█'
    """
    steps = len(BLOCKS) - 1
    return "".join(BLOCKS[round(steps * value / top) if top > 0 else 0] for value in values)


def bar(fraction: float, width: int = 8) -> str:
    """Return a horizontal bar of block characters.

    The length of the bar is exact to an eighth of a character.

    >>> bar(0.5, width=4)
    '██'
    """
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


FIRST_DRAW_DELAY, REDRAW_INTERVAL = 0.5, 0.2  # seconds before a bar appears, and between updates


def notebook_progress(name: str) -> AbstractContextManager[Progress]:
    """Return a context manager that yields a progress function. At the end, it removes the progress bar."""
    ipython, marimo = (sys.modules.get(module) for module in ("IPython", "marimo"))
    # IPython's terminal has no kernel.
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        return _jupyter_progress(name, ipython.display)
    if marimo is not None and marimo.running_in_notebook():
        return _marimo_progress(name, marimo.status)
    return nullcontext(no_progress)


@contextmanager
def _jupyter_progress(name: str, display: Any) -> Iterator[Progress]:
    # rich's live display would need ipywidgets.
    bar, update = progress_bar(name)
    place: Any = None
    next_draw = time.monotonic() + FIRST_DRAW_DELAY

    def report(done: int, total: int) -> None:
        nonlocal place, next_draw
        update(done, total)
        if done >= total or time.monotonic() < next_draw:
            return
        next_draw = time.monotonic() + REDRAW_INTERVAL
        if place is None:
            place = display.display(bar, display_id=True)
        else:
            place.update(bar)

    try:
        yield report
    finally:
        if place is not None:
            place.update(display.HTML(""))


@contextmanager
def _marimo_progress(name: str, status: Any) -> Iterator[Progress]:
    first_draw = time.monotonic() + FIRST_DRAW_DELAY
    bar: Any = None
    shown, shown_total = 0, 0

    def report(done: int, total: int) -> None:
        nonlocal bar, shown, shown_total
        if total != shown_total:  # the next stage of the work
            stack.close()
            bar, shown, shown_total = None, 0, total
        if bar is None and done < total and time.monotonic() >= first_draw:
            bar = stack.enter_context(status.progress_bar(total=total, title=name, remove_on_exit=True))
        if bar is not None:
            bar.update(increment=done - shown)
            shown = done

    with ExitStack() as stack:
        yield report
