"""One stored tensor of two models: numbers, and a verdict, the first of the table that holds.

| verdict of a matrix | when, d = W1 - W0, s its singular values, v the variance of the file's rounding |
|---|---|
| rounded | the base cast to a float format, or 99 percent of it on the grid of an integer scheme |
| low-rank | r = #{s > 1.1 edge} <= min/4 and `sum_{i>r} s_i^2 <= 2 (1 - r/n)(1 - r/m) sum v` |
| below-floor | the same with r = 0 |
| unrelated | |cos(W0, W1)| < max(0.2, 4/sqrt(nm)) |
| noise | s_1(d) < 1.1 times that of d with random signs, and |cos(d, W0)| < 0.05 |
| dense | else |

Tensors of three or more dimensions (stacked experts) are read as matrices of their last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from attnlaw.comparing.floor import edge, rank_above, stored_steps
from attnlaw.comparing.rounding import Format, found_format
from attnlaw.comparing.update import update_values

Matrix = NDArray[np.float64]
LEAST_COSINE, CHANCE = 0.2, 4.0
NOISE_EDGE, NOISE_COSINE = 1.1, 0.05
# Relative error to which the largest value with random signs is found.
SIGNED_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class Change:
    """What became of a tensor; numbers are None where they have no meaning.

    `values` are the singular values of the difference, `floor` what rounding leaves of them, where they were
    computed.
    """

    verdict: str
    format: Format | None = None
    rank: int | None = None
    size: float | None = None
    cosine: float | None = None
    unchanged: float | None = None
    max_change: float | None = None
    values: Matrix | None = None
    floor: float | None = None

    @property
    def sqnr_db(self) -> float | None:
        """The base's power over that of the change, in decibels."""
        return -20 * float(np.log10(self.size)) if self.size else None


def compare_tensors(base: NDArray[Any], model: NDArray[Any], dtype: str) -> Change:
    """Compare two arrays as they were read; `dtype` is the type that the model's file says.

    >>> base = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    >>> found = compare_tensors(base, base.astype(np.float16), "float16")
    >>> found.verdict, found.format.name, round(found.sqnr_db)
    ('rounded', 'float16', 74)
    """
    if base.shape != model.shape:
        return _reshaped(base, model)
    if base.ndim > 2:
        base, model = (one.reshape(-1, one.shape[-1]) for one in (base, model))
    before, after = (one.astype(np.float64) for one in (base, model))
    numbers = _numbers(before, after)
    if numbers is None:
        return Change("non-finite")
    if numbers["max_change"] == 0:
        return Change("identical", **numbers)
    if (form := found_format(base, after)) is not None:
        return Change("rounded", form, **numbers)
    if base.ndim < 2 or min(base.shape) < 2:
        return Change("changed", **numbers)
    steps = stored_steps(model, dtype)
    floor, rounding = edge(steps), float(np.sum(steps**2)) / 12
    del steps
    update = after - before
    values = update_values(update, floor)
    rank = rank_above(values, floor)
    verdict = _verdict(before, update, values, rank, rounding, numbers["cosine"])
    return Change(verdict, None, rank, **numbers, values=values, floor=floor)


def _numbers(before: Matrix, after: Matrix) -> dict[str, Any] | None:
    """Size, cosine and entries that changed; None where an entry is not finite."""
    if not before.size:
        return {"unchanged": 1.0, "max_change": 0.0}
    top = float(np.max([np.abs(one).max() for one in (before, after)]))  # NaN stays
    if not np.isfinite(top):
        return None
    scale = 1.0 if top == 0 or 1e-70 < top < 1e70 else top  # squares of others leave float64
    update = (after - before) / scale if scale != 1 else after - before
    sides = (before, after) if scale == 1 else (before / scale, after / scale)
    norms = [float(np.linalg.norm(one)) for one in sides]
    inner = float(np.vdot(*sides))
    changed = float(np.abs(update).max()) * scale
    return {
        "size": float(np.linalg.norm(update)) / norms[0] if norms[0] else None,
        "cosine": (inner / norms[0] / norms[1] if changed else 1.0) if all(norms) else None,
        "unchanged": float(np.mean(before == after)),
        "max_change": changed,
    }


def _reshaped(base: NDArray[Any], model: NDArray[Any]) -> Change:
    """Numbers of the rows that both have, where rows alone were added or taken away."""
    if base.ndim != model.ndim or base.shape[1:] != model.shape[1:]:
        return Change("reshaped")
    rows = min(len(base), len(model))
    numbers = _numbers(*(one[:rows].astype(np.float64) for one in (base, model)))
    return Change("non-finite") if numbers is None else Change("reshaped", **numbers)


def _verdict(
    base: Matrix, update: Matrix, values: Matrix, rank: int, rounding: float, cosine: float | None
) -> str:
    (n, m), least = base.shape, min(base.shape)
    left = 2 * (1 - rank / n) * (1 - rank / m) * rounding
    if rank <= least / 4 and float(np.sum(values[rank:] ** 2)) <= left:
        return "low-rank" if rank else "below-floor"
    if cosine is None or abs(cosine) < max(LEAST_COSINE, CHANCE / np.sqrt(n * m)):
        return "unrelated"
    along = float(np.sum(update * base)) / float(np.linalg.norm(update) * np.linalg.norm(base))
    if abs(along) < NOISE_COSINE and values[0] < NOISE_EDGE * _most_signed_norm(update):
        return "noise" if values[0] < NOISE_EDGE * _signed_norm(update) else "dense"
    return "dense"


def _most_signed_norm(update: Matrix) -> float:
    """More than the largest singular value with random signs ever is (Bandeira and van Handel 2016)."""
    squares = update**2
    sides = float(np.sqrt(squares.sum(axis=0).max()) + np.sqrt(squares.sum(axis=1).max()))
    return sides + 2 * float(np.sqrt(squares.max() * np.log(sum(update.shape))))


def _signed_norm(update: Matrix, seed: int = 0) -> float:
    """The largest singular value of the update's entries with random signs."""
    rng = np.random.default_rng(seed)
    signed = np.where(rng.integers(0, 2, update.shape, dtype=bool), update, -update)
    if min(update.shape) < 16:  # too small for Lanczos
        return float(np.linalg.norm(signed, 2))
    start = rng.standard_normal(min(update.shape))
    top = svds(signed, k=1, tol=SIGNED_ERROR, v0=start, return_singular_vectors=False)
    return float(top[0])
