"""Make the Python function of a verb, with its signature, its documentation and the types of its result.

`make stub` writes the same texts into `attnlaw/__init__.pyi`, where type checkers find them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from inspect import Parameter, Signature, cleandoc
from typing import TYPE_CHECKING, Any, get_args, get_origin

from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.core.variants import Variants

if TYPE_CHECKING:
    from attnlaw.core.verb import Verb

WIDTH = 100
SEVERAL = """

An argument with "or several" takes a list, a range or an array. Each value is a case of the result."""
RANGES = """
For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works."""
PROGRESS = (
    "progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of "
    "finished parts and the total number of parts."
)
ROWS = (
    "A result with one row for each case, in the polars table `rows`. If there is one case, its quantities "
    "are attributes:"
)
METHODS = (
    "Print it with `show()`, draw it with `plot()`, write a report and its tables with `save(DIRECTORY)`, "
    "and read it again with `attnlaw.load(DIRECTORY)`."
)
MOST_DESCRIBED = 20  # a result with more quantities describes only those that a summary shows
MOST_COLUMNS = 6  # names of columns that the documentation of a table shows
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
    """Return a documented Python function that runs the verb. It has the verb as its attribute `verb`."""

    def function(*words: Any, **given: Any) -> Any:
        return verb(*words, **given)

    function.__name__ = function.__qualname__ = verb.name
    function.__module__ = "attnlaw"
    function.__doc__ = describe(verb)
    function.__signature__ = signature(verb)  # type: ignore[attr-defined]
    function.verb = verb  # type: ignore[attr-defined]
    return function


# Sentences that are true of the command alone: a function has no exit status and does not train students.
ONLY_COMMAND = re.compile(
    r"\s*The exit status [^.]*\.|,\s+and train real heads\s+to compare|\s*In Python, this command is [^\n]*"
)


def signature(verb: Verb[Any, Any]) -> Signature:
    """Return the signature of a verb's function, in which each setting is a parameter with its type."""
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
    """Return the Python type of a setting's values, such as `float | str | Iterable[float | str]`."""
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
    if quantity.range:
        return "Range | None"
    if quantity.error:
        return "list[Estimate | None] | None" if quantity.kind == "floats" else "Estimate | None"
    return f"{KIND_TYPES[quantity.kind]} | None"


def result_name(verb: Verb[Any, Any]) -> str:
    return f"{''.join(part.capitalize() for part in verb.name.split('_'))}Result"


def describe(verb: Verb[Any, Any]) -> str:
    """Return the docstring of a verb's function: summary, Args, Returns and an example."""
    text = ONLY_COMMAND.sub("", _in_python(verb, cleandoc(verb.settings.__doc__ or verb.title)))
    summary, _, more = text.partition("\n\n")
    known = _ordered(verb)
    arguments = [
        _wrap(f"{setting.name} ({_type_and_default(setting)}): {_meaning(verb, setting)}", 8)
        for setting in known
    ]
    places = [setting for setting in known if setting.rule.positional]
    if places and places[-1].rule.sweepable:
        arguments.insert(len(places), f"    {MORE}: Further values of {places[-1].name}.")
    arguments.append(_wrap(PROGRESS, 8))
    swept = [setting for setting in known if setting.rule.sweepable]
    more += SEVERAL if swept else ""
    more += RANGES if any(setting.is_number for setting in swept) else ""
    parts = [summary, more.strip(), "\n".join(["Args:", *arguments]), _returns(verb)]
    if verb.example:
        parts.append(f"Example:\n{textwrap.indent(cleandoc(verb.example), '    ')}")
    return "\n\n".join(part for part in parts if part)


def _in_python(verb: Verb[Any, Any], text: str) -> str:
    """Return a text of the command line with options as arguments: `--target-rank` becomes `target_rank`."""
    known = setting_fields(verb.settings)

    def spell(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return f"`{name}`" if name in known else option[0]

    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", spell, text)


def _meaning(verb: Verb[Any, Any], setting: SettingField) -> str:
    rule = setting.rule
    sentences = [rule.help if rule.help.endswith((".", "?", "!")) else f"{rule.help}."]
    if isinstance(rule.choices, Variants):
        sentences.append(f"One of {', '.join(rule.choices)}.")
    return _in_python(verb, " ".join(sentences))


def _type_and_default(setting: SettingField) -> str:
    rule, choices = setting.rule, setting.rule.choices
    words = [word for kind in setting.types for word in _type_words(setting, kind)]
    if choices and not isinstance(choices, Variants):
        words = [word for word in words if word != "str"] + [f'"{choice}"' for choice in choices]
    words += rule.converts
    words = list(dict.fromkeys(words))
    kinds = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    if rule.sweepable:
        kinds = f"{kinds}, or several"
    if setting.default is MISSING:
        return kinds
    default = f'"{setting.default}"' if isinstance(setting.default, str) else setting.default
    return f"{kinds}; {'optional' if default is None else f'default {default}'}"


def _type_words(setting: SettingField, kind: Any) -> list[str]:
    if kind is Any:
        return ["path", "object"] if setting.rule.is_path else ["object"]
    if get_origin(kind) is tuple:
        return ["str", f"list of {SCALARS[get_args(kind)[0]]}"]
    return [SCALARS[kind], *(["path"] if kind is str and setting.rule.is_path else [])]


def _returns(verb: Verb[Any, Any]) -> str:
    described = [quantity for quantity in verb.quantities if quantity.description]
    if len(described) > MOST_DESCRIBED:
        described = [quantity for quantity in described if quantity.in_summary]
    names = {quantity.name for quantity in described}
    others = [quantity.name for quantity in verb.quantities if quantity.name not in names]
    lines = [_wrap(ROWS, 4), ""]
    lines += [_item(entry.name, f"{entry.description}.", quantity_type(entry)) for entry in described]
    if others:
        lines += [
            "",
            _wrap(f"{'Further quantities' if described else 'Quantities'}: {', '.join(others)}.", 4),
        ]
    if verb.tables:
        lines += ["", _wrap("Its tables are also attributes:", 4), ""]
        lines += [_item(table.name, table_text(table, MOST_COLUMNS)) for table in verb.tables]
    lines += ["", _wrap(METHODS, 4)]
    return "\n".join(["Returns:", *lines])


def _item(name: str, meaning: str, kind: str = "") -> str:
    kind = f" ({kind.removesuffix(' | None')})" if kind else ""
    return textwrap.indent(
        textwrap.fill(f"- `{name}`{kind}: {meaning}", WIDTH, subsequent_indent="  "), "    "
    )


def table_text(table: TableSpec[Any], most: int | None = None) -> str:
    """Return a description of a table: what each line is, and the names of at most `most` columns."""
    names = [column.name for column in table.columns]
    more = len(names) - len(names[:most])
    columns = f"the columns {', '.join(names[:most])}{f' and {more} more' if more else ''}."
    return f"{table.description}, with {columns}" if table.description else columns


def _wrap(text: str, hanging: int) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * hanging)


def _ordered(verb: Verb[Any, Any]) -> list[SettingField]:
    return sorted(setting_fields(verb.settings).values(), key=lambda setting: not setting.rule.positional)


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'
