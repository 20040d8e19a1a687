"""The state of a page: what its controls say as settings of a verb, and the words that repeat it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnlaw.core.errors import as_option
from attnlaw.core.settings import Settings, setting_fields
from attnlaw.core.verb import Verb


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
