"""Results of any verb in the terminal: one case as a list of quantities, several as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.core.estimate import Outcome
from attnlaw.core.quantity import Quantity
from attnlaw.core.estimate import format_value
from attnlaw.core.settings import setting_fields
from attnlaw.core.verb import Verb
from attnlaw.render.terminal.console import column_table, print_message, print_table

VerbRuns = Sequence[tuple[Verb[Any, Any], Sequence[tuple[Any, Any]]]]


def show(done: VerbRuns, console: Console) -> None:
    """Print the cases of a verb (and those of the verb beside it), then what their outcomes say."""
    verb, pairs = done[0]
    console.print(Text(verb.title, style="bold"))
    shared = _describe_shared(verb, [case for case, _ in pairs])
    console.print(Text(", ".join(shared), style="dim"))
    if len(pairs) == 1:
        print_table(console, lambda _: _quantity_table(done))
    else:
        _show_rows(done, console)
    for run_verb, runs in done:
        for case, result in runs:
            if getattr(result, "remark", None):
                print_message(
                    f"{run_verb.name}{_case_label(run_verb, case, runs)}: {_status(result)}: {result.remark}"
                )
        if any(getattr(case, "seeds", None) == 1 for case, _ in runs):
            print_message("one seed has no standard error; --seeds 2 or more gives one")


def _show_rows(done: VerbRuns, console: Console) -> None:
    """A row for each case: what varies, and the quantities in brief; lists as columns of a second table."""
    verb, pairs = done[0]
    varied = _varying_names([case for case, _ in pairs])
    cells = {verb.label(name): [format_value(case.to_row()[name]) for case, _ in pairs] for name in varied}
    less = []
    for run_verb, runs in done:
        for quantity in run_verb.quantities:
            column = [format_value(getattr(result, quantity.name, None)) for _, result in runs]
            if quantity.in_summary and not _is_list(quantity) and len(runs) == len(pairs) and any(column):
                title = quantity.symbol or quantity.label
                title = title if run_verb is verb else f"{title}, {run_verb.title.lower()}"
                cells[title] = column
                less.append(title)
    if any(_status(result) != Outcome.DONE for _, result in pairs):
        cells["status"] = [_status(result) for _, result in pairs]
    print_table(console, lambda left_out: column_table(cells, left_out, texts=("status",)), less[:0:-1])
    names = [", ".join(format_value(getattr(case, name)) for name in varied) for case, _ in pairs]
    for quantity in verb.quantities:
        if not (quantity.in_summary and _is_list(quantity)):
            continue
        lists = [getattr(result, quantity.name, None) or () for _, result in pairs]
        if any(value is not None for values in lists for value in values):
            _show_lists(quantity, dict(zip(names, lists, strict=True)), console)


def _show_lists(quantity: Quantity, lists: Mapping[str, Sequence[Any]], console: Console) -> None:
    """A quantity that is a list, a column for each case; a case without one has none."""
    length = max(map(len, lists.values()))
    places = [str(i) for i in range(length)]
    columns = {
        name: [*map(format_value, values), *[""] * (length - len(values))]
        for name, values in lists.items()
        if values
    }
    console.print(Text(quantity.description or quantity.label, style="bold"))
    print_table(console, lambda left_out: column_table({"": places} | columns, left_out), list(columns)[:-1])


def _quantity_table(done: VerbRuns) -> Table:
    """One row for each quantity that the only case has, beside it that of the verb beside it."""
    verb, ((_, result),) = done[0]
    others = [(_heading(other_verb, runs[0][0]), runs[0][1]) for other_verb, runs in done[1:]]
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity", no_wrap=True, min_width=len("estimation error"))
    table.add_column("", no_wrap=True)
    table.add_column("" if not others else "theory", justify="right", no_wrap=True)
    for title, _ in others:
        table.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    table.add_column("", overflow="fold")
    for quantity in verb.quantities:
        values = [getattr(result, quantity.name, None)]
        values += [getattr(other, quantity.name, None) for _, other in others]
        if quantity.hidden or not any(map(format_value, values)):
            continue
        name, cells, meaning = (
            quantity.name.replace("_", " "),
            [*map(format_value, values)],
            quantity.description,
        )
        if _is_list(quantity):
            cells, meaning = [""] * len(values), cells[0]
        table.add_row(name, quantity.symbol, *cells, meaning)
    return table


def _heading(verb: Verb[Any, Any], case: Any) -> str:
    """What a verb beside another is called, with the settings that it must be given."""
    needed = [setting for setting in setting_fields(verb.settings).values() if setting.default is MISSING]
    given = [
        f", {setting.rule.symbol or setting.name} = {format_value(getattr(case, setting.name))}"
        for setting in needed
    ]
    return f"{verb.title.lower()}{''.join(given)}"


def _varying_names(cases: Sequence[Any]) -> list[str]:
    """The settings that differ between cases."""
    rows = [case.to_row() for case in cases]
    return [name for name in rows[0] if len({str(row[name]) for row in rows if row[name] is not None}) > 1]


def _describe_shared(verb: Verb[Any, Any], cases: Sequence[Any]) -> list[str]:
    """The settings that play a part and are the same in all cases, in words."""
    row, varied = cases[0].to_row(), _varying_names(cases)
    used_settings = {name: value for name, value in row.items() if value is not None and value is not False}
    words = {
        name: "" if value is True else f" {format_value(value)}" for name, value in used_settings.items()
    }
    return [f"{verb.label(name)}{word}" for name, word in words.items() if name not in varied]


def _case_label(verb: Verb[Any, Any], case: Any, runs: Sequence[tuple[Any, Any]]) -> str:
    """What tells a case from the others."""
    varied = _varying_names([other_case for other_case, _ in runs]) if len(runs) > 1 else []
    return "".join(
        f", {setting_fields(verb.settings)[name].label} {format_value(getattr(case, name))}"
        for name in varied
    )


def _status(result: Any) -> str:
    return str(getattr(result, "outcome", Outcome.DONE))


def _is_list(quantity: Quantity) -> bool:
    return quantity.kind in ("floats", "ints", "texts")
