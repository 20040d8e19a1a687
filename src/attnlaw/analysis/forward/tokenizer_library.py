"""The functions that read a tokenizer.json. They run in a child process, because a file can make them run
without end or fill the memory (`core.child_process`)."""

from __future__ import annotations

import os
from functools import lru_cache

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every thread would reserve addresses

from tokenizers import Tokenizer


def check(path: str) -> None:
    """Open a tokenizer. Raise the library's error if the tokenizer cannot be opened."""
    _open(path)


def encode(path: str, text: str) -> list[int]:
    ids: list[int] = _open(path).encode(text).ids
    return ids


def pieces(path: str, ids: list[int]) -> list[tuple[str, str | None]]:
    """Return the text of each id, and its name in the vocabulary, if it has one."""
    tokenizer = _open(path)
    return [(tokenizer.decode([i], skip_special_tokens=False), tokenizer.id_to_token(i)) for i in ids]


def unknown_id(path: str) -> int | None:
    """Return the id that stands for unknown words, if there is one."""
    tokenizer = _open(path)
    token = getattr(tokenizer.model, "unk_token", None)
    return None if token is None else tokenizer.token_to_id(token)


def _open(path: str) -> Tokenizer:
    status = os.stat(path)  # noqa: PTH116 (nothing else is imported)
    return _open_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _open_version(path: str, changed: int, size: int) -> Tokenizer:
    with open(path, "rb") as file:  # noqa: PTH123
        tokenizer = Tokenizer.from_buffer(file.read())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
