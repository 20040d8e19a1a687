"""Turn results into the HTML of a page: charts, a table of quantities, and the code that reproduces them."""

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
from attnlaw.lab.controls import label_with_symbol
from attnlaw.lab.curve import CURVES, curve_chart
from attnlaw.lab.page_model import PageModel, State, page_names
from attnlaw.render.charts.style import inline_svg
from attnlaw.render.pages.html import macros
from attnlaw.verbs import VERBS
from attnlaw.verbs.views import figures_of

# Cells of a row, each with the name by which scripts find it and its text. The first is the row's heading.
Row = Sequence[tuple[str, str]]


def lab_html(macro: str, *values: Any) -> str:
    """Return the HTML that a macro of page.html makes with these values."""
    return str(getattr(macros("lab/page.html"), macro)(*values))


def head_html(model: PageModel) -> str:
    verb = model.verb
    links = [(name, name == verb.name) for name in dict.fromkeys([*page_names(), verb.name])]
    line = VERBS[verb.name][1] if verb.name in VERBS else verb.title
    return lab_html("head", verb.title, line, links)


def solve(state: State) -> Result:
    """Compute the result for the settings of a page. If a case fails, raise its `InputError`."""
    return state.verb(**state.arguments, progress=no_progress)


def charts_html(result: Result | InputError, state: State | None = None) -> str:
    """Return the curve for the page's settings, if there is one, and the charts of the verb; or an error."""
    if isinstance(result, InputError):
        return error_html(result)
    drawn, hidden = [], None
    if state is not None and (spec := CURVES.get(state.verb.name)) is not None:
        hidden = "curve"  # the verb's chart of this name shows the same without the sliders
        value = result.row(0)[spec.quantity]
        drawn.append(draw(spec.title, curve_chart(spec, state, value), spec.caption, "curve"))
    figures = [figure for figure in figures_of(result.for_plotting()) if figure.name != hidden]
    for place, figure in enumerate(figures):
        drawn.append(draw(figure.title, figure.draw(), figure.caption, f"lab{place}"))
    return lab_html("charts", drawn)


def draw(title: str, chart: Any, caption: str, name: str) -> tuple[str, Markup, str, str | None]:
    """Return title, SVG (or error), caption and width of a chart for the macro `figure` of the template."""
    try:
        svg = inline_svg(chart, name)
    except InputError as error:
        return title, Markup(error_html(error)), caption, None
    width = re.search(r'\bwidth="(\d+)', svg)
    return title, Markup(svg), caption, width and width[1]


def numbers_html(state: State, result: Result | InputError) -> str:
    """Return the HTML of the quantities, the remarks, and the code that reproduces them."""
    if isinstance(result, InputError):
        return ""
    cases = [*result, *(result.simulation or ())]
    titles, rows = quantity_table(result, cases)
    return lab_html("numbers", titles, rows, _remarks(cases), repeat_words(state))


def quantity_table(result: Result, cases: Sequence[Result]) -> tuple[list[str], list[Row]]:
    """Return titles and rows of a table: one row for each quantity, one column for each case."""
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
            named = [(quantity.name, text) for text in cells]
            label = quantity.display_name or label_with_symbol(quantity.name, quantity.symbol)
            rows.append([("", label), *named, ("", quantity.description)])
    return ["quantity", *titles, *(case.verb.title for case in cases[len(result) :]), "meaning"], rows


def _remarks(cases: Iterable[Result]) -> list[str]:
    ends = [(case.rows["status"][0], case.rows["remark"][0]) for case in cases]
    worth = [end for end in ends if end[1] or end[0] != Outcome.DONE]
    return list(dict.fromkeys(": ".join(filter(None, end)) for end in worth))


def repeat_words(state: Any) -> list[tuple[str, str, str]]:
    """Return (id, label, text) of the Python code and of the command that reproduce the page's result."""
    return [("python", "Python", state.as_python()), ("command", "command", state.as_command())]


def error_html(error: InputError) -> str:
    """Return an error as one line of HTML. The names of settings in the line are those of the page."""
    if isinstance(error, BadSetting):
        return lab_html("error", error.message(lambda name: name.replace("_", " ")))
    return lab_html("error", str(error))


def idle_style(idle: Iterable[str], off: Iterable[str] = ()) -> str:
    """Return a CSS style that hides controls without effect. Drawing them again would interrupt the user."""
    sliders = [f".lab-{name} marimo-slider" for name in sorted(off)]
    return lab_html("idle", [*(f".lab-{name}" for name in sorted(idle)), *sliders])


def progress_html(run: BackgroundSimulation, clock: Any = None) -> str:
    """Return the HTML that shows the progress of a simulation. The marimo element `clock` updates it."""
    end = run.error or ("done" if run.is_over else "")
    if run.is_stopped and run.error is None:
        end = f"stopped after {run.done} of {run.total}"
    ticking = None if end or clock is None else Markup(f"{clock}")
    return lab_html("progress", run.verb.title.lower(), run.done, run.total, end, ticking)
