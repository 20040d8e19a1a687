"""Sizes of a head's queries and keys, q = z R_Q + q0 and k = z' R_K + k0, as plain numbers (see `scores`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lengths:
    """What tells how long y can be: the singular values of R, padded with zeros to the size of y.

    `along` are the squares of what y0 has of the right singular vectors.
    """

    values: Reals
    along: Reals
    square: float


@dataclass(frozen=True, eq=False)
class ScorePart:
    """Some numbers of queries and keys: `values` are the singular values of R_Q R_K^T.

    `query` is |R_Q k0|, `key` |R_K q0|, `shifts` q0 . k0, `squares` bound |z|^2 on both sides. `lengths` are
    there where positions turn queries and keys, or clipping bends them, before they meet: then all else is
    of what stands before that.
    """

    values: Reals
    query: float
    key: float
    shifts: float
    squares: tuple[float, float]
    lengths: tuple[Lengths, Lengths] | None = None


@dataclass(frozen=True, eq=False)
class ScoreSizes:
    """A head: all its numbers, and the parts that add up to a score, those that positions turn apart."""

    whole: ScorePart
    parts: tuple[ScorePart, ...]
