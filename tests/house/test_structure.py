"""The shape of the package: imports at the top, code named by itself and not by texts, one meaning a name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "attnlaw"
MOST_LOCAL_IMPORTS = 60  # of attnlaw's own modules; those that `--help` must not load stay in functions
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def local_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of attnlaw that functions import."""
    nodes = {
        id(node): node
        for function in ast.walk(tree)
        if isinstance(function, FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    for node in nodes.values():
        module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        if module is not None and module.split(".")[0] == "attnlaw":
            yield module


def test_few_modules_are_imported_inside_functions() -> None:
    imports = [f"{name}: {module}" for name, tree in TREES.items() for module in local_imports(tree)]
    assert len(imports) < MOST_LOCAL_IMPORTS, imports


def test_no_text_names_code() -> None:
    """A table holds functions. `"module:function"` is a name that no tool follows."""
    texts = [
        f"{name}:{node.lineno}: {node.value}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"attnlaw(\.\w+)+:\w+", node.value)
    ]
    assert texts == []


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_module_says_what_its_subject_is() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []
