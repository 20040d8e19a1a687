"""Texts to token ids as a model reads them, and back to labels that a person can read.

| model | text | label of an id |
|---|---|---|
| tokenizer.json beside it | by it, special tokens included, nothing cut or padded | its piece of text |
| none, a vocabulary of 256 | its UTF-8 bytes | the character, or `\\x0a` |
| none, another vocabulary | refused | the id |
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlaw.core.errors import as_input_error, printable, require_extra
from attnlaw.core.files import read_bounded

FILE = "tokenizer.json"
LARGEST = 256  # megabytes of it
BYTES = 256
SPACE = "␣"


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of a model; `library_tokenizer` is that of the package `tokenizers`, if there is one."""

    folder: str
    vocabulary: int
    library_tokenizer: Any = None

    @property
    def reads_bytes(self) -> bool:
        return self.library_tokenizer is None and self.vocabulary == BYTES

    @property
    def missing(self) -> str | None:
        """Why no text can be read; None where it can."""
        if self.library_tokenizer is not None or self.reads_bytes:
            return None
        return f"{self.folder} holds no {FILE}, and its {self.vocabulary} ids are no bytes; give token ids"

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text.

        >>> Tokenizer("model", 256).encode("é")
        (195, 169)
        """
        if self.library_tokenizer is None:
            return tuple(text.encode())
        return tuple(self.library_tokenizer.encode(text).ids)

    def labels(self, ids: Iterable[int]) -> tuple[str, ...]:
        """What each id stands for, printable, blanks made visible.

        >>> Tokenizer("model", 256).labels([97, 32, 10]), Tokenizer("model", 20).labels([3])
        (('a', '␣', '\\\\n'), ('3',))
        """
        return tuple(printable(self._piece(number).replace(" ", SPACE)) for number in ids)

    def _piece(self, number: int) -> str:
        if self.library_tokenizer is not None:
            piece: str = self.library_tokenizer.decode([number], skip_special_tokens=False)
            whole = piece and "\ufffd" not in piece  # else it is a part of a character
            return piece if whole else self.library_tokenizer.id_to_token(number) or str(number)
        if self.reads_bytes:
            return chr(number) if number < 128 else f"\\x{number:02x}"
        return str(number)


def open_tokenizer(folder: str | os.PathLike[str], vocabulary: int) -> Tokenizer:
    """The tokenizer beside a model in a directory, whose model has so many ids."""
    path = Path(folder) / FILE
    if not path.is_file():
        return Tokenizer(str(folder), vocabulary)
    with require_extra(f"reading {FILE}", "lens"):
        import tokenizers
    data = read_bounded(path, LARGEST)
    # The package has no classes of its own for what it cannot read.
    with as_input_error(f"{path}: no tokenizer", "restore the file, or give token ids", Exception):
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Tokenizer(str(folder), vocabulary, tokenizer)
