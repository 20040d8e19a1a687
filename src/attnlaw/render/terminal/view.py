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
from attnlaw.core.result import format_value
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
    for one, own in done:
        for case, found in own:
            if getattr(found, "remark", None):
                print_message(f"{one.name}{_case_label(one, case, own)}: {_status(found)}: {found.remark}")
        if any(getattr(case, "seeds", None) == 1 for case, _ in own):
            print_message("one seed has no standard error; --seeds 2 or more gives one")


def _show_rows(done: VerbRuns, console: Console) -> None:
    """A row for each case: what varies, and the quantities in brief; lists as columns of a second table."""
    verb, pairs = done[0]
    varied = _varying_names([case for case, _ in pairs])
    cells = {verb.label(name): [format_value(case.to_row()[name]) for case, _ in pairs] for name in varied}
    less = []
    for one, own in done:
        for quantity in one.quantities:
            column = [format_value(getattr(found, quantity.name, None)) for _, found in own]
            if quantity.in_summary and not _is_list(quantity) and len(own) == len(pairs) and any(column):
                title = quantity.symbol or quantity.label
                title = title if one is verb else f"{title}, {one.title.lower()}"
                cells[title] = column
                less.append(title)
    if any(_status(found) != Outcome.DONE for _, found in pairs):
        cells["status"] = [_status(found) for _, found in pairs]
    print_table(console, lambda left_out: column_table(cells, left_out, texts=("status",)), less[:0:-1])
    names = [", ".join(format_value(getattr(case, name)) for name in varied) for case, _ in pairs]
    for quantity in verb.quantities:
        if not (quantity.in_summary and _is_list(quantity)):
            continue
        lists = [getattr(found, quantity.name, None) or () for _, found in pairs]
        if any(value is not None for values in lists for value in values):
            _show_lists(quantity, dict(zip(names, lists, strict=True)), console)


def _show_lists(quantity: Quantity, lists: Mapping[str, Sequence[Any]], console: Console) -> None:
    """A quantity that is a list, a column for each case; a case without one has none."""
    columns = {name: list(map(format_value, values)) for name, values in lists.items() if values}
    places = [str(i) for i in range(len(next(iter(columns.values()))))]
    console.print(Text(quantity.description or quantity.label, style="bold"))
    print_table(console, lambda left_out: column_table({"": places} | columns, left_out), list(columns)[:-1])


def _quantity_table(done: VerbRuns) -> Table:
    """One row for each quantity that the only case has, beside it that of the verb beside it."""
    verb, ((_, found),) = done[0]
    others = [(_heading(one, own[0][0]), own[0][1]) for one, own in done[1:]]
    table = Table(box=None, pad_edge=False)
    table.add_column("quantity", no_wrap=True, min_width=len("estimation error"))
    table.add_column("", no_wrap=True)
    table.add_column("" if not others else "theory", justify="right", no_wrap=True)
    for title, _ in others:
        table.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    table.add_column("", overflow="fold")
    for quantity in verb.quantities:
        values = [getattr(found, quantity.name, None)]
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
    needed = [one for one in setting_fields(verb.settings).values() if one.default is MISSING]
    given = [f", {one.rule.symbol or one.name} = {format_value(getattr(case, one.name))}" for one in needed]
    return f"{verb.title.lower()}{''.join(given)}"


def _varying_names(cases: Sequence[Any]) -> list[str]:
    """The settings that differ between cases."""
    rows = [case.to_row() for case in cases]
    return [name for name in rows[0] if len({str(row[name]) for row in rows if row[name] is not None}) > 1]


def _describe_shared(verb: Verb[Any, Any], cases: Sequence[Any]) -> list[str]:
    """The settings that play a part and are the same in all cases, in words."""
    row, varied = cases[0].to_row(), _varying_names(cases)
    told = {name: value for name, value in row.items() if value is not None and value is not False}
    words = {name: "" if value is True else f" {format_value(value)}" for name, value in told.items()}
    return [f"{verb.label(name)}{word}" for name, word in words.items() if name not in varied]


def _case_label(verb: Verb[Any, Any], case: Any, own: Sequence[tuple[Any, Any]]) -> str:
    """What tells a case from the others."""
    varied = _varying_names([one for one, _ in own]) if len(own) > 1 else []
    return "".join(
        f", {setting_fields(verb.settings)[name].label} {format_value(getattr(case, name))}"
        for name in varied
    )


def _status(found: Any) -> str:
    return str(getattr(found, "outcome", Outcome.DONE))


def _is_list(quantity: Quantity) -> bool:
    return quantity.kind in ("floats", "ints", "texts")
