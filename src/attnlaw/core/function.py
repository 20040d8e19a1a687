"""Make the Python function of a verb, with its signature, its documentation and the types of its result.

`attnlaw.learn` is a real function, so that `help` and editors show its options. `make stub` writes the same
texts into `attnlaw/__init__.pyi`, where type checkers find them. All of it comes from the verb's declaration.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from inspect import Parameter, Signature, cleandoc
from typing import TYPE_CHECKING, Any, get_args, get_origin

from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.core.variants import Variants

if TYPE_CHECKING:
    from attnlaw.core.verb import Verb

WIDTH = 100
LISTS = """

If an option takes an iterable, each value of a list, a range or an array makes a case.
For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too."""
MORE = "more"  # the further values of the last positional setting
SCALARS = {float: "float", int: "int", bool: "bool", str: "str"}
# The type of a quantity by its kind, see `attnlaw.core.tables.KINDS`.
KIND_TYPES = {"float": "float", "int": "int", "small": "int", "bool": "bool", "text": "str", "bytes": "bytes"}
KIND_TYPES |= {f"{kind}s": f"list[{KIND_TYPES[kind]}]" for kind in ("float", "int", "text")}


class _Annotation(str):
    """The text of a type. `help` shows it without quotation marks."""

    __slots__ = ()

    __repr__ = str.__str__


def python_function(verb: Verb[Any, Any]) -> Callable[..., Any]:
    """Return a documented function that runs the verb. Its attribute `verb` is the verb."""

    def function(*words: Any, **given: Any) -> Any:
        return verb(*words, **given)

    function.__name__ = function.__qualname__ = verb.name
    function.__module__ = "attnlaw"
    function.__doc__ = describe(verb)
    function.__signature__ = signature(verb)  # type: ignore[attr-defined]
    function.verb = verb  # type: ignore[attr-defined]
    return function


def signature(verb: Verb[Any, Any]) -> Signature:
    """Return the signature of a verb's function: each setting is a parameter with its type."""
    parameters = [
        Parameter(
            setting.name,
            Parameter.POSITIONAL_OR_KEYWORD if setting.rule.positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if setting.default is MISSING else setting.default,
            annotation=_Annotation(parameter_type(setting)),
        )
        for setting in _ordered(verb)
    ]
    places = [setting for setting in _ordered(verb) if setting.rule.positional]
    if places and places[-1].rule.sweepable:
        further = Parameter(MORE, Parameter.VAR_POSITIONAL, annotation=_Annotation("Any"))
        parameters.insert(len(places), further)
    follows = _Annotation("Callable[[int, int], None] | None")
    parameters.append(Parameter("progress", Parameter.KEYWORD_ONLY, default=None, annotation=follows))
    return Signature(parameters, return_annotation=_Annotation(result_name(verb)))


def parameter_type(setting: SettingField) -> str:
    """Return the Python type of a setting's values, as the text of an annotation.

    >>> from attnlaw.core.settings import SettingRule
    >>> parameter_type(SettingField("alpha", SettingRule("", sweepable=True), (float,), 0.2))
    'float | str | Iterable[float | str]'
    """
    if Any in setting.types:
        return "Any"
    types = [name for kind in setting.types for name in _type_names(setting, kind)]
    types += setting.rule.converts
    if setting.rule.sweepable:
        types = [name for name in types if "inf" not in name] + ["str"] if setting.is_number else types
        types += [f"Iterable[{' | '.join(types)}]"]
    if setting.default is None:
        types.append("None")
    return " | ".join(dict.fromkeys(types))


def _type_names(setting: SettingField, kind: Any) -> Iterator[str]:
    choices = setting.rule.choices
    if get_origin(kind) is tuple:
        yield from ("str", f"Sequence[{SCALARS[get_args(kind)[0]]}]")
    elif kind is str and choices and not isinstance(choices, Variants):
        yield f"Literal[{', '.join(map(_quoted, choices))}]"
    else:
        yield SCALARS[kind]
        if setting.rule.allow_infinite and kind in (int, float):
            yield 'Literal["inf"]'
        if kind is str and setting.rule.is_path:
            yield "os.PathLike[str]"


def quantity_type(quantity: Quantity) -> str:
    """Return the type that a quantity has as an attribute of a result, as the text of an annotation.

    >>> quantity_type(Quantity("x", error=True)), quantity_type(Quantity("names", kind="texts"))
    ('Estimate | None', 'list[str] | None')
    """
    if quantity.range:
        return "Range | None"
    if quantity.error:
        return "list[Estimate | None] | None" if quantity.kind == "floats" else "Estimate | None"
    return f"{KIND_TYPES[quantity.kind]} | None"


def result_name(verb: Verb[Any, Any]) -> str:
    """Return the name of a verb's result type for type checkers, such as `LearnResult` for `learn`."""
    return f"{''.join(part.capitalize() for part in verb.name.split('_'))}Result"


def describe(verb: Verb[Any, Any]) -> str:
    """Return the documentation of a verb's function: summary, Args, Returns and an example."""
    summary, _, more = cleandoc(verb.settings.__doc__ or verb.title).partition("\n\n")
    arguments = [_wrap(f"{setting.name}: {' '.join(_sentences(setting))}", 8) for setting in _ordered(verb)]
    places = [setting for setting in _ordered(verb) if setting.rule.positional]
    if places and places[-1].rule.sweepable:
        arguments.insert(len(places), f"    {MORE}: Further values of {places[-1].name}.")
    progress = "    progress: Called with the number of finished parts and the number of all parts."
    more += LISTS if any(setting.rule.sweepable for setting in _ordered(verb)) else ""
    parts = [summary, more.strip(), "\n".join(["Args:", *arguments, progress]), _returns(verb)]
    if verb.example:
        parts.append(f"Example:\n{textwrap.indent(cleandoc(verb.example), '    ')}")
    return "\n\n".join(part for part in parts if part)


def _sentences(setting: SettingField) -> Iterator[str]:
    rule = setting.rule
    yield rule.help if rule.help.endswith((".", "?", "!")) else f"{rule.help}."
    if isinstance(rule.choices, Variants):
        yield f"One of {', '.join(rule.choices)}."


def _returns(verb: Verb[Any, Any]) -> str:
    quantities = ", ".join(quantity.name for quantity in verb.quantities)
    lines = [f"A result with one row for each case. Its quantities are attributes: {quantities}."]
    if verb.tables:
        lines.append(f"So are its tables: {', '.join(table.name for table in verb.tables)}.")
    return f"Returns:\n{_wrap(' '.join(lines), 4)}"


def _wrap(text: str, hanging: int) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * hanging)


def _ordered(verb: Verb[Any, Any]) -> list[SettingField]:
    return sorted(setting_fields(verb.settings).values(), key=lambda setting: not setting.rule.positional)


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'
