"""Numbers with errors as text."""

from __future__ import annotations

from attnlaw.core.estimate import format_with_error


def test_errors_above_a_million_and_negative_zeros_are_short() -> None:
    assert format_with_error(18382833544449039174730090.0, 15400900230846810595227353.0) == "2(2)e+25"
    assert format_with_error(-1.0e28, 1.2e44) == "0(1)e+44"
    assert format_with_error(-0.3, 3.0) == "0(3)"
    assert format_with_error(-0.0004, 0.02) == "0.00(2)"
    assert format_with_error(65_234.0, 30_856.0) == "65,234(30,856)"
    assert format_with_error(1.2e-5, 6e-7) == "1.20(6)e-05"
