"""What a page of a verb works on: the verb, what it was given on the command line, its controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attnlaw.core.settings import setting_fields
from attnlaw.core.verb import Verb
from attnlaw.lab.controls import Control, State, build_controls, idle_settings, settings_from_controls
from attnlaw.lab.html import lab_html
from attnlaw.verbs import VERBS, find_verb


@dataclass(frozen=True)
class PageModel:
    """A page: its verb, and the settings that it was opened with, which have no control."""

    verb: Verb[Any, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, path: str | None = None) -> PageModel:
        """The page of a verb; `path` is the word that its command takes."""
        verb = find_verb(name)
        return cls(verb, {} if path is None else {positional_settings(verb)[0]: path})

    @cached_property
    def controls(self) -> list[Control]:
        return build_controls(self.verb.settings, excluded=tuple(positional_settings(self.verb)))

    @cached_property
    def simulation_controls(self) -> list[Control]:
        """The controls of the simulation: those that the verb itself does not have."""
        if self.verb.simulation is None:
            return []
        return build_controls(
            self.verb.simulation.settings, excluded=tuple(setting_fields(self.verb.settings))
        )

    def state(self, values: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> State:
        """The state that the controls tell; with those of the simulation, that runs, too."""
        given = {**self.fixed, **settings_from_controls(self.verb.settings, values)}
        if beside is None or self.verb.simulation is None:
            return State(self.verb, given)
        known = setting_fields(self.verb.simulation.settings)
        more = {name: value for name, value in beside.items() if value != known[name].default}
        return State(self.verb, given, more)

    def idle(self, values: Mapping[str, Any]) -> set[str]:
        """The settings whose controls play no part now."""
        return idle_settings(self.verb.settings, values)

    def head_html(self) -> str:
        """The head of the page: what it is, and where the others are."""
        links = [(name, name == self.verb.name) for name in dict.fromkeys([*page_names(), self.verb.name])]
        line = VERBS[self.verb.name][1] if self.verb.name in VERBS else self.verb.title
        return lab_html("head", self.verb.title, line, links)


def page_names() -> list[str]:
    """The verbs whose pages need no path: those that look at no file."""
    return [name for name in VERBS if not positional_settings(find_verb(name))]


def positional_settings(verb: Verb[Any, Any]) -> list[str]:
    """The settings that are words without an option's name."""
    return [name for name, known in setting_fields(verb.settings).items() if known.rule.positional]
