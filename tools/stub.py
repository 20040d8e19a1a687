"""Write src/attnlaw/__init__.pyi, the types of `import attnlaw`, from the declarations of the verbs.

    python tools/stub.py            (or `make stub`)

The stub has every verb as a function with typed options, a result class for each verb with its quantities and
tables, and the other public names. Type checkers and editors read it; Python itself does not.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import attnlaw
from attnlaw.core.function import describe, quantity_type, result_name, signature, table_text
from attnlaw.core.verb import Verb
from attnlaw.verbs import VERBS, find_verb
from attnlaw.verbs.views import load

PATH = Path(attnlaw.__file__).with_name("__init__.pyi")
LOADED = "LoadedResult"
HEAD = '''"""The types of `import attnlaw`. `make stub` writes this file from the declarations."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, type_check_only

import polars as pl
'''


def stub() -> str:
    """Return the text of the stub, formatted."""
    verbs = [find_verb(name) for name in VERBS]
    records = {verb.name: record_type(verb) for verb in verbs}
    public = {name: getattr(attnlaw, name).__module__ for name in attnlaw._PUBLIC if name != "load"}
    imports = [f"from {module} import {name} as {name}" for name, module in public.items()]
    imports += [f"from {module} import {name}" for module, name in records.values() if name not in public]
    head = HEAD + "\n".join(sorted(imports, key=lambda line: line.split()[1]))
    parts = [head, "__version__: str", f"__all__ = {sorted(attnlaw.__all__)}"]
    parts += [result_class(verb, records[verb.name][1]) for verb in verbs]
    parts += [loaded_class(), *map(function, verbs)]
    return ruff("format", ruff("check --fix --select I", "\n\n".join(parts)))


def ruff(command: str, text: str) -> str:
    """Return what a command of ruff makes of the text, with the settings of this repository."""
    words = [sys.executable, "-m", "ruff", *command.split(), "--quiet", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout


def result_class(verb: Verb[Any, Any], record: str) -> str:
    """Return the class that type checkers see as the result of a verb."""
    lines = ["@type_check_only", f"class {result_name(verb)}(Result):"]
    lines.append(indented(quoted(f"A result of `attnlaw.{verb.name}`.")))
    lines.append(f"    @property\n    def record(self) -> {record}: ...")
    for quantity in verb.quantities:
        lines.append(f"    {quantity.name}: {quantity_type(quantity)}")
        if quantity.description:
            lines.append(indented(quoted(sentence(quantity.description))))
    for table in verb.tables:
        lines.append(f"    {table.name}: pl.DataFrame")
        lines.append(indented(quoted(sentence(f"table: {table_text(table)}"))))
    lines += ["    status: str | None", "    remark: str | None"]
    return "\n".join(lines)


def loaded_class() -> str:
    """Return the class of results whose verb is known only when they are loaded."""
    return "\n".join(
        [
            "@type_check_only",
            f"class {LOADED}(Result):",
            indented(
                quoted("A result that was read from a directory: its attributes are those of its verb.")
            ),
            "    def __getattr__(self, name: str) -> Any: ...",
            "",
            "",
            f"def load{str(inspect.signature(load)).partition(' -> ')[0]} -> {LOADED}:".replace("'", ""),
            indented(quoted(inspect.getdoc(load) or "")),
        ]
    )


def function(verb: Verb[Any, Any]) -> str:
    """Return the function of a verb with its types and its documentation."""
    positional, named = [], []
    for parameter in signature(verb).parameters.values():
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        default = " = ..." if default == " = inf" else default  # no literal writes infinity
        keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
        (named if keyword else positional).append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    has_star = any(word.startswith("*") for word in positional)
    words = ", ".join([*positional, *([] if has_star else ["*"]), *named])
    return f"def {verb.name}({words}) -> {result_name(verb)}:\n{indented(quoted(describe(verb)))}"


def record_type(verb: Verb[Any, Any]) -> tuple[str, str]:
    """Return module and name of the record that a verb computes, by its annotation and its imports."""
    run = inspect.unwrap(verb.run)
    name = next(
        name
        for name in re.findall(r"\w+", run.__annotations__["return"])
        if name not in ("Iterator", "InputError")
    )
    module = inspect.getmodule(run)
    assert module is not None
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return str(node.module), name
    return module.__name__, name


def sentence(text: str) -> str:
    """Return a description as a sentence: with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def quoted(text: str) -> str:
    raw = "r" if "\\" in text else ""
    if "\n" in text:
        return f'{raw}"""{text}\n"""'
    lines = textwrap.wrap(text, 100)
    return f'{raw}"""{lines[0]}"""' if len(lines) == 1 else f'{raw}"""' + "\n".join(lines) + '\n"""'


def indented(text: str) -> str:
    return textwrap.indent(text, "    ")


if __name__ == "__main__":
    PATH.write_text(stub(), encoding="utf-8")
    print(f"wrote {PATH}")
