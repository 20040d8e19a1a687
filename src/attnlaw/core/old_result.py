"""Results that show themselves: a line of text, a table in a notebook, a chart, all by what a verb declares.

A record names its verb, `class Prediction(DisplayMixin, verb="learn")`, and a verb attaches the case to it.
Several cases are a `Results`: a list that is also a table of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any, TypeVar

from attnlaw.core.estimate import Outcome, format_value

R = TypeVar("R")
MAX_LIST_ENTRIES = 6  # entries of a list; JSON has them all
STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A small table; every cell is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        html_cells = (f'<{tag} style="{CELL}">{escape(cell)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(html_cells)}</tr>"

    body = "".join(line(cells, "td") for cells in rows)
    return f'<table style="{STYLE}"><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table>'


def frame_html(frame: Any, columns: Sequence[str], most: int = 20) -> str:
    """The first rows of a polars table, with those of some columns that hold anything."""
    kept = [name for name in columns if name in frame.columns and frame[name].count()]
    rows = ([format_value(value) for value in row] for row in frame.select(kept).head(most).iter_rows())
    more = f"<p>and {frame.height - most} rows more</p>" if frame.height > most else ""
    return f"{html_table([name.replace('_', ' ') for name in kept], rows)}{more}"


class PartialSettings(dict[str, Any]):
    """What is known of a case that no verb made: some of its settings by name."""

    def to_row(self) -> dict[str, Any]:
        return self


class DisplayMixin:
    """The base of results; `verb` is the name of the one that declares what they hold."""

    _verb = ""
    _case: Any = None

    def __init_subclass__(cls, verb: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if verb:
            cls._verb = verb

    @property
    def display_record(self) -> Any:
        """The record that has the declared quantities and tables: itself, or one made of it."""
        return self

    def attach_case(self, case: Any) -> None:
        """Keep the settings that this is the result of, for its table and its chart."""
        object.__setattr__(self, "_case", case)

    def _displayed_cells(self) -> list[tuple[Any, str]]:
        """The declared quantities that it has, with their cells."""
        verb = _import_verb(self._verb)
        values = verb.values(self.display_record)
        cells = (
            (quantity, format_value(values[quantity.name]))
            for quantity in verb.quantities
            if not quantity.hidden
        )
        return [(quantity, text) for quantity, text in cells if text]

    def __repr__(self) -> str:
        parts = [
            f"{quantity.symbol or quantity.label} {text}"
            for quantity, text in self._displayed_cells()
            if quantity.in_summary
        ]
        return f"<{type(self).__name__} {', '.join([*parts, *_status_texts(self)])}>"

    def _repr_html_(self) -> str:
        title = _import_verb(self._verb).title
        settings = "" if self._case is None else _settings_text(self._case)
        rows = [(quantity.label, text, quantity.description) for quantity, text in self._displayed_cells()]
        table = html_table(("quantity", "value", ""), rows)
        ends = (f"<p>{escape(text)}</p>" for text in _status_texts(self))
        return "".join([f"<p><b>{escape(title)}</b> {escape(settings)}</p>", *ends, table])

    def plot(self, name: str | None = None) -> Any:
        """The chart of this name that its verb declares, or the first that can be drawn, as Altair has it."""
        return Results(self._verb, [self._case], [self.display_record]).plot(name)


class Results(list[R]):
    """Results of several cases of a verb (or of its name): a list, a table as `rows`, a chart by `plot`."""

    def __init__(self, verb: Any, cases: Sequence[Any], results: Iterable[R]) -> None:
        super().__init__(results)
        self.verb = _import_verb(verb) if isinstance(verb, str) else verb
        self.cases = [PartialSettings() if case is None else case for case in cases]

    @property
    def rows(self) -> Any:
        """A row for each case: settings, quantities with their errors, status, remark."""
        from attnlaw.core.tables import to_frame, to_schema

        pairs = zip(self.cases, self, strict=True)
        return to_frame((self.verb.row(*pair) for pair in pairs), to_schema(self.verb.schema))

    def _repr_html_(self) -> str:
        rows = [case.to_row() for case in self.cases]
        varied = [name for name in (rows[0] if rows else ()) if len({str(row[name]) for row in rows}) > 1]
        values = [self.verb.values(result) for result in self]
        known = (quantity for quantity in self.verb.quantities if quantity.in_summary)
        brief = [
            quantity
            for quantity in known
            if any(format_value(case_values[quantity.name]) for case_values in values)
        ]
        head = [
            *(self.verb.label(name) for name in varied),
            *(quantity.symbol or quantity.label for quantity in brief),
        ]
        body = (
            [
                *(format_value(row[name]) for name in varied),
                *(format_value(case_values[quantity.name]) for quantity in brief),
            ]
            for row, case_values in zip(rows, values, strict=True)
        )
        title = f"<p><b>{escape(self.verb.title)}</b>, {len(self)} cases</p>"
        return f"{title}{html_table(head, body)}"

    def plot(self, name: str | None = None) -> Any:
        """The chart of this name that the verb declares, or the first that can be drawn, as Altair has it.

        It is drawn by vl-convert where a notebook shows it, and needs no network.
        """
        pairs = list(zip(self.cases, self, strict=True))
        return import_module("attnlaw.report.plot").plot(self.verb, pairs, name)


def _import_verb(name: str) -> Any:
    """The verb of a name. The room of verbs, which nothing below it imports, is asked by name, here alone."""
    return import_module("attnlaw.verbs").find_verb(name)


def _settings_text(case: Any) -> str:
    settings = {
        name: value for name, value in case.to_row().items() if value is not None and value is not False
    }
    words = {
        name.replace("_", " "): "" if value is True else format_value(value)
        for name, value in settings.items()
    }
    return ", ".join(f"{name} {value}".strip() for name, value in words.items())


def _status_texts(result: Any) -> list[str]:
    """How it ended, where that is worth a word."""
    status = str(getattr(result, "outcome", Outcome.DONE))
    remark = getattr(result, "remark", None)
    return [text for text in (status, remark) if text and text != Outcome.DONE]
