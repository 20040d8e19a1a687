"""Results as the HTML of a page: its charts, a table of its quantities, the words that repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import no_progress
from attnlaw.core.estimate import format_value
from attnlaw.core.verb import Verb
from attnlaw.lab.state import State
from attnlaw.lab.training import Training
from attnlaw.render.charts.style import inline_svg
from attnlaw.report.write import figures_of_results

Pairs = Sequence[tuple[Any, Any]]
VerbResults = list[tuple[Verb[Any, Any], Pairs]]


def solve(state: State) -> Pairs:
    """The cases of a state with their results; the first `InputError` that one met."""
    cases = state.cases()
    pairs = []
    for case, result in zip(cases, state.verb.run(cases, no_progress), strict=True):
        if isinstance(result, InputError):
            raise result
        pairs.append((case, result))
    return pairs


@dataclass(frozen=True)
class PageResult:
    """A state with its results, and those of the simulation beside it."""

    state: State
    pairs: Pairs
    trained_pairs: Pairs = ()

    @property
    def results(self) -> VerbResults:
        """The verb with its results, then the verb beside it."""
        results: VerbResults = [(self.state.verb, self.pairs)]
        beside = self.state.verb.simulation
        return (
            results if beside is None or not self.trained_pairs else [*results, (beside, self.trained_pairs)]
        )


def charts_html(result: PageResult | InputError) -> str:
    """The charts that the verb declares, as far as its results allow; or the mistake in its settings."""
    if isinstance(result, InputError):
        return error_html(result)
    drawn = []
    for place, figure in enumerate(figures_of_results(result.results)):
        drawn.append(figure_html(figure.title, inline_svg(figure.draw(), f"lab{place}"), figure.caption))
    return f'<main class="lab lab-charts">{"".join(drawn)}</main>'


def figure_html(title: str, svg: str, caption: str) -> str:
    """A chart with its words; the style sheet lets it grow and shrink by its own width, then scroll."""
    wide = re.search(r'\bwidth="(\d+)', svg)
    style = f' style="--wide:{wide[1]}px"' if wide else ""
    return (
        f'<figure class="lab-card" role="group" aria-label="{escape(title)}"><h2>{escape(title)}</h2>'
        f'<div class="lab-chart" tabindex="0"{style}>{svg}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def numbers_html(result: PageResult | InputError) -> str:
    """The quantities, how results ended, and the words that repeat them."""
    if isinstance(result, InputError):
        return ""
    parts = [quantities_html(result.results), remarks_html(result.results), repeat_html(result.state)]
    return f'<section class="lab lab-found" aria-label="Numbers">{"".join(parts)}</section>'


def quantities_html(results: VerbResults) -> str:
    """A row for each quantity, a column for each case, then one for what was trained."""
    verb, pairs = results[0]
    columns = [(_heading(verb, pairs, case), verb, result) for case, result in pairs]
    columns += [(other.title, other, result) for other, trained in results[1:] for _, result in trained]
    values = [of.values(result) for _, of, result in columns]
    rows = []
    for quantity in verb.quantities:
        cells = [format_value(numbers.get(quantity.name)) for numbers in values]
        if not quantity.hidden and any(cells):
            rows.append(
                [("", quantity.label), *((quantity.name, text) for text in cells), ("", quantity.description)]
            )
    return table_html(["quantity", *(title for title, _, _ in columns), "meaning"], rows)


def table_html(titles: Iterable[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """A table: each cell its name, under which it is found again, and its text; the first heads its row."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "".join(
        f'<tr><th scope="row">{escape(first[1])}</th>'
        + "".join(f'<td data-quantity="{escape(name)}">{escape(text)}</td>' for name, text in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return f'<table class="lab-card lab-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _heading(verb: Verb[Any, Any], pairs: Pairs, case: Any) -> str:
    """What tells a case from the others."""
    rows = [settings.to_row() for settings, _ in pairs]
    varied = [name for name in rows[0] if len({str(row[name]) for row in rows}) > 1]
    return ", ".join(f"{verb.label(name)} {format_value(case.to_row()[name])}" for name in varied) or (
        "theory" if verb.simulation else "value"
    )


def remarks_html(results: VerbResults) -> str:
    """How results ended, where that is worth a word."""
    remarks = []
    for _, pairs in results:
        for _, result in pairs:
            status, remark = str(getattr(result, "outcome", Outcome.DONE)), getattr(result, "remark", None)
            if remark or status != Outcome.DONE:
                remarks.append(": ".join(filter(None, [status, remark])))
    return "".join(f'<p class="lab-remark">{escape(text)}</p>' for text in dict.fromkeys(remarks))


def repeat_html(state: Any) -> str:
    """The two texts that repeat a state, each with a button that copies it (script.js)."""
    return "".join(
        f'<section class="lab-card lab-words"><h2>{title}</h2>'
        f'<button type="button" data-copies="{key}">Copy as {title}</button>'
        f'<pre tabindex="0" data-words="{key}"><code>{escape(text)}</code></pre></section>'
        for key, title, text in (
            ("python", "Python", state.as_python()),
            ("command", "command", state.as_command()),
        )
    )


def error_html(error: InputError) -> str:
    """A mistake in one line, spelled as the labels of the page are."""
    message = (
        error.message(lambda name: name.replace("_", " ")) if isinstance(error, BadSetting) else str(error)
    )
    return f'<p class="lab lab-error" role="alert">{escape(message)}</p>'


def idle_style(idle: Iterable[str], off: Iterable[str] = ()) -> str:
    """Controls that play no part are hidden, and sliders behind a switch that is off.

    They are not drawn anew, or a slider in hand would be lost.
    """
    hidden = [
        *(f".lab-{name}" for name in sorted(idle)),
        *(f".lab-{name} marimo-slider" for name in sorted(off)),
    ]
    return f"<style>{''.join(f'{selector}{{display:none}}' for selector in hidden)}</style>"


def training_html(run: Training) -> str:
    """How far a simulation is."""
    title, far = escape(run.verb.title.lower()), f"{run.done} of {run.total}"
    if run.error is not None:
        status = escape(run.error)
    elif run.is_stopped:
        status = f"stopped after {far}"
    elif run.is_over:
        status = "done"
    else:
        status = f'<progress aria-label="{title}" value="{run.done}" max="{run.total or 1}"></progress> {far}'
    return f'<section class="lab" aria-label="Progress"><p role="status">{title}: {status}</p></section>'
