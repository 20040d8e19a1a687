"""Print results of any verb in the terminal: one case as a list of quantities, several cases as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.answer import Answer
from attnlaw.core.estimate import Outcome, format_value
from attnlaw.core.quantity import Quantity
from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.render.terminal.console import Column, print_message, print_table
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, without


def show(result: Result, console: Console, answer: Answer | None = None, details: bool = False) -> None:
    """Print a result and its simulation. With an answer, only `details` shows all quantities."""
    parts = [result, *([] if result.simulation is None else [result.simulation])]
    console.print(Text(result.verb.title, style="bold"))
    console.print(Text(", ".join(_describe_shared(result)), style="dim"))
    if result.verb.provenance:
        console.print(Text(result.verb.provenance, style="dim"))
    print_answer(console, answer)
    every = details or answer is None
    if len(result) == 1:
        print_table(console, _quantity_columns(parts, every))
    else:
        _show_rows(parts, console)
    for part in parts:
        for row in part.rows.iter_rows(named=True):
            if row["remark"]:
                known = [name for name in _varying_names(part) if row[name] is not None]
                label = "".join(f", {part.verb.label(name)} {format_value(row[name])}" for name in known)
                print_message(f"{part.verb.name}{label}: {row['status']}: {row['remark']}")
        if "seeds" in part.rows.columns and (part.rows["seeds"] == 1).any():
            print_message("There is no standard error, because seeds is 1. Try --seeds 2 or more.")
    if answer is not None and answer.next_commands:
        console.print()
        print_next(console, answer.next_commands)


def _show_rows(parts: Sequence[Result], console: Console) -> None:
    """Print a row for each case: varying settings and summary quantities. Tables of lists follow."""
    result, cases = parts[0], range(len(parts[0]))
    verb, varied = result.verb, _varying_names(result)
    cells = {verb.label(name): [format_value(value) for value in result.rows[name]] for name in varied}
    less: list[str] = []
    meanings: dict[str, str] = {}
    for part in parts:
        values = [part.values(case) for case in range(len(part))]
        for quantity in part.verb.quantities:
            column = [format_value(known[quantity.name]) for known in values]
            if quantity.in_summary and not _is_list(quantity) and len(part) == len(result) and any(column):
                title = quantity.symbol or quantity.label
                title = title if part is result else f"{title}, {part.verb.title.lower()}"
                cells[title] = column
                less.append(title)
                meanings |= {title: quantity.description} if quantity.description and part is result else {}
    if any(status != Outcome.DONE for status in result.rows["status"]):
        cells["status"] = result.rows["status"].to_list()
    columns = [Column(title, column, is_text=title == "status") for title, column in cells.items()]
    print_definitions(console, without(meanings, print_table(console, columns, less[:0:-1])))
    names = [", ".join(format_value(result.rows[name][case]) for name in varied) for case in cases]
    for quantity in verb.quantities:
        if not (quantity.in_summary and _is_list(quantity)):
            continue
        lists = [result.values(case)[quantity.name] or () for case in cases]
        if any(value is not None for values in lists for value in values):
            _show_lists(quantity, dict(zip(names, lists, strict=True)), console)


def _show_lists(quantity: Quantity, lists: Mapping[str, Sequence[Any]], console: Console) -> None:
    length = max(map(len, lists.values()))
    columns = [
        Column(name, [*map(format_value, values), *[""] * (length - len(values))])
        for name, values in lists.items()
        if values
    ]
    console.print(Text(quantity.description or quantity.label, style="bold"))
    places = Column("", [str(i) for i in range(length)])
    print_table(console, [places, *columns], [column.title for column in columns[:-1]])


def _quantity_columns(parts: Sequence[Result], every: bool) -> list[Column]:
    """Return the columns of a table of quantities of the only case, with those of its simulation."""
    titles = ["theory", *map(_heading, parts[1:])] if len(parts) > 1 else [""]
    known, lines = [part.values() for part in parts], []
    for quantity in parts[0].verb.quantities:
        cells = [format_value(values.get(quantity.name)) for values in known]
        if quantity.hidden or not any(cells) or not (every or quantity.in_summary):
            continue
        meaning = quantity.description
        if _is_list(quantity):
            cells, meaning = [""] * len(cells), cells[0]
        lines.append((quantity.name.replace("_", " "), quantity.symbol, *cells, meaning))
    names, symbols, *numbers, meanings = ([line[i] for line in lines] for i in range(len(parts) + 3))
    return [
        Column("quantity".ljust(len("estimation error")), names, is_text=True),
        Column("", symbols, is_text=True),
        *map(Column, titles, numbers),
        Column("", meanings, is_text=True, wraps=True),
    ]


def _heading(result: Result) -> str:
    row = result.row()
    needed = [field for field in setting_fields(result.verb.settings).values() if field.default is MISSING]
    given = [f", {field.rule.symbol or field.name} = {format_value(row[field.name])}" for field in needed]
    return f"{result.verb.title.lower()}{''.join(given)}"


def _varying_names(result: Result) -> list[str]:
    names = result.verb.setting_columns.values()
    return [name for name in names if len({str(value) for value in result.rows[name].drop_nulls()}) > 1]


def _describe_shared(result: Result) -> list[str]:
    varied, words = _varying_names(result), []
    for name, value in result.settings().items():
        if name not in varied and value is not None and value is not False:
            words.append(f"{result.verb.label(name)}{'' if value is True else f' {format_value(value)}'}")
    return words


def _is_list(quantity: Quantity) -> bool:
    return quantity.kind in ("floats", "ints", "texts")
