"""The model of a verb's page: its controls, and its state as settings, as a command and as Python code."""

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
    """What a page computes: a verb, and the settings that differ from their defaults.

    `simulation_arguments` are the additional settings of the simulation. None means that no simulation runs.
    """

    verb: Verb[Any, Any]
    arguments: Mapping[str, Any]
    simulation_arguments: Mapping[str, Any] | None = None

    @property
    def simulation_settings(self) -> dict[str, Any]:
        return {**self.arguments, **(self.simulation_arguments or {})}

    def as_command(self) -> str:
        known = setting_fields(self.verb.settings)
        if self.simulation_arguments is not None and self.verb.simulation is not None:
            known = known | setting_fields(self.verb.simulation.settings)
        words = ["attnlaw", self.verb.name]
        for name, value in self.simulation_settings.items():
            if value is True or not known[name].rule.positional:
                words.append(as_option(name))
            if value is not True:
                words.append(_option_text(value))
        return shlex.join(words)

    def as_python(self) -> str:
        lines = ["import attnlaw", "", f"found = attnlaw.{self.verb.name}({_arguments(self.arguments)})"]
        if self.simulation_arguments is not None and self.verb.simulation is not None:
            lines[1:1] = ["from attnlaw.verbs import find_verb"]
            arguments = _arguments(self.simulation_settings)
            lines.append(f"trained = find_verb({self.verb.simulation.name!r})({arguments})")
        return "\n".join(lines)


@dataclass(frozen=True)
class PageModel:
    """The page of a verb in the lab. The settings `fixed` when the page was opened have no control."""

    verb: Verb[Any, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, path: str | None = None) -> PageModel:
        """Return the page of the verb with this name. `path` is the first argument of the verb's command."""
        verb = find_verb(name)
        return cls(verb, {} if path is None else {positional_settings(verb)[0]: path})

    @cached_property
    def controls(self) -> list[Control]:
        return build_controls(self.verb.settings, excluded=tuple(positional_settings(self.verb)))

    @cached_property
    def simulation_controls(self) -> list[Control]:
        """The controls of those settings of the simulation that the verb does not have."""
        if self.verb.simulation is None:
            return []
        common = tuple(setting_fields(self.verb.settings))
        return build_controls(self.verb.simulation.settings, excluded=common)

    def state(self, values: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> State:
        """Return the state for these values of the controls, and of those `beside` if a simulation runs."""
        given = {**self.fixed, **settings_from_controls(self.verb.settings, values)}
        if beside is None or self.verb.simulation is None:
            return State(self.verb, given)
        known = setting_fields(self.verb.simulation.settings)
        more = {name: value for name, value in beside.items() if value != known[name].default}
        return State(self.verb, given, more)

    def idle(self, values: Mapping[str, Any]) -> set[str]:
        return idle_settings(self.verb.settings, values)


def page_names() -> list[str]:
    """Return the verbs whose pages do not need a path."""
    return [name for name in VERBS if not positional_settings(find_verb(name))]


def positional_settings(verb: Verb[Any, Any]) -> list[str]:
    """Return the settings that the command of a verb takes without an option name."""
    return [name for name, known in setting_fields(verb.settings).items() if known.rule.positional]


def settings_from_controls(settings: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen settings that have an effect. Settings with infinity as default keep it."""
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
    """Return the settings that have no effect for these values of the controls."""
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
    """Return a value as Python code. Infinity becomes a text, which settings accept as a number.

    >>> _literal([16, math.inf]), _literal("a")
    ("[16, 'inf']", "'a'")
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr("inf") if value == math.inf else repr(value)
