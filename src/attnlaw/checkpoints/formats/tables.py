"""Plain values beside the weights of a pickle: tables of numbers and texts, whatever holds them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

PLAIN = (str, int, float, bool, type(None))


def table_of(value: Any) -> Mapping[str, Any]:
    """The entries of a table or of a Namespace by name; of all else none."""
    entries = vars(value) if isinstance(value, Namespace) else value
    return {str(key): entry for key, entry in entries.items()} if isinstance(entries, Mapping) else {}


def plain_entries(value: Any) -> dict[str, Any]:
    """Those entries of a table that are numbers, texts, true, false or nothing.

    >>> plain_entries(Namespace(hidden_size=8, betas=(0.9, 0.99)))
    {'hidden_size': 8}
    """
    return {key: entry for key, entry in table_of(value).items() if isinstance(entry, PLAIN)}
