"""Progress in a notebook: rich's bar in Jupyter, marimo's own in marimo, nothing anywhere else.

Neither is imported: a notebook that runs has done so already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from attnlaw.core.progress import Progress, no_progress

FIRST_DRAW_DELAY, REDRAW_INTERVAL = 0.5, 0.2  # seconds before a bar appears, and between two drawings of it


def notebook_progress(name: str) -> AbstractContextManager[Progress]:
    """Return a context that gives the progress to call, and takes its bar away at the end."""
    ipython, marimo = (sys.modules.get(module) for module in ("IPython", "marimo"))
    # IPython's terminal has no kernel.
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        return _jupyter_progress(name, ipython.display)
    if marimo is not None and marimo.running_in_notebook():
        return _marimo_progress(name, marimo.status)
    return nullcontext(no_progress)


@contextmanager
def _jupyter_progress(name: str, display: Any) -> Iterator[Progress]:
    # Not by rich's live display: it needs ipywidgets.
    from attnlaw.render.terminal.console import progress_bar

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
