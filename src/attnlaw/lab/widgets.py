"""Controls as marimo's elements, laid out by their panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import marimo as mo

from attnlaw.lab.controls import Control

ON, VALUE = "on", "value"


def widgets(controls: Iterable[Control], slow: bool = False) -> Any:
    """One element of all controls, its value a dictionary; `slow`: sliders tell where they are let go."""
    return mo.ui.dictionary({one.name: _optional(one, slow) for one in controls})


def values_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """The value of such an element by the names of settings; None for one that is left out."""
    return {
        name: (value[VALUE] if value[ON] else None) if isinstance(value, dict) else value
        for name, value in told.items()
    }


def aside_html(controls: Iterable[Control], elements: Any) -> str:
    """The controls in a column of their own. marimo's sidebar has each twice, and one lags."""
    return f'<aside class="lab lab-aside" aria-label="Settings">{panels_html(controls, elements)}</aside>'


def panels_html(controls: Iterable[Control], elements: Any) -> str:
    """The controls as they stand in the page, a group for each panel."""
    panels: dict[str, list[str]] = {}
    for one in controls:
        element = elements[one.name]
        inner = f"{element[ON]}{element[VALUE]}" if _has_switch(one) else f"{element}"
        told = f'<p class="lab-help">{escape(one.help)}</p>'
        row = f'<div class="lab-setting lab-{one.name}" data-setting="{one.name}">{inner}{told}</div>'
        panels.setdefault(one.panel, []).append(row)
    return "".join(
        f'<fieldset class="lab lab-panel"><legend>{escape(panel)}</legend>{"".join(rows)}</fieldset>'
        for panel, rows in panels.items()
    )


def _has_switch(one: Control) -> bool:
    return one.optional and one.kind == "slider"


def _optional(one: Control, slow: bool) -> Any:
    label = escape(one.label)
    if not _has_switch(one):
        return MAKE[one.kind](one, label, slow)
    return mo.ui.dictionary(
        {ON: mo.ui.switch(value=False, label=label), VALUE: MAKE[one.kind](one, "", slow)}
    )


def _slider(one: Control, label: str, slow: bool) -> Any:
    return mo.ui.slider(
        steps=one.steps, value=one.value, label=label, show_value=True, debounce=slow, full_width=True
    )


def _choice(one: Control, label: str, slow: bool) -> Any:
    return mo.ui.dropdown(one.options, value=one.value, allow_select_none=one.optional, label=label)


def _switch(one: Control, label: str, slow: bool) -> Any:
    return mo.ui.switch(value=bool(one.value), label=label)


def _text(one: Control, label: str, slow: bool) -> Any:
    return mo.ui.text(value="" if one.value is None else str(one.value), label=label, full_width=True)


MAKE = {"slider": _slider, "choice": _choice, "switch": _switch, "text": _text}
