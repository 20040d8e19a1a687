"""What a page of a verb works on: its controls, and its state, which repeats as a command or as Python."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attnlaw.core.errors import as_option
from attnlaw.core.settings import Settings, setting_fields
from attnlaw.core.verb import Verb
from attnlaw.lab.controls import Control, build_controls
from attnlaw.verbs import VERBS, find_verb


@dataclass(frozen=True)
class State:
    """A verb with what was given to it, and what was given to the verb beside it, where that runs too."""

    verb: Verb[Any, Any]
    arguments: Mapping[str, Any]
    simulation_arguments: Mapping[str, Any] | None = None

    @property
    def simulation_settings(self) -> dict[str, Any]:
        """What is given to the verb beside it."""
        return {**self.arguments, **(self.simulation_arguments or {})}

    def as_command(self) -> str:
        """The command whose numbers are those of the page."""
        known = setting_fields(self.verb.settings)
        more = (
            {}
            if self.simulation_arguments is None or self.verb.simulation is None
            else setting_fields(self.verb.simulation.settings)
        )
        words = ["attnlaw", self.verb.name]
        for name, value in self.simulation_settings.items():
            rule = (known | more)[name].rule
            if value is True:
                words.append(as_option(name))
            else:
                words += [_option_text(value)] if rule.positional else [as_option(name), _option_text(value)]
        return shlex.join(words)

    def as_python(self) -> str:
        """The same in Python."""
        lines = ["import attnlaw", "", f"found = attnlaw.{self.verb.name}({_arguments(self.arguments)})"]
        if self.simulation_arguments is not None and self.verb.simulation is not None:
            lines[1:1] = ["from attnlaw.verbs import find_verb"]
            lines.append(
                f"trained = find_verb({self.verb.simulation.name!r})({_arguments(self.simulation_settings)})"
            )
        return "\n".join(lines)


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


def page_names() -> list[str]:
    """The verbs whose pages need no path: those that look at no file."""
    return [name for name in VERBS if not positional_settings(find_verb(name))]


def positional_settings(verb: Verb[Any, Any]) -> list[str]:
    """The settings that are words without an option's name."""
    return [name for name, known in setting_fields(verb.settings).items() if known.rule.positional]


def settings_from_controls(settings: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """What the controls of a page say: settings that play a part, without those at their defaults.

    A setting that is infinite by default is given beside that: a finite value is compared with the limit.
    """
    known, unused = setting_fields(settings), idle_settings(settings, values)
    overrides = {}
    for name, value in values.items():
        field = known[name]
        if value is None or value == "" or name in unused:
            continue
        if field.default == math.inf and field.rule.sweepable and value != math.inf:
            overrides[name] = [value, math.inf]
        elif value != field.default:
            overrides[name] = value
    return overrides


def idle_settings(settings: type[Settings], values: Mapping[str, Any]) -> set[str]:
    """The settings that play no part, whatever their controls say."""
    known = setting_fields(settings)
    given = {name for name, value in values.items() if value not in (None, "")}
    idle_names = set()
    for name in values:
        rule = known[name].rule
        for owner, attribute in rule.conditions:
            chosen = values.get(owner, known[owner].default)
            if not getattr((known[owner].rule.choices or {})[chosen], attribute):
                idle_names.add(name)
        if (rule.requires and rule.requires not in given) or given & set(rule.exclusions):
            idle_names.add(name)
    return idle_names


def _option_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_literal(value)}" for name, value in given.items())


def _literal(value: Any) -> str:
    """A value as Python reads it; infinity as text, which settings take for the number.

    >>> _literal([16, math.inf]), _literal("a")
    ("[16, 'inf']", "'a'")
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr("inf") if value == math.inf else repr(value)
