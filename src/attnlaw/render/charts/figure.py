"""A figure: a chart with its name, title and caption."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, TypeVar

from attnlaw.core.errors import InputError
from attnlaw.core.version import version
from attnlaw.render.charts.packages import require_packages

Drawing = TypeVar("Drawing")
LONGEST_SUFFIX = 80  # letters of a model's name in a file name


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart for a page and for a paper, with its file name (without ending), title and caption.

    Args:
        on_page: False if the page has an interactive version. Such a figure is only for papers.
        model: the model that the figure shows, or None if the result has only one model.
        settings_text: a function that describes the settings of the result in words.
        version: the version of attnlaw that computed the result.
    """

    name: str
    title: str
    caption: str
    make_chart: Callable[[], Any]
    on_page: bool = True
    model: str | None = None
    settings_text: Callable[[], str] = str
    version: str = ""

    def draw(self) -> Any:
        """Return the altair chart. It is made without Altair's checks, which are slow.

        Raises:
            InputError: if a package that draws figures is not installed.
        """
        require_packages()
        from altair.utils.schemapi import debug_mode

        with debug_mode(False):
            return self.make_chart()

    @property
    def caption_text(self) -> str:
        """The text of the caption file: title, caption, settings and versions."""
        settings = self.settings_text()
        sentence = f"Settings: {settings}." if settings else ""
        computed = f"Computed by attnlaw {self.version}, drawn" if self.version else "Drawn"
        lines = [f"{self.title}. {self.caption}".strip(), sentence, f"{computed} by attnlaw {version()}."]
        return "\n".join(filter(None, lines)) + "\n"


def draw_each(
    figures: Iterable[Figure], draw: Callable[[Figure], Drawing]
) -> list[tuple[Figure, Drawing | InputError]]:
    """Return each figure with its drawing, or with the error. Warn once about each error."""
    drawings: list[tuple[Figure, Drawing | InputError]] = []
    missing: dict[str, list[str]] = {}
    for figure in figures:
        try:
            drawings.append((figure, draw(figure)))
        except InputError as error:
            drawings.append((figure, error))
            missing.setdefault(str(error), []).append(figure.name)
    for reason, names in missing.items():
        which = f"figure{'s' if len(names) > 1 else ''} {', '.join(names)}"
        logging.getLogger("attnlaw").warning("attnlaw: warning: %s%s", which, reason.removeprefix("figure"))
    return drawings


def number_duplicates(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures with unique names: a number is added to names that occur several times."""
    many = Counter(figure.name for figure in figures)
    numbers = {name: count(1) for name in many}
    ends = [f"_{next(numbers[figure.name])}" if many[figure.name] > 1 else "" for figure in figures]
    return [replace(figure, name=f"{figure.name}{end}") for figure, end in zip(figures, ends, strict=True)]


def unique_suffixes(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a unique suffix of a file name for each label. Labels may contain any characters.

    >>> unique_suffixes({"a/b": "b", "a/B": "B", "c: d": "c: d"})
    {'a/b': '_b', 'a/B': '_B-2', 'c: d': '_c-d'}
    """
    suffixes: dict[str, str] = {}
    for model, label in labels.items():
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", label)[-LONGEST_SUFFIX:].strip("-.") or "model"
        taken = {ending.lower() for ending in suffixes.values()}
        numbered = (f"_{plain}-{number}" for number in count(2))
        suffixes[model] = next(name for name in chain([f"_{plain}"], numbered) if name.lower() not in taken)
    return suffixes
