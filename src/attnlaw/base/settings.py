"""Settings: a frozen record whose fields say what they mean, what they may be, and where they play a part.

    @settings
    class Coin(Settings):
        bias: float = setting(0.5, "Probability of heads.", symbol="p", above=0, most=1, many=True)
        tosses: int = setting(100, "How often.", symbol="n", least=1)

Options of a command, keys of a study file, arguments of the Python function, columns of rows and labels are
read off it. A value is checked when the record is made, wherever that is, and a mistake is one `BadSetting`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from types import NoneType, UnionType
from typing import Any, Self, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.values import WORDS, fitted_to, number_in, span
from attnlaw.base.variants import Variants

C = TypeVar("C")


@dataclass(frozen=True)
class Setting:
    """One field of a record of settings: what it means, what it may be, and where it plays a part."""

    help: str
    symbol: str = ""
    panel: str = "Settings"
    above: float | None = None
    least: float | None = None
    most: float | None = None
    infinite: bool = False  # inf is a value, too
    choices: Mapping[str, Any] | None = None  # a table of variants
    many: bool = False  # several values make several cases: a list, `a,b,c`, or FROM:TO:COUNT
    repeats: bool = False  # texts of one case: an option given once for each, commas and all; a list
    cases: tuple[Any, ...] = ()  # the values of a command that gives none: a table instead of one default
    expands: str | None = None  # "module:function" from a value to those that it stands for
    file: bool = False  # a path or a pattern: relative ones in a study start at its file
    positional: bool = False  # a word of the command line without an option's name
    needs: str | None = None  # another setting that must be given
    unless: str | tuple[str, ...] = ()  # other settings that take its place
    where: tuple[str, str] | tuple[tuple[str, str], ...] = ()  # (setting, attribute of its chosen variant)s
    local: bool = False  # how this machine works (threads): changes no number, is in no row and no study
    remedy: str = ""  # what to do where a value is none of these
    metavar: str | None = None
    usual: tuple[float, float] | None = None  # what a slider of it spans; others are as good
    lab: Any = None  # the value that the lab starts with, where that is not the default

    @property
    def rivals(self) -> tuple[str, ...]:
        """The settings that take its place."""
        return (self.unless,) if isinstance(self.unless, str) else self.unless

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """Settings, each with the attribute of its chosen variant that makes this one count; all must."""
        match self.where:
            case (str() as owner, str() as attribute):
                return ((owner, attribute),)
            case several:
                return several


@dataclass(frozen=True)
class Declared:
    """A setting with its types and its default."""

    name: str
    rule: Setting
    kinds: tuple[Any, ...]
    default: Any

    @property
    def label(self) -> str:
        words = self.name.replace("_", " ")
        return f"{words} {self.rule.symbol}" if self.rule.symbol else words

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers and nothing else: FROM:TO:COUNT then makes several of them."""
        return set(self.kinds) <= {int, float}

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        rule = self.rule
        if isinstance(rule.choices, Variants):
            return rule.choices.expected
        if rule.choices is not None:
            return f"expected one of {', '.join(rule.choices)}"
        bounds = [
            f"{word} {bound:.15g}"
            for word, bound in (("above", rule.above), ("of at least", rule.least), ("of at most", rule.most))
            if bound is not None
        ]
        kinds = " or ".join(WORDS.get(kind, "a value") for kind in self.kinds)
        kinds = "a text or a list of texts" if rule.repeats else kinds
        words = " ".join(filter(None, ["expected", kinds, " and ".join(bounds)]))
        told = f"{words}, or inf" if rule.infinite else words
        return f"{told}; {rule.remedy}" if rule.remedy else told

    def checked(self, value: Any) -> Any:
        """The value in its type; a `BadSetting` where it is not what was declared."""
        if value is None and self.default is None:
            return None
        value = (value,) if self.rule.repeats and isinstance(value, str) else value
        for kind in self.kinds:
            fitted = fitted_to(kind, value)
            if fitted is not None and self._accepts(fitted):
                return fitted
        raise BadSetting(self.name, self.expected, value)

    def _accepts(self, value: Any) -> bool:
        rule = self.rule
        if rule.choices is not None:
            return value in rule.choices
        numbers = value if isinstance(value, tuple) else (value,)
        return all(_inside(rule, number) for number in numbers if isinstance(number, int | float))

    def from_word(self, word: Any) -> Any:
        """What a word of the command line stands for; the word itself where it is no such number."""
        return number_in(word) if {int, float} & set(self.kinds) else word

    def from_words(self, word: Any) -> list[Any]:
        """The values that words of the command line stand for: several where `many` of them make cases."""
        if isinstance(word, list | tuple):
            return [value for one in word for value in self.from_words(one)]
        if not self.rule.many or self.rule.file or not isinstance(word, str):
            return [self.from_word(word)]
        if ":" in word and self.is_number:
            return list(span(self.name, word))
        parts = [part.strip() for part in word.split(",") if part.strip()]
        if not parts:
            raise BadSetting(self.name, self.expected, word)
        return list(dict.fromkeys(self.from_word(part) for part in parts))


def setting(default: Any = MISSING, help: str = "", **rules: Any) -> Any:
    """A field of a record of settings."""
    return field(default=default, metadata={"setting": Setting(help, **rules)})


def again(record: type, name: str, **changes: Any) -> Any:
    """A field that another record has, with some of its rules changed."""
    one = declared(record)[name]
    return field(default=one.default, metadata={"setting": replace(one.rule, **changes)})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, again))
def settings(cls: type[C]) -> type[C]:
    """A frozen record whose fields are checked when it is made, wherever that is."""
    return dataclass(frozen=True, kw_only=True)(cls)


class Settings:
    """Base of all records of settings."""

    def __post_init__(self) -> None:
        for name, one in declared(type(self)).items():
            object.__setattr__(self, name, one.checked(getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Rules between settings; raises a `BadSetting` that names one of them."""

    @classmethod
    def of(cls, given: Mapping[str, Any], verb: str) -> Self:
        """The record of what was given: unknown names get a suggestion, contradictions one line."""
        known = declared(cls)
        for name in given:
            known_name(name, known, verb)
        for name, one in known.items():
            if name not in given and one.default is MISSING:
                raise BadSetting(name, "is missing")
        for name in given:
            rule = known[name].rule
            if rule.needs is not None and given.get(rule.needs) is None:
                raise BadSetting(name, f"needs {{{rule.needs}}}")
            for other in rule.rivals:
                if given.get(other) is not None:
                    raise BadSetting(name, f"cannot stand beside {{{other}}}; choose one")
        return cls(**given)

    def unused(self) -> set[str]:
        """The settings that play no part here: null in rows, left out of labels."""
        known = declared(type(self))
        idle = set()
        for name, one in known.items():
            rule = one.rule
            for owner, attribute in rule.conditions:
                choices = known[owner].rule.choices or {}
                if not getattr(choices[getattr(self, owner)], attribute):
                    idle.add(name)
            if any(getattr(self, other) is not None for other in rule.rivals):
                idle.add(name)
            if rule.needs is not None and not getattr(self, rule.needs):
                idle.add(name)
        return idle

    def row(self) -> dict[str, Any]:
        """All settings that a row states, under their names; null where one plays no part."""
        idle = self.unused()
        stated = [name for name, one in declared(type(self)).items() if not one.rule.local]
        return {name: None if name in idle else _plain(getattr(self, name)) for name in stated}

    def plain(self) -> dict[str, Any]:
        """All settings that are not local as plain values, from which `of` makes the same record again.

        Those at their defaults are left out: said beside what takes their place they would contradict it.
        """
        known = [one for one in declared(type(self)).values() if not one.rule.local]
        values = {one.name: getattr(self, one.name) for one in known}
        return {one.name: _plain(values[one.name]) for one in known if values[one.name] != one.default}


def declared(cls: type) -> dict[str, Declared]:
    """The settings of a record, by name, in their order."""
    if cls not in _KNOWN:
        _KNOWN[cls] = _read(cls)
    return _KNOWN[cls]


_KNOWN: dict[type, dict[str, Declared]] = {}


def _read(cls: type) -> dict[str, Declared]:
    hints = get_type_hints(cls)
    found = {}
    for one in fields(cls):
        hint = hints[one.name]
        union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds = tuple(kind for kind in union if kind is not NoneType)
        found[one.name] = Declared(one.name, one.metadata["setting"], kinds, one.default)
    return found


def require(name: str, value: Any, kind: Any, **rules: Any) -> Any:
    """The value that a function was given, in its type, checked as a setting of these rules would be.

    >>> require("draws", 2.0, int, least=1)
    2
    """
    return Declared(name, Setting("", **rules), (kind,), MISSING).checked(value)


def known_name(name: str, known: Mapping[str, Any], verb: str) -> str:
    """The name; an `InputError` with a suggestion where it is none of the known ones."""
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"its settings: {', '.join(known)}"
    raise InputError(f"{name} is not a setting of {verb}; {hint}")


def _inside(rule: Setting, number: float) -> bool:
    if isinstance(number, bool):
        return True
    if math.isinf(number):
        return rule.infinite and number > 0
    low = -math.inf if rule.least is None else rule.least
    high = math.inf if rule.most is None else rule.most
    return low <= number <= high and (rule.above is None or number > rule.above)


def _plain(value: Any) -> Any:
    """A value as rows and JSON hold it."""
    return list(value) if isinstance(value, tuple) else value
