"""Progress of long work in a notebook: a bar in Jupyter and in marimo, nothing anywhere else.

Neither is imported: a notebook that runs has done so already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

Draw = Callable[[str], None]  # replaces what was drawn before; an empty text takes it away
FIRST_DRAW_DELAY, REDRAW_INTERVAL = 0.5, 0.2  # seconds before a bar appears, and between two drawings of it


def no_progress(done: int, total: int) -> None:
    """Progress that nobody watches."""


def notebook_progress(name: str) -> Callable[[int, int], None]:
    """Progress that the notebook shows in which this runs, while it lasts; silent where there is none."""
    draw = next((candidate for candidate in (_jupyter(), _marimo()) if candidate is not None), None)
    return no_progress if draw is None else _Bar(name, draw)


class _Bar:
    def __init__(self, name: str, draw: Draw) -> None:
        self.name, self.draw = name, draw
        self.next_draw_time = time.monotonic() + FIRST_DRAW_DELAY
        self.is_visible = False

    def __call__(self, done: int, total: int) -> None:
        if done >= total:
            if self.is_visible:
                self.draw("")
            self.is_visible = False
        elif time.monotonic() >= self.next_draw_time:
            self.draw(bar_html(self.name, done, total))
            self.is_visible, self.next_draw_time = True, time.monotonic() + REDRAW_INTERVAL


def bar_html(name: str, done: int, total: int) -> str:
    """The bar of what is done.

    >>> bar_html("learn", 3, 8)
    '<label>learn <progress value="3" max="8"></progress> 3 of 8</label>'
    """
    bar = f'<progress value="{done}" max="{total}"></progress>'
    return f"<label>{escape(name)} {bar} {done} of {total}</label>"


def _jupyter() -> Draw | None:
    """A place in the output of a Jupyter cell; None in IPython's terminal, and outside of both."""
    known: Any = sys.modules.get("IPython")
    shell = None if known is None else known.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    display = known.display
    place: list[Any] = []

    def draw(html: str) -> None:
        if place:
            place[0].update(display.HTML(html))
        else:
            place.append(display.display(display.HTML(html), display_id=True))

    return draw


def _marimo() -> Draw | None:
    """The output of the marimo cell that runs."""
    known: Any = sys.modules.get("marimo")
    if known is None or not known.running_in_notebook():
        return None
    return lambda html: known.output.replace(known.Html(html)) if html else known.output.clear()


Progress = Callable[[int, int], None]
