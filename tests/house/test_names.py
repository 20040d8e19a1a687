"""Names that a stranger can read: variables hold what they are called, and pages name what exists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SILENT = {"one", "found", "own", "told"}  # names that do not say what a variable holds
# Bindings in src that are meant: the place, and why the word is the right noun there.
MEANT = {"numerics/symmetric.py: one": "the number 1, which BLAS takes as alpha and as beta"}
MOST_IN_TESTS = 40

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOTTED = re.compile(r"\battnlaw(?:\.[A-Za-z_]\w*)+")
# A file of results, two placeholders, and the verb that a reader of docs/contribute/add-a-verb.md adds.
NOT_NAMES = {"attnlaw.json", "attnlaw.NAME", "attnlaw.VERB", "attnlaw.coin"}
IMPORT = re.compile(r"\bfrom (attnlaw[\w.]*) import (\((?:[^)]*)\)|[\w, ]+)")
REPOSITORY_PATH = re.compile(
    r"(?<![\w./-])((?:src|tests|docs|examples|benchmarks|tools|verbs|theory|analysis|checkpoints)/[\w./-]*\w)"
)


def silent_bindings(path: Path) -> Iterator[str]:
    """Yield every variable and parameter of a file that has one of the silent names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in SILENT:
            yield node.id
        elif isinstance(node, ast.arg) and node.arg in SILENT:
            yield node.arg


def test_variables_of_the_package_say_what_they_hold():
    package = ROOT / "src" / "attnlaw"
    places = [
        f"{path.relative_to(package).as_posix()}: {name}"
        for path in sorted(package.rglob("*.py"))
        for name in silent_bindings(path)
    ]
    assert [place for place in places if place not in MEANT] == []
    assert len(places) <= 100


def test_variables_of_tests_mostly_say_what_they_hold():
    bindings = [name for path in (ROOT / "tests").rglob("*.py") for name in silent_bindings(path)]
    assert len(bindings) <= MOST_IN_TESTS


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_names_modules_symbols_and_files_that_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    for name in sorted(set(DOTTED.findall(text)) - NOT_NAMES):
        assert resolves(name), f"{page.name}: {name} does not exist"
    for path in sorted(set(REPOSITORY_PATH.findall(text))):
        if "NAME" not in path and not any(Path(part).stem.isupper() for part in Path(path).parts):
            candidates = [ROOT / path, ROOT / "src" / "attnlaw" / path, page.parent / path]
            assert any(candidate.exists() for candidate in candidates), f"{page.name}: no file {path}"


@pytest.mark.parametrize("folder", ["docs", "tools", "benchmarks", "examples", "tests"])
def test_imports_inside_texts_name_what_exists(folder: str):
    """Pages and scripts hold code in texts, which no linter reads."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".md"):
            for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
                for name in re.findall(r"\w+", re.sub(r" as \w+", "", names)):
                    known = name == "annotations" or resolves(f"{module}.{name}")
                    assert known, f"{path.relative_to(ROOT)}: from {module} import {name}"


def test_a_name_that_is_gone_does_not_resolve():
    assert resolves("attnlaw.core.errors.InputError")
    assert resolves("attnlaw.core.verb.Verb.simulation")
    assert not resolves("attnlaw.base.errors.InputError")
    assert not resolves("attnlaw.core.errors.Told")


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or something that a module holds."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        if spec is not None:
            target = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                fields = getattr(target, "__dataclass_fields__", {})
                target = fields.get(part) or getattr(target, part, None)
                if target is None:
                    return False
            return True
    return False
