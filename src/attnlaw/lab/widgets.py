"""Turn controls into elements of marimo, grouped by their panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import marimo as mo
from markupsafe import Markup

from attnlaw.lab.controls import Control
from attnlaw.lab.html import lab_html

OnChange = Callable[[dict[str, Any]], None]


class Panel:
    """The marimo elements of some controls. Each has its own handler.

    In marimo's dictionary of elements, the last of several waiting changes would replace the others.
    `changed` receives all values whenever one changes. Sliders of a `slow` panel report only on release.
    """

    def __init__(self, controls: Sequence[Control], changed: OnChange, slow: bool = False) -> None:
        self.controls, self.on_change = controls, changed
        self.enabled = {control.name: not _has_switch(control) for control in controls}
        self.positions = {control.name: control.value for control in controls}
        self.elements = {
            control.name: ELEMENT_BUILDERS[control.kind](
                control,
                slow,
                label="" if _has_switch(control) else lab_html("label", control.label),
                on_change=self._change_handler(self.positions, control.name),
            )
            for control in controls
        }
        self.switches = {
            control.name: mo.ui.switch(
                label=lab_html("label", control.label),
                on_change=self._change_handler(self.enabled, control.name),
            )
            for control in controls
            if _has_switch(control)
        }

    @property
    def values(self) -> dict[str, Any]:
        """The value of each setting, or None if it has no value."""
        return {name: value if self.enabled[name] else None for name, value in self.positions.items()}

    def _change_handler(self, kept: dict[str, Any], name: str) -> Callable[[Any], None]:
        def tell(value: Any) -> None:
            kept[name] = value
            self.on_change(self.values)

        return tell

    def aside_html(self) -> str:
        """Return the controls in a column: marimo's sidebar would show a second copy that lags."""
        return lab_html("aside", self._groups())

    def simulation_html(self, title: str, *buttons: Any) -> str:
        """Return the controls of a simulation, and the buttons that start and stop it."""
        panels = Markup(lab_html("panels", self._groups()))
        return lab_html("simulation", title, panels, [Markup(f"{button}") for button in buttons])

    def _groups(self) -> list[tuple[str, list[tuple[str, Markup, str]]]]:
        panels: dict[str, list[tuple[str, Markup, str]]] = {}
        for control in self.controls:
            element = Markup(f"{self.switches.get(control.name, '')}{self.elements[control.name]}")
            panels.setdefault(control.panel, []).append((control.name, element, control.help))
        return list(panels.items())


def _has_switch(control: Control) -> bool:
    return control.optional and control.kind == "slider"


ELEMENT_BUILDERS: dict[str, Callable[..., Any]] = {
    "slider": lambda control, slow, **common: mo.ui.slider(
        steps=control.steps, value=control.value, show_value=True, debounce=slow, full_width=True, **common
    ),
    "choice": lambda control, slow, **common: mo.ui.dropdown(
        control.options, value=control.value, allow_select_none=control.optional, **common
    ),
    "switch": lambda control, slow, **common: mo.ui.switch(value=bool(control.value), **common),
    "text": lambda control, slow, **common: mo.ui.text(
        value="" if control.value is None else str(control.value), full_width=True, **common
    ),
}
