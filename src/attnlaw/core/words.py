"""Counts and numbers as people write them."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "2 heads". The plural ends in s unless `plural` is given.

    >>> count_of(1, "layer"), count_of(12000, "row"), count_of(2, "matrix", "matrices")
    ('1 layer', '12,000 rows', '2 matrices')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def short_number(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits, and with all digits before the decimal point.

    >>> short_number(0.12345), short_number(130.7, 2), short_number(189727.6), short_number(1.2345e8)
    ('0.123', '131', '189,728', '1.23e+08')
    """
    whole = 10.0**digits - 0.5 <= abs(value) < 999_999.5
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def short_percent(share: float) -> str:
    """Return a small share in percent with one decimal place. A share above 0 never becomes 0.0%.

    >>> short_percent(0.0184), short_percent(0.00001), short_percent(0.0)
    ('1.8%', 'less than 0.1%', '0.0%')
    """
    return "less than 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
