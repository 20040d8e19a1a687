"""What terminals without Unicode get instead of Greek letters, bars and typographic signs."""

import pytest

from attnlaw.core.plain_text import FORMS, HANDLER, to_plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("α κ₀ λ Δ", "alpha kappa_0 lambda Delta"),
        ("d² × 10³", "d^2 x 10^3"),
        ("ä é", "a e"),
        ("▁▄█", "_:#"),
        ("⟨a, b⟩", "<a, b>"),
        ("×/÷ 2", "x or / 2"),
    ],
)
def test_ascii_keeps_the_meaning_of_letters(text, plain):
    assert to_plain(text, "ascii") == plain


def test_letters_that_the_encoding_has_stay():
    assert to_plain("d² ± α", "latin-1") == "d² ± alpha"
    assert to_plain("d² ± α", "utf-8") == "d² ± α"


def test_every_replacement_is_ascii():
    assert all(form.isascii() for form in FORMS.values())


def test_streams_can_use_the_handler():
    assert "β".encode("ascii", HANDLER) == b"beta"
