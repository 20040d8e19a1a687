"""What all charts share: the record of a figure, sizes and colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlaw.core.version import version
from attnlaw.render.charts.style import PALETTE, as_title

WIDTH, HEIGHT = 340, 220
PANEL = (270, 190)
GREY = "#555555"
# Room for the labels of a y axis: the same in every panel, so that panels line up.
EXTENT = 34


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart with its name, title and caption, the same for a page and for a paper.

    `draw` makes an altair chart; `on_page` is False where the page shows the same and lets a reader choose.
    `model` is the one it shows, where there are several; `settings_text` tells those behind it, `version` is
    the attnlaw that computed them.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]
    on_page: bool = True
    model: str | None = None
    settings_text: Callable[[], str] = str
    version: str = ""

    @property
    def caption_text(self) -> str:
        """What a file beside the figure tells: title, caption, settings and versions."""
        settings = self.settings_text()
        sentence = f"Settings: {settings}." if settings else ""
        computed = f"Computed by attnlaw {self.version}, drawn" if self.version else "Drawn"
        lines = [f"{self.title}. {self.caption}".strip(), sentence, f"{computed} by attnlaw {version()}."]
        return "\n".join(filter(None, lines)) + "\n"


def number_duplicates(figures: Sequence[Figure]) -> list[Figure]:
    """The figures, with numbers behind a name that several have."""
    many = Counter(figure.name for figure in figures)
    places: Counter[str] = Counter()
    named = []
    for figure in figures:
        places[figure.name] += 1
        ending = f"_{places[figure.name]}" if many[figure.name] > 1 else ""
        named.append(replace(figure, name=f"{figure.name}{ending}"))
    return named


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def colour_encoding(
    colours: Mapping[str, str], column: str = "series", legend_for_one: bool = False, **legend: Any
) -> Any:
    """One colour a series; a single series has no legend unless `legend_for_one` asks for it."""
    import altair as alt

    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(title=None, **legend) if legend_for_one or len(colours) > 1 else None
    return alt.Color(f"{column}:N", scale=scale, legend=shown)


def panel_title(text: str) -> Any:
    """A title over the plot itself, not over its axis labels, so that titles line up."""
    import altair as alt

    return alt.TitleParams(as_title(text), frame="group", anchor="start")


def with_theory_legend(lines: Any, hue: str = GREY, name: str = "theory") -> Any:
    """The lines with an entry of their own in the legend."""
    import altair as alt

    dash = alt.StrokeDash(
        "theory:N",
        title=None,
        scale=alt.Scale(domain=[name], range=[[1, 0]]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor=hue),
    )
    return lines.encode(strokeDash=dash).transform_calculate(theory=f"'{name}'")
