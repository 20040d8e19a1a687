"""Text for terminals that cannot show every letter, such as an ASCII terminal."""

from __future__ import annotations

import codecs
import unicodedata
from contextlib import suppress

# What stands for a letter that an encoding lacks. Greek letters become their names, and letters with accents
# lose them.
FORMS = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#", strict=True)),
    **dict(zip("▏▎▍▌▋▊▉", "....###", strict=True)),
    "×": "x",
    "·": "-",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "≈": "~",
    "√": "sqrt",
    "∞": "inf",
    "∑": "sum",
    "∫": "integral",
    "‖": "|",
    "÷": "/",
    "⟨": "<",
    "⟩": ">",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "°": " degrees",
    "⊙": "*",
    "∈": "in",
    "Ŝ": "S^",
    "ᵀ": "^T",
    "⁻": "-",
    **{f"{digit}": f"^{i}" for i, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{f"{digit}": f"_{i}" for i, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **dict(zip("─│╭╮╰╯├┤", "-|++++||", strict=True)),
}
HANDLER = "attnlaw"  # name of the error handler for streams


def to_plain(text: str, encoding: str) -> str:
    """Return the text with a replacement for every letter that the encoding does not have.

    >>> to_plain("β₂ ≤ 0.5 × 10⁴", "ascii"), to_plain("β ▁█", "utf-8")
    ('beta_2 <= 0.5 x 10^4', 'β ▁█')
    """
    with suppress(UnicodeEncodeError):
        return text.encode(encoding).decode(encoding)
    return text.replace("×/÷", "x or /").encode(encoding, HANDLER).decode(encoding)


def _ascii_form(letter: str) -> str:
    if letter.isascii():
        return letter
    if letter in FORMS:
        return FORMS[letter]
    name = unicodedata.name(letter, "")
    if name.startswith("GREEK ") and " LETTER " in name:
        word = name.split(" LETTER ")[1].split()[0].lower()
        word = word.replace("lamda", "lambda")
        return word.capitalize() if "CAPITAL" in name else word
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii_form, error.object[error.start : error.end])), error.end


codecs.register_error(HANDLER, _replace)
