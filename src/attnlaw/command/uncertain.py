"""Numbers with their standard errors, as the terminal shows them."""

from __future__ import annotations

import math


def with_error(value: float, error: float | None) -> str:
    """A value with its standard error in units of the last digit, in parentheses; alone without one.

    >>> [with_error(*pair) for pair in ((0.0221738, 0.00037), (1.2e-5, 6e-7), (123.0, 20.0), (3.0, 0.0))]
    ['0.0222(4)', '1.20(6)e-05', '123(20)', '3']
    """
    if not error:
        return f"{value:.6g}"
    place = math.floor(math.log10(error))
    if place >= 0:
        return f"{value:.0f}({error:.0f})"
    unit = round(error / 10**place)
    if place >= -4 or abs(value) >= 0.1:
        return f"{value:.{-place}f}({unit})"
    exponent = max(place, math.floor(math.log10(abs(value)))) if value else place
    return f"{value / 10.0**exponent:.{exponent - place}f}({unit})e{exponent:03d}"
