"""Controls as marimo's elements, laid out by their panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import marimo as mo

from attnlaw.lab.controls import Control

Changed = Callable[[dict[str, Any]], None]


class Panel:
    """The elements of some controls; `changed` is told all values whenever one changes.

    Each element tells its own changes: of marimo's dictionary of elements, changes of several that are still
    waiting are merged into the last of them. `slow`: sliders tell where they are let go.
    """

    def __init__(self, controls: Sequence[Control], changed: Changed, slow: bool = False) -> None:
        self.controls, self.changed = controls, changed
        self.on = {one.name: not _has_switch(one) for one in controls}
        self.at = {one.name: one.value for one in controls}
        self.elements = {
            one.name: MAKE[one.kind](
                one, "" if _has_switch(one) else escape(one.label), slow, self._tells(self.at, one.name)
            )
            for one in controls
        }
        self.switches = {
            one.name: mo.ui.switch(label=escape(one.label), on_change=self._tells(self.on, one.name))
            for one in controls
            if _has_switch(one)
        }

    @property
    def values(self) -> dict[str, Any]:
        """By the names of settings; None for one that is left out."""
        return {name: value if self.on[name] else None for name, value in self.at.items()}

    def _tells(self, kept: dict[str, Any], name: str) -> Callable[[Any], None]:
        def tell(value: Any) -> None:
            kept[name] = value
            self.changed(self.values)

        return tell

    def aside_html(self) -> str:
        """The controls in a column of their own. marimo's sidebar has each twice, and one lags."""
        return f'<aside class="lab lab-aside" aria-label="Settings">{self.html()}</aside>'

    def html(self) -> str:
        """The controls as they stand in the page, a group for each panel."""
        panels: dict[str, list[str]] = {}
        for one in self.controls:
            inner = f"{self.switches.get(one.name, '')}{self.elements[one.name]}"
            told = f'<p class="lab-help">{escape(one.help)}</p>'
            row = f'<div class="lab-setting lab-{one.name}" data-setting="{one.name}">{inner}{told}</div>'
            panels.setdefault(one.panel, []).append(row)
        return "".join(
            f'<fieldset class="lab lab-panel"><legend>{escape(panel)}</legend>{"".join(rows)}</fieldset>'
            for panel, rows in panels.items()
        )


def _has_switch(one: Control) -> bool:
    return one.optional and one.kind == "slider"


def _slider(one: Control, label: str, slow: bool, tell: Callable[[Any], None]) -> Any:
    return mo.ui.slider(
        steps=one.steps,
        value=one.value,
        label=label,
        show_value=True,
        debounce=slow,
        full_width=True,
        on_change=tell,
    )


def _choice(one: Control, label: str, slow: bool, tell: Callable[[Any], None]) -> Any:
    return mo.ui.dropdown(
        one.options, value=one.value, allow_select_none=one.optional, label=label, on_change=tell
    )


def _switch(one: Control, label: str, slow: bool, tell: Callable[[Any], None]) -> Any:
    return mo.ui.switch(value=bool(one.value), label=label, on_change=tell)


def _text(one: Control, label: str, slow: bool, tell: Callable[[Any], None]) -> Any:
    return mo.ui.text(
        value="" if one.value is None else str(one.value), label=label, full_width=True, on_change=tell
    )


MAKE = {"slider": _slider, "choice": _choice, "switch": _switch, "text": _text}
