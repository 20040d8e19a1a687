"""Settings: frozen records whose fields declare what they mean and which values they accept.

    @settings_dataclass
    class Coin(Settings):
        bias: float = setting(0.5, "Probability of heads.", symbol="p", greater_than=0, maximum=1)
        tosses: int = setting(100, "How often.", symbol="n", minimum=1)

This declaration gives the options of a command, the keys of a study file, the arguments of the Python
function, the columns of rows, and the labels. A new record raises a `BadSetting` for a wrong value.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice
from numbers import Integral, Real
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.variants import Variants

TYPE_DESCRIPTIONS: dict[Any, str] = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    tuple[int, ...]: "whole numbers",
    tuple[str, ...]: "names",
}
LIST_FORMS: dict[Any, str] = {  # what follows the bounds of a list
    tuple[int, ...]: "separated by commas, such as 1,2,3",
    tuple[str, ...]: "separated by commas, such as qk,vo",
}
LARGEST = 2**63  # a whole number of TOML
MOST_POINTS = 100_000
IS_MISSING = "is missing"  # the rule that a `BadSetting` quotes if a setting is not given


def coerce(kind: Any, value: Any) -> Any:
    """Return the value as the type `kind`, or None if it does not fit. An int may be given as 2.0."""
    if kind is Any:
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if get_origin(kind) is tuple:
        return _coerce_tuple(get_args(kind)[0], value)
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if isinstance(value, Integral):  # NumPy's, too
        value = int(value)
        if abs(value) > LARGEST:
            return None
    elif isinstance(value, Real):
        value = float(value)
    if kind is float:
        is_number = isinstance(value, int | float) or (isinstance(value, str) and value == "inf")
        number = float(value) if is_number else math.nan
        return None if math.isnan(number) else number
    if kind is int:
        whole = isinstance(value, int | float) and math.isfinite(value) and value == int(value)
        return int(value) if whole else None
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, kind) else None


def _coerce_tuple(kind: type, value: Any) -> tuple[Any, ...] | None:
    """Return the entries of a list, or the parts of a text between commas; None if one does not fit."""
    if isinstance(value, str):
        parts: list[Any] | None = [part.strip() for part in value.split(",") if part.strip()]
        if kind is int:
            parts = [int(p) if p.lstrip("+-").isdecimal() and len(p) < 20 else p for p in parts or ()]
    else:
        parts = as_list(value)
    if parts is None:
        return None
    entries = [coerce(kind, part) for part in parts]
    return None if None in entries or not entries else tuple(entries)


def as_list(value: Any) -> list[Any] | None:
    """Return up to `MOST_POINTS` + 1 entries of a list, a range or an array, or None for a single value.

    Texts, paths and mappings count as single values.
    """
    is_single = isinstance(value, str | bytes | os.PathLike | Mapping) or getattr(value, "ndim", None) == 0
    if is_single or not isinstance(value, Iterable):
        return None
    return list(islice(value, MOST_POINTS + 1))


def parse_number(word: Any) -> Any:
    """Return the number that a word spells, or the word itself if it is not a number."""
    if not isinstance(word, str):
        return word
    try:
        number = float(word.replace("∞", "inf"))
        return int(word) if word.lstrip("+-").isdecimal() else number
    except ValueError:  # also an integer of more digits than Python reads
        return word


def parse_range(name: str, text: str) -> list[float]:
    """Return the values that `FROM:TO:COUNT` describes, including both ends.

    >>> parse_range("alpha", "0:1:3")
    [0.0, 0.5, 1.0]
    """
    try:
        first, last, points = text.split(":")
        low, high, count = float(first), float(last), int(points)
    except ValueError:
        raise BadSetting(name, "expected FROM:TO:COUNT such as 0.05:1:40", text) from None
    if not -math.inf < low < high < math.inf:
        raise BadSetting(name, "FROM must be smaller than TO, and both must be finite", text)
    if not 2 <= count <= MOST_POINTS:
        raise BadSetting(name, f"COUNT must be from 2 to {MOST_POINTS}", text)
    step = (high - low) / (count - 1)
    return [i * step + low for i in range(count - 1)] + [high]


def infinity_as_text(value: Any) -> Any:
    """Return infinity as a text, because JSON does not have it. Return other values unchanged."""
    return "inf" if value == math.inf else value


C = TypeVar("C")


class OptionPanel(StrEnum):
    """The groups of options on a help screen, in order. The groups of a single verb come after `INPUT`."""

    INPUT = "Input"
    COMPUTE = "What to compute"
    SIMULATION = "Simulation"
    PRECISION = "Precision and speed"
    OUTPUT = "Output"
    WORKERS = "Many workers"


@dataclass(frozen=True)
class SettingRule:
    """The rules for one setting: its meaning, its allowed values, and when it has an effect."""

    help: str
    symbol: str = ""
    panel: str = OptionPanel.COMPUTE  # the group in help screens
    greater_than: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    allow_infinite: bool = False
    choices: Mapping[str, Any] | None = None  # a table of variants
    sweepable: bool = False  # several values make several cases: a list, an array, `a,b,c`, or FROM:TO:COUNT
    convert: Callable[[Any], Any] | None = None  # from further Python types to a declared one
    converts: tuple[str, ...] = ()  # these types, as annotations
    repeatable: bool = False  # one case takes several texts: a list, or the option several times
    default_sweep: tuple[Any, ...] = ()  # the values of a command that gives none
    expand: Callable[[Any], list[Any]] | None = None  # from a value to the values that it stands for
    is_path: bool = False  # a path or a pattern; in a study file it is relative to the file
    positional: bool = False  # a word of the command line without an option's name
    requires: str | None = None  # another setting that must be given
    excluded_by: str | tuple[str, ...] = ()  # other settings that replace this one
    # Pairs of a setting and an attribute of its chosen variant, which must be true.
    active_if: tuple[str, str] | tuple[tuple[str, str], ...] = ()
    machine_only: bool = False  # how this machine works (threads); it changes no number and is not in rows
    remedy: str = ""  # what to do if a value does not fit
    metavar: str | None = None
    axis: str = ""  # the title of axes and legends: words, then the symbol; the label by default
    slider_range: tuple[float, float] | None = None  # what a slider of the lab spans
    lab_default: Any = None  # the first value in the lab if it is not the default

    @property
    def exclusions(self) -> tuple[str, ...]:
        """The other settings that make this setting unnecessary."""
        return (self.excluded_by,) if isinstance(self.excluded_by, str) else self.excluded_by

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """The pairs (other setting, attribute): the other setting's variant must have this attribute."""
        match self.active_if:
            case (str() as owner, str() as attribute):
                return ((owner, attribute),)
            case several:
                return several


@dataclass(frozen=True)
class SettingField:
    """A setting with its name, its rules, its types and its default."""

    name: str
    rule: SettingRule
    types: tuple[Any, ...]
    default: Any

    @property
    def label(self) -> str:
        words = self.name.replace("_", " ")
        return f"{words} {self.rule.symbol}" if self.rule.symbol else words

    @property
    def is_number(self) -> bool:
        """Whether all possible values are numbers, so that `FROM:TO:COUNT` stands for several values."""
        return set(self.types) <= {int, float}

    @property
    def expected(self) -> str:
        """The end of an error message, which describes the allowed values."""
        rule = self.rule
        if isinstance(rule.choices, Variants):
            return rule.choices.expected
        if rule.choices is not None:
            return f"expected one of {', '.join(rule.choices)}"
        limits = {"above": rule.greater_than, "of at least": rule.minimum, "of at most": rule.maximum}
        bounds = [f"{word} {bound:.15g}" for word, bound in limits.items() if bound is not None]
        kinds = " or ".join(TYPE_DESCRIPTIONS.get(kind, "a value") for kind in self.types)
        forms = [LIST_FORMS[kind] for kind in self.types if kind in LIST_FORMS]
        if rule.repeatable:
            kinds, forms = "a text or a list of texts", []
        words = " ".join(filter(None, ["expected", kinds, " and ".join(bounds), *forms]))
        phrase = f"{words}, or inf" if rule.allow_infinite else words
        return f"{phrase}; {rule.remedy}" if rule.remedy else phrase

    def validate(self, value: Any) -> Any:
        """Return the value in its declared type. Raise a `BadSetting` if the value does not fit the rules."""
        if value is None and self.default is None:
            return None
        value = (value,) if self.rule.repeatable and isinstance(value, str) else value
        value = value if self.rule.convert is None else self.rule.convert(value)
        for kind in self.types:
            fitted = coerce(kind, value)
            if fitted is not None and self._allows(fitted):
                return fitted
        raise BadSetting(self.name, self.expected, value)

    def _allows(self, value: Any) -> bool:
        rule = self.rule
        if rule.choices is not None:
            return value in rule.choices
        if isinstance(value, tuple):
            return all(map(self._allows, value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        if math.isinf(value):
            return rule.allow_infinite and value > 0
        low = -math.inf if rule.minimum is None else rule.minimum
        high = math.inf if rule.maximum is None else rule.maximum
        return low <= value <= high and (rule.greater_than is None or value > rule.greater_than)

    def parse_word(self, word: Any) -> Any:
        """Return the number that a command-line argument spells, or the argument itself."""
        return parse_number(word) if {int, float} & set(self.types) else word

    def sweep_values(self, value: Any) -> list[Any]:
        """Return a list of several values if a Python value is a sweep, otherwise the value itself.

        A model may be any object, so only lists and tuples of models count as sweeps.
        """
        if not self.rule.sweepable:
            return [value]
        is_object = Any in self.types and not isinstance(value, list | tuple)
        entries = None if is_object else as_list(value)
        if entries is None:
            entries = [value]
        if len(entries) > MOST_POINTS:
            raise BadSetting(self.name, f"expected at most {MOST_POINTS} values")
        if self.is_number:
            parsed = (self.parse_words(entry) if isinstance(entry, str) else [entry] for entry in entries)
            return [point for points in parsed for point in points]
        return entries

    def parse_words(self, word: Any) -> list[Any]:
        """Return the value or values that a command-line argument spells."""
        if isinstance(word, list | tuple):
            return [value for entry in word for value in self.parse_words(entry)]
        if not self.rule.sweepable or self.rule.is_path or not isinstance(word, str):
            return [self.parse_word(word)]
        if ":" in word and self.is_number:
            return list(parse_range(self.name, word))
        parts = [part.strip() for part in word.split(",") if part.strip()]
        if not parts:
            raise BadSetting(self.name, self.expected, word)
        return list(dict.fromkeys(self.parse_word(part) for part in parts))


def setting(default: Any = MISSING, help: str = "", **rules: Any) -> Any:
    """Declare a setting, a field of a settings class. `rules` sets fields of its `SettingRule`."""
    if rules.get("positional"):
        rules = {"panel": OptionPanel.INPUT} | rules
    return field(default=default, metadata={"setting": SettingRule(help, **rules)})


def setting_like(record: type, name: str, **changes: Any) -> Any:
    """Declare a setting like the field `name` of another settings class, with some rules changed."""
    setting_field = setting_fields(record)[name]
    return field(default=setting_field.default, metadata={"setting": replace(setting_field.rule, **changes)})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, setting_like))
def settings_dataclass(cls: type[C]) -> type[C]:
    """Turn a class into a frozen, keyword-only dataclass. `Settings.__post_init__` checks the values."""
    return dataclass(frozen=True, kw_only=True)(cls)


class Settings:
    """The base class of all settings classes.

    A command that is not a verb also declares its examples (command: description) and the same call in Python
    here.
    """

    examples: ClassVar[Mapping[str, str]] = MappingProxyType({})
    python: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, setting_field in setting_fields(type(self)).items():
            object.__setattr__(self, name, setting_field.validate(getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Raise a `BadSetting` if values contradict each other. Subclasses override this method."""

    @classmethod
    def parse(cls, given: Mapping[str, Any], verb: str) -> Self:
        """Return the settings with the given values.

        Raise an `InputError` that suggests a similar name for an unknown one.
        """
        known = setting_fields(cls)
        for name in given:
            require_known(name, known, verb)
        for name, setting_field in known.items():
            if name not in given and setting_field.default is MISSING:
                raise BadSetting(name, IS_MISSING)
        for name in given:
            rule = known[name].rule
            if rule.requires is not None and given.get(rule.requires) is None:
                raise BadSetting(name, f"needs {{{rule.requires}}}")
            for other in rule.exclusions:
                if given.get(other) is not None:
                    raise BadSetting(name, f"cannot be combined with {{{other}}}; choose one")
        return cls(**given)

    def inactive(self) -> set[str]:
        """Return the settings without effect in this case, which are null in rows and not in labels."""
        known = setting_fields(type(self))
        idle = set()
        for name, setting_field in known.items():
            rule = setting_field.rule
            conditions = [
                getattr((known[owner].rule.choices or {})[getattr(self, owner)], attribute)
                for owner, attribute in rule.conditions
            ]
            replaced = any(getattr(self, other) is not None for other in rule.exclusions)
            if replaced or not all(conditions) or (rule.requires and not getattr(self, rule.requires)):
                idle.add(name)
        return idle

    def to_row(self) -> dict[str, Any]:
        """Return the settings by name, as a row has them. Settings without an effect are None."""
        idle = self.inactive()
        row = {}
        for name, setting_field in setting_fields(type(self)).items():
            if not setting_field.rule.machine_only:
                value = None if name in idle else getattr(self, name)
                row[name] = list(value) if isinstance(value, tuple) else value
        return row


def setting_fields(cls: type) -> dict[str, SettingField]:
    """Return the settings of a settings class by name, in the order of their declaration."""
    if cls in _FIELDS_BY_CLASS:
        return _FIELDS_BY_CLASS[cls]
    hints, settings = get_type_hints(cls), {}
    for dataclass_field in fields(cls):
        name, hint = dataclass_field.name, hints[dataclass_field.name]
        union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds = tuple(kind for kind in union if kind is not NoneType)
        rule = dataclass_field.metadata["setting"]
        settings[name] = SettingField(name, rule, kinds, dataclass_field.default)
    _FIELDS_BY_CLASS[cls] = settings
    return settings


_FIELDS_BY_CLASS: dict[type, dict[str, SettingField]] = {}


def check_value(name: str, value: Any, kind: Any, **rules: Any) -> Any:
    """Check an argument of a function like a setting with these rules, and return it as type `kind`."""
    return SettingField(name, SettingRule("", **rules), (kind,), MISSING).validate(value)


def require_known(name: str, known: Mapping[str, Any], verb: str) -> str:
    """Return the name. Raise an `InputError` with a suggestion if there is no such setting."""
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"its settings are {', '.join(known)}"
    raise InputError(f"{name} is not a setting of {verb}; {hint}")
