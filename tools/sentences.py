"""Draw sentences at random from what users read, to have someone label each as clear, stilted or cryptic.

    python tools/sentences.py --seed 7 --count 20                       (20 of each kind)
    python tools/sentences.py --seed 7 --count 60 --kind pages

| kind | what it draws from |
|---|---|
| docstrings | docstrings of public functions, classes and methods |
| help | help texts of options, and the meanings of columns and quantities |
| messages | error messages, lines on screens and on pages, as users read them |
| pages | README.md and the documentation, without code and tables |

The draw depends only on the seed and on the texts. `tests/house/test_words.py` reads all texts with the same
functions.
"""

from __future__ import annotations

import argparse
import ast
import functools
import html
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "attnlaw"
# Calls whose texts are help texts or meanings of columns.
DECLARATIONS = {
    "setting",
    "setting_like",
    "output_option",
    "Quantity",
    "TableSpec",
    "Verb",
    "Detector",
    "Kind",
}
NOT_TEXTS = {"example", "examples", "metavar", "panel", "name"}
FEWEST_WORDS = 4  # a shorter text is a name, a title or a format
ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])")
PLACES = re.compile(r"\{(\w+)\}")
# A call that makes a message out of a fragment: the place of the fragment, and the message.
FRAMES = {
    "bad_part": (1, "{source}: tensor {part} has dtype {dtype} and shape {shape}, expected <>"),
    "error": (0, "{source}: <>"),
    "SuspiciousPickle": (0, "{file}: not a complete PyTorch checkpoint of plain tensors (<>)"),
}
# Texts that nobody reads as a sentence: SQL, markup, regular expressions, commands, and lists of names.
NO_SENTENCE = re.compile(
    r"(CREATE|SELECT|DELETE|INSERT|UPDATE|PRAGMA) [A-Za-z]|<\w+[ >]|</\w|.*(\(\^\||\(\?|\\[bdsw(.]|\.\*)"
    r"|(import|from) [\w.]+ import |pip install |attnlaw [a-z]+( [\w./{}-]+)* (-|[>/])|attnlaw (lab|study) "
    r"|.* = [({\[]|\S*\w\|\w+\||[\w-]+(, [\w-]+)*$|[\w./:-]+$"
)
MARKUP = re.compile(r"<(script|style)\b.*?</\1>|{#.*?#}|{%.*?%}|<[^>]*>", re.DOTALL)


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the file and line where its text starts."""

    text: str
    path: Path
    line: int

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.line}"


def docstrings() -> Iterator[Sentence]:
    """Yield the sentences of public docstrings, without examples, tables and lists."""
    for path, tree in _modules():
        for node in ast.walk(tree):
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            if not isinstance(node, kinds) or node.name.startswith("_"):
                continue
            text = ast.get_docstring(node)
            if text and not _is_settings(node):
                for paragraph in _paragraphs(text):
                    yield from _sentences(paragraph, path, node.lineno)


def help_texts() -> Iterator[Sentence]:
    """Yield help texts of options, help texts of commands, and meanings of columns and quantities."""
    for path, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and _is_settings(node):
                for paragraph in _paragraphs(ast.get_docstring(node) or ""):
                    yield from _sentences(paragraph, path, node.lineno)
            if isinstance(node, ast.Call) and _called(node) in DECLARATIONS:
                more = [keyword.value for keyword in node.keywords if keyword.arg not in NOT_TEXTS]
                for value in (*node.args, *more):
                    if text := _text_of(value):
                        yield from _sentences(text, path, value.lineno, fewest=2)


def messages() -> Iterator[Sentence]:
    """Yield error messages, and the texts of screens and pages, as users read them.

    Values in them are shown as their names in braces, or as {…}. A fragment that the same function puts into
    a message is shown in the message.
    """
    for path, tree in _modules():
        reader = _Reader(tree, path)
        skipped = {id(node) for node in _docstring_nodes(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) in DECLARATIONS:
                skipped |= {id(inner) for inner in ast.walk(node)}
        nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
        texts = [(node.lineno, text) for node in nodes if (text := reader.message(node))]
        for node in nodes:
            if id(node) not in reader.used and (text := reader.text(node)):
                texts.append((node.lineno, text))
        for line, text in texts:
            if not _is_code(text):
                for sentence in _sentences(text, path, line):
                    words = re.findall(r"(?<![\w.{])[A-Za-z][A-Za-z'-]+(?![\w=(}])", sentence.text)
                    if len(words) >= FEWEST_WORDS and not NO_SENTENCE.match(sentence.text):
                        yield sentence
    for path in sorted(PACKAGE.rglob("*.html")):
        for line, text in _template_texts(path):
            yield from _sentences(text, path, line)


def pages() -> Iterator[Sentence]:
    """Yield the sentences of README.md and the documentation, without code, tables and headings."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^( *)```.*?^\1```", _blank, text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
        line = 1
        for paragraph in re.split(r"(\n\s*\n)", text):
            first = paragraph.strip()[:4]
            if first and not first.startswith(
                ("#", "|", "<", "$$", "===", "---", "???", "!!!", ":::", "    ")
            ):
                for entry in re.split(r"\n\s*(?:[-*]|\d+\.) ", f"\n{paragraph}"):
                    yield from _sentences(entry, path, line)
            line += paragraph.count("\n")


KINDS = {"docstrings": docstrings, "help": help_texts, "messages": messages, "pages": pages}


def draw(kind: str, count: int, seed: int) -> list[Sentence]:
    """Draw sentences of a kind. The same text is drawn at most once."""
    known = {sentence.text: sentence for sentence in KINDS[kind]()}
    return random.Random(f"{kind} {seed}").sample(sorted(known.values(), key=lambda each: each.text), count)


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def _is_settings(node: ast.AST) -> bool:
    """Return whether a class declares settings. Its docstring is the help text of a command."""
    decorators = getattr(node, "decorator_list", ())
    return any(isinstance(each, ast.Name) and each.id == "settings_dataclass" for each in decorators)


def _docstring_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _called(call: ast.Call) -> str:
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return getattr(function, "id", getattr(function, "attr", ""))


def _text_of(node: ast.AST) -> str | None:
    """Return the text of a literal. Values inside an f-string become {…}."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    return None


class _Reader:
    """Reads the texts of a module as users read them.

    Attributes:
        used: the nodes whose texts are already in another text.
    """

    def __init__(self, tree: ast.Module, path: Path) -> None:
        self._reads_files = path.stem in ("rule_file", "study_file")
        self.used: set[int] = set()
        self._texts: dict[int, dict[str, ast.expr]] = {}  # by node: the texts that names around it hold
        statements = [each for each in tree.body if isinstance(each, ast.Assign)]
        constants = {**_shared_constants(), **_assigned_texts(statements)}
        for node in ast.walk(tree):
            self._texts.setdefault(id(node), constants)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                known = {**constants, **_assigned_texts([node])}
                self._texts |= {id(inner): known for inner in ast.walk(node)}

    def message(self, node: ast.AST) -> str | None:
        """Return the message that a call makes of a fragment, or None."""
        place, frame = FRAMES.get(_called(node), (1, "")) if isinstance(node, ast.Call) else (1, None)
        if not isinstance(node, ast.Call) or not (frame or _called(node) == "BadSetting"):
            return None
        text = self._read(node.args[place]) if len(node.args) > place else None
        if text is None:
            return None
        self._use(node.args[place])
        if frame:
            return _with_braces(frame.replace("<>", text))
        name = self._read(node.args[0]) or "\0setting\1"
        if self._reads_files:
            return _with_braces(
                f"{name}: found \0value\1, {text}" if len(node.args) > 2 else f"{name} {text}"
            )
        option = "--" + name.replace("_", "-")
        text = PLACES.sub(lambda other: "--" + other[1].replace("_", "-"), text)
        return _with_braces(f"{option} \0value\1: {text}" if len(node.args) > 2 else f"{option} {text}")

    def text(self, node: ast.AST) -> str | None:
        """Return the text of a literal, or None. Values are in braces."""
        text = self._read(node)
        return None if text is None else _with_braces(text)

    def _use(self, node: ast.AST) -> None:
        self.used |= {id(inner) for inner in ast.walk(node)}

    def _read(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
            if not any(self._read(part) for part in parts):
                return None
        else:
            return None
        self._use(node)
        self.used.discard(id(node))
        return "".join(self._part(part) for part in parts)

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.FormattedValue):
            node = node.value
        if isinstance(node, ast.Call) and _called(node) == "len" and node.args:
            return f"\0number of {_name_of(node.args[0])}\1".replace("of …", "…")
        if isinstance(node, ast.IfExp):
            choices = [self._part(node.body), self._part(node.orelse)]
            return choices[0] or choices[1]
        if isinstance(node, ast.Name) and (value := self._texts[id(node)].get(node.id)) is not None:
            self._use(value)
            # A text that is made of itself, such as `text = f"{text}."`, is read only once.
            known = self._texts[id(node)]
            self._texts[id(node)] = {name: text for name, text in known.items() if name != node.id}
            return self._part(value)
        text = self._read(node)
        return f"\0{_name_of(node)}\1" if text is None else text


def _assigned_texts(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Return the texts that a block assigns to names that hold nothing else. The first text counts."""
    texts: dict[str, ast.expr] = {}
    others: set[str] = set()
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            branches = [node.value]
            while isinstance(branches[-1], ast.IfExp):
                branches[-1:] = [branches[-1].body, branches[-1].orelse]
            if all(_is_text(branch) for branch in branches):
                if any(not isinstance(branch, ast.Constant) or branch.value for branch in branches):
                    texts.setdefault(target.id, node.value)
                continue
            others.add(target.id)
        elif isinstance(node, ast.AugAssign | ast.For | ast.comprehension):
            others |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.arg):
            others.add(node.arg)
    return {name: value for name, value in texts.items() if name not in others}


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@functools.cache
def _shared_constants() -> dict[str, ast.expr]:
    """Return the texts that modules keep under names in capitals, which other modules import."""
    return {
        name: value
        for _, tree in _modules()
        for name, value in _assigned_texts(tree.body).items()
        if name.isupper() and isinstance(value, ast.Constant) and " " in value.value
    }


def _name_of(node: ast.expr) -> str:
    """Return a word for a value: the name of the variable or the attribute that holds it."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    while isinstance(node, ast.Subscript):
        node = node.value
    name = getattr(node, "attr", getattr(node, "id", "")).strip("_")
    return name.lower() if re.fullmatch(r"[A-Za-z_]{3,}", name) else "…"


def _with_braces(text: str) -> str:
    return text.replace("\0", "{").replace("\1", "}")


def _is_code(text: str) -> bool:
    """Return whether a text is a program, a type or a query instead of words."""
    if NO_SENTENCE.match(text.strip()):
        return True
    if "#" in text:  # a comment of a file that attnlaw writes
        return False
    try:
        ast.parse(re.sub(r"{[^}]*}", "x", text.strip()))
    except (SyntaxError, ValueError):
        return False
    return True


def _template_texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    text = MARKUP.sub(lambda match: "\n" * match[0].count("\n") or "\n\0", text)
    text = re.sub(r"{{.*?}}", "{…}", text)
    line = 1
    for part in text.split("\n"):
        if not part.startswith("\0") and part.strip():
            yield line, html.unescape(part)
        elif part.strip("\0 "):
            yield line, html.unescape(part.strip("\0"))
        line += not part.startswith("\0")


def _paragraphs(docstring: str) -> Iterator[str]:
    for paragraph in docstring.split("\n\n"):
        lines = paragraph.strip().split("\n")
        is_code = lines[0].startswith((">>>", "|", "    ", "```")) or paragraph.startswith("    ")
        if lines[0].rstrip() in ("Args:", "Returns:", "Raises:", "Yields:"):
            entries = re.split(r"\n    (?=\S)", "\n".join(lines[1:]))
            yield from (entry.strip() for entry in entries)
        elif not is_code:
            yield paragraph


def _sentences(text: str, path: Path, line: int, fewest: int = FEWEST_WORDS) -> Iterator[Sentence]:
    for part in ENDS.split(" ".join(text.split())):
        words = re.findall(r"[A-Za-z][A-Za-z'-]+", part)
        if len(words) >= fewest and not re.search(r"\\[bdsw(]|\(\?|^[\w.]+$", part):
            yield Sentence(part, path, line)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def main() -> None:
    """Print the drawn sentences with their places."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=20, help="sentences of each kind")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be given several times")
    given = parser.parse_args()
    for kind in given.kind or KINDS:
        print(f"\n## {kind}, seed {given.seed}\n")
        for number, sentence in enumerate(draw(kind, given.count, given.seed), start=1):
            print(f"{number:3}. {sentence.text}    ({sentence.place})")


if __name__ == "__main__":
    main()
