"""A figure: a chart with its name, title and caption, the same for a page and for a paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Figure:
    """`draw` makes an altair chart; `on_page` is False where the page draws the same interactively.

    `model` is the one it shows, where there are several.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]
    on_page: bool = True
    model: str | None = None
