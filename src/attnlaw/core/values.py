"""Values as they are given, by words, files and Python, and as the type that a setting declares."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, get_args, get_origin

from attnlaw.core.errors import BadSetting

TYPE_DESCRIPTIONS: dict[Any, str] = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    tuple[int, ...]: "whole numbers with commas, such as 1,2,3",
    tuple[str, ...]: "names with commas, such as qk,vo",
}
LARGEST = 2**63  # a whole number of TOML
MOST_POINTS = 100_000


def coerce(kind: Any, value: Any) -> Any:
    """The value as `kind`, None where it is not of that kind: 2.0 serves as 2, "inf" as a number."""
    if kind is Any:
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if get_origin(kind) is tuple:
        return _coerce_tuple(get_args(kind)[0], value)
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if isinstance(value, Integral):  # NumPy's, too
        value = int(value)
        if abs(value) > LARGEST:
            return None
    elif isinstance(value, Real):
        value = float(value)
    if kind is float:
        is_number = isinstance(value, int | float) or (isinstance(value, str) and value == "inf")
        number = float(value) if is_number else math.nan
        return None if math.isnan(number) else number
    if kind is int:
        whole = isinstance(value, int | float) and math.isfinite(value) and value == int(value)
        return int(value) if whole else None
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, kind) else None


def _coerce_tuple(kind: type, value: Any) -> tuple[Any, ...] | None:
    """A tuple of a list or of a text with commas; None where a part is of another kind."""
    if isinstance(value, str):
        parts: Sequence[Any] = [part.strip() for part in value.split(",") if part.strip()]
        if kind is int:
            parts = [int(p) if p.lstrip("+-").isdecimal() and len(p) < 20 else p for p in parts]
    elif isinstance(value, list | tuple):
        parts = value
    else:
        return None
    entries = [coerce(kind, part) for part in parts]
    return None if None in entries or not entries else tuple(entries)


def parse_number(word: Any) -> Any:
    """The number that a word stands for; the word itself where it is none.

    >>> [parse_number(word) for word in ("3", "0.5", "∞", "relu")]
    [3, 0.5, inf, 'relu']
    """
    if not isinstance(word, str):
        return word
    try:
        number = float(word.replace("∞", "inf"))
        return int(word) if word.lstrip("+-").isdecimal() else number
    except ValueError:  # also an integer of more digits than Python reads
        return word


def parse_range(name: str, text: str) -> list[float]:
    """`0.05:1:40` as 40 values from 0.05 to 1, both ends included.

    >>> parse_range("alpha", "0:1:3")
    [0.0, 0.5, 1.0]
    """
    try:
        first, last, points = text.split(":")
        low, high, count = float(first), float(last), int(points)
    except ValueError:
        raise BadSetting(name, "expected FROM:TO:COUNT such as 0.05:1:40", text) from None
    if not -math.inf < low < high < math.inf:
        raise BadSetting(name, "but FROM must be below TO, both finite", text)
    if not 2 <= count <= MOST_POINTS:
        raise BadSetting(name, f"but COUNT must be from 2 to {MOST_POINTS}", text)
    step = (high - low) / (count - 1)
    return [i * step + low for i in range(count - 1)] + [high]


def infinity_as_text(value: Any) -> Any:
    """Infinity as JSON can hold it."""
    return "inf" if value == math.inf else value
