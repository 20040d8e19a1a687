r"""Inputs for every verb that runs a model: texts or token ids, as settings or in files.

| setting | inputs |
|---|---|
| `text` | one, or several of them |
| `file` NAME.txt | one on each line |
| `file` NAME.jsonl | one on each line: an object with `ids`, or with `text`; other keys are ignored |
| `ids` 1,2,3 | one |
| `ids` @NAME | a list of ids on each line |

Empty lines are skipped. A mistake in an input is reported in one line, with its file and line number.

How texts become token ids, and ids become labels that a person can read:

| model | text | label of an id |
|---|---|---|
| tokenizer.json next to it | encoded by it, with special tokens, nothing cut or padded | its piece of text |
| none, a vocabulary of 256 | its UTF-8 bytes | the character, or `\x0a` |
| none, another vocabulary | not supported | the id |
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from attnlaw.core.child_process import CallFailed, ChildEnded, ChildProcess
from attnlaw.core.errors import BadSetting, InputError, MissingSetting, printable, require_extra
from attnlaw.core.files import read_bounded
from attnlaw.core.settings import Settings, check_value, setting, settings_dataclass

FILE = "tokenizer.json"
LARGEST = 256  # megabytes that a file may have
BYTES = 256
SPACE = "␣"


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of a model. `file` is its tokenizer.json, or None if the model has no such file."""

    folder: str
    vocabulary: int
    file: Path | None = None

    @property
    def reads_bytes(self) -> bool:
        return self.file is None and self.vocabulary == BYTES

    @property
    def missing(self) -> str | None:
        """The reason why this model cannot read text, or None if it can."""
        if self.file is not None or self.reads_bytes:
            return None
        return (
            f"{self.folder} has no {FILE}, and its {self.vocabulary} ids are not bytes, so attnlaw cannot "
            "read text; give token ids, such as 1,2,3"
        )

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text.

        >>> Tokenizer("model", 256).encode("é")
        (195, 169)
        """
        if self.file is None:
            return tuple(text.encode())
        return tuple(call_library("encode", self.file, text))

    @property
    def unknown_id(self) -> int | None:
        """The id for unknown words, or None if the vocabulary has no such id."""
        number: int | None = None if self.file is None else call_library("unknown_id", self.file)
        return number

    def labels(self, ids: Iterable[int]) -> tuple[str, ...]:
        r"""Return a label for each id. Labels are safe to print, and blanks in them are visible.

        >>> Tokenizer("model", 256).labels([97, 32, 10]), Tokenizer("model", 20).labels([3])
        (('a', '␣', '\\n'), ('3',))
        """
        return tuple(printable(piece.replace(" ", SPACE)) for piece in self._pieces(list(ids)))

    def _pieces(self, ids: list[int]) -> list[str]:
        if self.file is not None:
            named = zip(ids, call_library("pieces", self.file, ids), strict=True)
            # A piece with this character is only a part of a character of the text.
            return [
                piece if piece and "\ufffd" not in piece else name or str(number)
                for number, (piece, name) in named
            ]
        if self.reads_bytes:
            return [chr(number) if number < 128 else f"\\x{number:02x}" for number in ids]
        return [str(number) for number in ids]


# More than any good tokenizer takes, also on a busy machine.
LIBRARY = ChildProcess(Path(__file__).with_name("tokenizer_library.py"), seconds=30, megabytes=4096)


def call_library(function: str, file: Path, *arguments: Any) -> Any:
    """Call a function of `tokenizer_library` on a tokenizer.json. Raise an `InputError` if the call fails."""
    try:
        return LIBRARY.call(function, str(file.absolute()), *arguments)
    except CallFailed as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise InputError(
            f"{file}: the tokenizer cannot be opened ({reason}); restore the file, or give token ids"
        ) from error
    except ChildEnded as error:
        raise InputError(f"{file}: the tokenizer {error}, so it was stopped; give token ids") from error


def open_tokenizer(folder: str | os.PathLike[str], vocabulary: int) -> Tokenizer:
    """Open the tokenizer in the directory of a model that has `vocabulary` ids."""
    path = Path(folder) / FILE
    if not path.is_file():
        return Tokenizer(str(folder), vocabulary)
    with require_extra(f"reading {FILE}", "lens"):
        import tokenizers  # noqa: F401 (used in a child process)
    read_bounded(path, LARGEST)
    call_library("check", path)
    return Tokenizer(str(folder), vocabulary, path)


_input_setting = partial(setting, None, panel="Input")
FROM_FILE = "@"
# Which token of an input is read in a causal model.
POSITIONS = dict.fromkeys(("last", "sample"))
IDS_FORMAT = "whole numbers from 0 on, separated by commas, such as 1,2,3"


@settings_dataclass
class InputSettings(Settings):
    """One or several inputs of a model. The error about a missing input shows `example_input`."""

    example_input: ClassVar[tuple[str, str]] = ("text", "The cat sat on the mat")

    text: tuple[str, ...] | None = _input_setting(
        help="Text to give to the model. attnlaw splits it into tokens with the tokenizer.json next to "
        "the model. If the model has 256 ids and no tokenizer, the tokens are bytes. Repeat the "
        "option for several texts (lens takes one).",
        repeatable=True,
        metavar="TEXT",
    )
    file: str | None = _input_setting(
        help="File with one input on each line: texts (.txt), or objects with text or ids (.jsonl).",
        is_path=True,
        excluded_by="text",
        metavar="FILE",
    )
    ids: tuple[int, ...] | str | None = _input_setting(
        help="Token ids to give to the model. @FILE reads one list from each line.",
        excluded_by=("text", "file"),
        metavar="1,2,3",
    )

    def check(self) -> None:
        super().check()
        if self.text is None and self.file is None and self.ids is None:
            raise self._missing_input()
        file = self.file or ""
        if file and not file.startswith(FROM_FILE) and Path(file).suffix not in LINES:
            raise BadSetting("file", f"expected a name that ends in {' or '.join(LINES)}", file)
        ids = self.ids
        if isinstance(ids, tuple) and min(ids) < 0:
            raise BadSetting("ids", f"expected {IDS_FORMAT}; or @FILE", ",".join(map(str, ids)))
        if isinstance(ids, str) and not ids.startswith(FROM_FILE):
            raise BadSetting("ids", f"expected {IDS_FORMAT}; or @FILE", ids)

    def _missing_input(self) -> MissingSetting:
        name, value = self.example_input
        verb = type(self).__name__.removesuffix("Settings").lower()
        words = ["attnlaw", verb, *filter(None, [getattr(self, "model", None)])]
        return MissingSetting(name, f"{verb} needs an input", value, shlex.join(words))

    @property
    def source(self) -> str:
        return self.file or (self.ids[1:] if isinstance(self.ids, str) else "")

    def to_row(self) -> dict[str, Any]:
        """Return the settings as a row. A file of ids is written as `@NAME` under `file`."""
        row = super().to_row()
        return row | {"ids": None, "file": self.ids} if isinstance(self.ids, str) else row


@dataclass(frozen=True)
class RawInput:
    """An input as the user gave it, with its setting, and its line or number if there are several."""

    setting: str
    text: str | None = None
    ids: tuple[int, ...] | None = None
    place: str | None = None

    def input_error(self, rule: str, value: object = None) -> InputError:
        """Return an error about this input that names its line, or its setting."""
        if self.place is None:
            return BadSetting(self.setting, rule, value)
        detail = "" if value is None else f"found {value}, "
        return InputError(f"{self.place}: {detail}{rule}")

    def require_inside(self, ids: Sequence[int], vocabulary: int, positions: int) -> None:
        """Raise an `InputError` if there are no ids, too many, or ids outside of the vocabulary."""
        if not ids:
            raise self.input_error("has no tokens; give at least one")
        if len(ids) > positions:
            raise self.input_error(
                f"has {len(ids)} tokens, but the model reads at most {positions}; give a shorter input"
            )
        for number in ids:
            if number >= vocabulary:
                raise self.input_error(f"expected ids of the vocabulary, from 0 to {vocabulary - 1}", number)


@dataclass(frozen=True)
class Input:
    ids: tuple[int, ...]
    labels: tuple[str, ...]


def input_words(row: Mapping[str, Any]) -> list[str]:
    """Return the words of a command that pass the input, from a row of settings.

    >>> input_words({"text": ["the cat", "a dog"], "file": None, "ids": None})
    ['--text', 'the cat', '--text', 'a dog']
    >>> input_words({"text": None, "file": "@ids.txt", "ids": None})
    ['--ids', '@ids.txt']
    """
    texts, file, ids = (row.get(name) for name in ("text", "file", "ids"))
    if texts is not None:
        return [word for text in texts for word in ("--text", text)]
    if ids is not None:
        return ["--ids", ",".join(map(str, ids))]
    return ["--ids" if str(file).startswith(FROM_FILE) else "--file", str(file)]


def check_ids(ids: Sequence[int]) -> tuple[int, ...]:
    checked: tuple[int, ...] = check_value("ids", list(ids), tuple[int, ...], minimum=0)
    return checked


def raw_inputs(case: InputSettings) -> list[RawInput]:
    """Return the inputs that the settings give, which are not tokenised yet."""
    if case.text is not None:
        several = len(case.text) > 1
        return [
            RawInput("text", text=text, place=f"text, number {number}" if several else None)
            for number, text in enumerate(case.text, start=1)
        ]
    if isinstance(case.ids, tuple):
        return [RawInput("ids", ids=case.ids)]
    inputs = list(_read_input_file(case))
    if not inputs:
        raise InputError(f"{case.source}: all its lines are empty; write one input on each line")
    return inputs


def single_input(case: InputSettings, verb: str) -> RawInput:
    """Return the only input that the settings give, for a verb that takes one."""
    inputs = raw_inputs(case)
    if len(inputs) > 1:
        if case.source:
            raise InputError(
                f"{case.source}: has {len(inputs)} inputs; {verb} takes only one, so keep one line"
            )
        raise BadSetting("text", f"was given {len(inputs)} times; {verb} reads one input")
    return inputs[0]


def read_input(raw: RawInput, tokenizer: Tokenizer, positions: int) -> Input:
    """Return the ids and labels of an input, or raise an `InputError` if the model cannot read it."""
    ids = raw.ids
    if ids is None:
        text = raw.text or ""
        if tokenizer.missing is not None:
            raise raw.input_error(f"needs a tokenizer: {tokenizer.missing}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise raw.input_error(
                "contains half of a character (a lone surrogate); give valid Unicode"
            ) from None
        ids = tokenizer.encode(text)
    raw.require_inside(ids, tokenizer.vocabulary, positions)
    return Input(ids, tokenizer.labels(ids))


def _read_input_file(case: InputSettings) -> Iterator[RawInput]:
    setting, path = "ids" if case.file is None else "file", Path(case.source)
    read = _with_ids if setting == "ids" else LINES[path.suffix]
    try:
        lines = read_bounded(path, LARGEST).decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield read(line.removesuffix("\r"), RawInput(setting, place=f"{path}, line {number}"))


def _object_line(line: str, given: RawInput) -> RawInput:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise given.input_error(f"is not JSON ({error}); expected an object with text or ids") from error
    if isinstance(record, dict) and "ids" in record:
        return _with_ids(record["ids"], given)
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise given.input_error('expected an object with text or ids, such as {"text": "..."}')
    return replace(given, text=record["text"])


def _with_ids(value: Any, given: RawInput) -> RawInput:
    try:
        return replace(given, ids=check_value("ids", value, tuple[int, ...], minimum=0))
    except BadSetting:
        shown = str(value) if len(str(value)) < 60 else f"{str(value)[:60]}..."
        raise given.input_error(f"expected {IDS_FORMAT}", shown) from None


# Readers of a line, by the ending of the file name.
LINES: dict[str, Callable[[str, RawInput], RawInput]] = {
    ".txt": lambda line, given: replace(given, text=line),
    ".jsonl": _object_line,
}
