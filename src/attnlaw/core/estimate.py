"""Numbers with errors, and the outcome of a computation. Each has one form in Python, in rows and in JSON.

| | Python | rows | JSON |
|---|---|---|---|
| a value with an error | `Estimate(value, error)` | `x`, `x_error` | `{"value", "error"}` |
| a value within a range | `Range(value, low, high)` | `x`, `x_low`, `x_high` | `{"value", "low", "high"}` |
| how it ended | `Outcome` | `status`, and `remark` with the remedy | the same |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

MAX_LIST_ENTRIES = 6  # entries of a list; JSON has them all
LEAST, LARGEST = 1e-4, 1e6  # a column with values outside of this range is written with exponents
MOST_DIGITS = 6  # digits after the point of a number with an exponent


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its error, or with None if the value is exact.

    The error is a standard error, or a bound if the description of the quantity says so.

    >>> [str(Estimate(*pair)) for pair in ((0.0221738, 0.00037), (1.2e-5, 6e-7), (123.0, 20.0), (3.0,))]
    ['0.0222(4)', '1.20(6)e-05', '123(20)', '3']
    """

    value: float
    error: float | None = None

    def __str__(self) -> str:
        return format_with_error(self.value, self.error)

    def __truediv__(self, scale: float) -> Estimate:
        return Estimate(self.value / scale, None if self.error is None else self.error / abs(scale))


class Range(NamedTuple):
    """A value with the interval of values that fit the data. A value or an end that is not known is None."""

    value: float | None
    low: float | None
    high: float | None


class Outcome(StrEnum):
    """The possible values of the column `status`: how a computation ended."""

    DONE = "done"
    RECOVERED = "recovered"
    NOT_CONVERGED = "not converged"
    ILL_CONDITIONED = "ill-conditioned"
    UNSTABLE = "unstable"
    NOT_FITTED = "not fitted"
    IMPLAUSIBLE = "does not fit"
    INEXACT = "inexact"
    FAILED = "failed"


def format_with_error(value: float, error: float | None, exponent: bool | None = None) -> str:
    """Return a value with its error in brackets, in units of the last digit: `0.25(1)`.

    By default, the size of the number decides whether it has an exponent.

    >>> format_with_error(0.25, 0.01), format_with_error(0.25, math.nan), format_with_error(-3.1e40, 2e38)
    ('0.25(1)', '0.25(?)', '-3.10(2)e+40')
    >>> format_with_error(65_234.0, 308.0), format_with_error(78_361_752.0, 422_935.0)
    ('65,234(308)', '7.84(4)e+07')
    """
    if not error:
        return f"{value:.2e}" if exponent else f"{value:.6g}"
    if not math.isfinite(error):
        return f"{value:.6g}(?)"
    place = math.floor(math.log10(error))
    large = abs(value) >= LARGEST or error >= LARGEST
    if exponent is None:
        exponent = large or not (place >= 0 or place >= -4 or abs(value) >= 0.1)
    if not exponent:
        if place >= 0:
            return f"{value:z,.0f}({error:,.0f})"
        return f"{value:z,.{-place}f}({round(error / 10.0**place)})"
    size = max(place, math.floor(math.log10(abs(value)))) if value else place
    if size - place > MOST_DIGITS:  # the error is far below the digits that anyone reads
        return f"{value:.2e}"
    unit = round(error / 10.0**place)
    return f"{value / 10.0**size:z.{size - place}f}({unit})e{size:+03d}"


def format_column(values: Iterable[float | None], errors: Iterable[float | None]) -> list[str]:
    """Return the cells of a column of values with errors, all in the same notation. A missing value gives "".

    >>> format_column([0.046, 0.0508, None], [1e-4, 1e-4, None])
    ['0.0460(1)', '0.0508(1)', '']
    >>> format_column([0.0221, 1.2e-5], [4e-4, 6e-7])
    ['2.21(4)e-02', '1.20(6)e-05']
    """
    pairs = list(zip(values, errors, strict=True))
    sizes = [abs(value) for value, error in pairs if value and error]
    finite = [size for size in sizes if math.isfinite(size)]
    exponent = any(not LEAST <= size < LARGEST for size in finite) if finite else None
    plain = ".2e" if exponent else ".4g"
    return [
        "" if value is None else format_with_error(value, error, exponent) if error else format(value, plain)
        for value, error in pairs
    ]


def format_percent(share: Estimate) -> str:
    """Return a share in percent with its error in brackets, in units of the last digit.

    >>> format_percent(Estimate(0.0204, 0.0003)), format_percent(Estimate(0.188023))
    ('2.04(3)%', '18.8%')
    """
    percent = 100 * share.value
    return f"{format_with_error(percent, 100 * share.error) if share.error else f'{percent:.3g}'}%"


def format_value(value: Any) -> str:
    """Return the text of a table cell. A missing value gives an empty text, and a long list is cut.

    >>> format_value(Estimate(0.25, 0.01)), format_value(Range(2.0, 1.0, None)), format_value([1.0] * 8)
    ('0.25(1)', '2 (1 to ?)', '1  1  1  1  1  1  and 2 more')
    """
    if value is None:
        return ""
    if isinstance(value, Range):
        ends = " to ".join(format_value(end) or "?" for end in (value.low, value.high))
        return f"{format_value(value.value)} ({ends})".strip()
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - MAX_LIST_ENTRIES} more"] if len(value) > MAX_LIST_ENTRIES else []
        return "  ".join([*map(format_value, value[:MAX_LIST_ENTRIES]), *more])
    return str(Estimate(value)) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Numbers:
    """A simple record of quantities and outcome, for verbs that need no class of their own."""

    quantities: Mapping[str, Any]
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


class BriefRepr:
    """A base class for records of arrays, whose `repr` shows only the numbers and the outcome."""

    def __repr__(self) -> str:
        known = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        values = getattr(self, "quantities", known)
        parts = [
            f"{name} {format_value(value)}"
            for name, value in values.items()
            if isinstance(value, int | float | Estimate)
        ]
        ending = getattr(self, "outcome", Outcome.DONE), getattr(self, "remark", None)
        parts += [text for text in ending if text and text != Outcome.DONE]
        return f"<{' '.join([type(self).__name__, ', '.join(parts)]).strip()}>"
