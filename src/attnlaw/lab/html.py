"""Results as the HTML of a page: its charts, a table of its quantities, the words that repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome, format_value
from attnlaw.core.progress import no_progress
from attnlaw.core.result import Result
from attnlaw.lab.background import BackgroundSimulation
from attnlaw.lab.page_model import PageModel, State, page_names
from attnlaw.render.charts.style import inline_svg
from attnlaw.render.pages.html import macros
from attnlaw.verbs import VERBS
from attnlaw.verbs.views import figures_of

# The cells of a row: each its name, under which it is found again, and its text; the first heads the row.
Row = Sequence[tuple[str, str]]


def lab_html(macro: str, *values: Any) -> str:
    """Return what a macro of page.html makes of values."""
    return str(getattr(macros("lab/page.html"), macro)(*values))


def head_html(model: PageModel) -> str:
    verb = model.verb
    links = [(name, name == verb.name) for name in dict.fromkeys([*page_names(), verb.name])]
    line = VERBS[verb.name][1] if verb.name in VERBS else verb.title
    return lab_html("head", verb.title, line, links)


def solve(state: State) -> Result:
    """Return the result of a state; raise the first `InputError` that a case met."""
    return state.verb(**state.arguments, progress=no_progress)


def charts_html(result: Result | InputError) -> str:
    """The charts that the verb declares, as far as its results allow; or the mistake in its settings."""
    if isinstance(result, InputError):
        return error_html(result)
    figures = enumerate(figures_of(result.for_plotting() if len(result) == 1 else result))
    return lab_html(
        "charts",
        [draw(figure.title, figure.draw(), figure.caption, f"lab{place}") for place, figure in figures],
    )


def draw(title: str, chart: Any, caption: str, name: str) -> tuple[str, Markup, str, str | None]:
    """A chart with its words, as the macro `figure` takes it: the style sheet scales it by its width."""
    svg = inline_svg(chart, name)
    width = re.search(r'\bwidth="(\d+)', svg)
    return title, Markup(svg), caption, width and width[1]


def numbers_html(state: State, result: Result | InputError) -> str:
    """The quantities, how results ended, and the words that repeat them."""
    if isinstance(result, InputError):
        return ""
    cases = [*result, *(result.simulation or ())]
    titles, rows = quantity_table(result, cases)
    return lab_html("numbers", titles, rows, _remarks(cases), repeat_words(state))


def quantity_table(result: Result, cases: Sequence[Result]) -> tuple[list[str], list[Row]]:
    """A row for each quantity, a column for each case, then one for what was trained."""
    values = [case.values() for case in cases]
    settings = [result.settings(case) for case in range(len(result))]
    varied = [name for name in settings[0] if len({str(row[name]) for row in settings}) > 1]
    verb, alone = result.verb, "theory" if result.verb.simulation else "value"
    titles = [
        ", ".join(f"{verb.label(name)} {format_value(row[name])}" for name in varied) or alone
        for row in settings
    ]
    rows: list[Row] = []
    for quantity in verb.quantities:
        cells = [format_value(numbers.get(quantity.name)) for numbers in values]
        if not quantity.hidden and any(cells):
            rows.append(
                [("", quantity.label), *((quantity.name, text) for text in cells), ("", quantity.description)]
            )
    return ["quantity", *titles, *(case.verb.title for case in cases[len(result) :]), "meaning"], rows


def _remarks(cases: Iterable[Result]) -> list[str]:
    """How results ended, where that is worth a word."""
    ends = [(case.rows["status"][0], case.rows["remark"][0]) for case in cases]
    worth = [end for end in ends if end[1] or end[0] != Outcome.DONE]
    return list(dict.fromkeys(": ".join(filter(None, end)) for end in worth))


def repeat_words(state: Any) -> list[tuple[str, str, str]]:
    """The two texts that repeat a state; each has a button that copies it (lab.js)."""
    return [("python", "Python", state.as_python()), ("command", "command", state.as_command())]


def error_html(error: InputError) -> str:
    """A mistake in one line, spelled as the labels of the page are."""
    if isinstance(error, BadSetting):
        return lab_html("error", error.message(lambda name: name.replace("_", " ")))
    return lab_html("error", str(error))


def idle_style(idle: Iterable[str], off: Iterable[str] = ()) -> str:
    """Controls that play no part are hidden, and sliders behind a switch that is off.

    They are not drawn anew, or a slider in hand would be lost.
    """
    hidden = [
        *(f".lab-{name}" for name in sorted(idle)),
        *(f".lab-{name} marimo-slider" for name in sorted(off)),
    ]
    return lab_html("idle", hidden)


def progress_html(run: BackgroundSimulation, clock: Any = None) -> str:
    """How far a simulation is; `clock` is an element of marimo that asks again while it runs."""
    end = run.error or ("done" if run.is_over else "")
    if run.is_stopped and run.error is None:
        end = f"stopped after {run.done} of {run.total}"
    ticking = None if end or clock is None else Markup(f"{clock}")
    return lab_html("progress", run.verb.title.lower(), run.done, run.total, end, ticking)
