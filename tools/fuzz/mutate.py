"""Random changes to bytes: bits, spans, numbers and tokens, and parts of other cases."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**62,
    2**63,
    2**64 - 1,
)
TEXT_NUMBERS = (
    "0",
    "-1",
    "1",
    "3",
    "1e9",
    "1e999",
    "-0.0",
    "0.5",
    "NaN",
    "Infinity",
    "nan",
    "inf",
    "true",
    "null",
    '"4"',
    "[]",
    "{}",
    "[1]",
    "9" * 19,
    "9" * 400,
    "1e-320",
    '""',
    '"\\u001b[2J\\n"',
    '"\\ud800.safetensors"',
    "0x" + "f" * 16,
    "0x" + "f" * 5000,
    "1979-05-27",
    "{a=1}",
)
TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"=",
    b"\n",
    b"\x00",
    b"\xff",
    b"\x1b",
    b"#",
    b".",
    b"..",
    b"/",
    b"[[",
    b"]]",
    b"'''",
    b'"""',
    b"{layer}",
    b"{group}",
    b"{layer}{layer}",
    b"\\ud800",
    b"PK\5\6",
    b"q\x00",
    b"h\x00",
    b"(",
    b"t",
    b"\x85",
    b"R",
    b"c",
    b"s.",
    b"inf",
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?|true|false|null")
WORD = re.compile(rb"[A-Za-z_][\w.]*")


def mutate(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    """One to five changes, one after the other."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        data = random.choice(CHANGES)(data, pool, random)
    return data[: 1 << 20]


def _place(data: bytes, random: Random) -> int:
    """Anywhere, half of the time within the first kilobyte, where headers are."""
    most = min(len(data), 1024) if random.random() < 0.5 else len(data)
    return random.randint(0, most)


def _bit(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    if not data:
        return b"\0"
    at = min(_place(data, random), len(data) - 1)
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _byte(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _delete(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + data[at + random.choice((1, 2, 4, 8, 30, 200)) :]


def _repeat(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    at, size = _place(data, random), random.choice((1, 4, 20, 100))
    return data[: at + size] + data[at : at + size] * random.choice((1, 1, 2, 50)) + data[at + size :]


def _integer(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    at, form = _place(data, random), random.choice("BHIQ")
    number = random.choice(NUMBERS) % (1 << 8 * struct.calcsize(form))
    packed = struct.pack(f"<{form}", number)
    return data[:at] + packed + data[at + len(packed) :]


def _token(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.choice(TOKENS) + data[at + random.choice((0, 1)) :]


def _number(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    return _replaced(NUMBER, random.choice(TEXT_NUMBERS).encode(), data, random)


def _word(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    """A word in the place of another, so that keys and names are exchanged."""
    words = WORD.findall(random.choice(pool)[:10_000])
    return _replaced(WORD, random.choice(words), data, random) if words else data


def _splice(data: bytes, pool: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(pool)
    return data[: _place(data, random)] + other[_place(other, random) :]


def _replaced(pattern: re.Pattern[bytes], new: bytes, data: bytes, random: Random) -> bytes:
    hits = list(pattern.finditer(data[:20_000]))
    if not hits:
        return data
    hit = random.choice(hits)
    return data[: hit.start()] + new + data[hit.end() :]


Change = Callable[[bytes, Sequence[bytes], Random], bytes]
CHANGES: tuple[Change, ...] = (
    _bit, _byte, _delete, _repeat, _integer, _token, _number, _number, _word, _word, _splice
)  # fmt: skip
