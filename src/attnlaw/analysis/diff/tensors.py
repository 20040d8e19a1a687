"""Compare one stored tensor of two models, and give the change a verdict: the first in this table that holds.

| verdict on a matrix | condition: d = W1 - W0, s its singular values, v the variance of the file's rounding |
|---|---|
| rounded | the base cast to a float format, or 99 percent of it on the grid of an integer format |
| low-rank | r = #{s > 1.1 edge} <= min/4 and `sum_{i>r} s_i^2 <= 2 (1 - r/n)(1 - r/m) sum v` |
| below-floor | the same with r = 0 |
| unrelated | |cos(W0, W1)| < max(0.2, 4/sqrt(nm)) |
| noise | s_1(d) < 1.1 times that of d with random signs, and |cos(d, W0)| < 0.05 |
| dense | otherwise |

Tensors of three or more dimensions (stacked experts) are read as matrices with their last axis as columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.analysis.diff.rounding import Format, detect_format, file_rounding, rank_above, row_blocks
from attnlaw.analysis.diff.update import matrix_update_values
from attnlaw.core.arrays import Reals

LEAST_COSINE, CHANCE = 0.2, 4.0
NOISE_EDGE, NOISE_COSINE = 1.1, 0.05
# Relative error of the largest singular value with random signs.
SIGNED_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class TensorChange:
    """The change of one tensor. A number is None if it has no meaning for this tensor."""

    verdict: str
    format: Format | None = None  # the format that the base was rounded to
    rank: int | None = None  # number of singular values of the difference above the floor
    size: float | None = None  # |W1 - W0| / |W0|
    cosine: float | None = None
    unchanged: float | None = None  # share of the entries that are equal
    max_change: float | None = None
    values: Reals | None = None  # singular values of the difference, if they were computed
    floor: float | None = None  # what the rounding of the file leaves of them

    @property
    def sqnr_db(self) -> float | None:
        """Ratio of the power of the base to the power of the change, in decibels.

        None if the tensor did not change, or if the size of the change is not known.
        """
        return -20 * float(np.log10(self.size)) if self.size else None


def compare_tensors(base: NDArray[Any], model: NDArray[Any], dtype: str) -> TensorChange:
    """Compare two tensors. `dtype` is the data type that the model's file names.

    >>> base = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    >>> found = compare_tensors(base, base.astype(np.float16), "float16")
    >>> found.verdict, found.format.name, round(found.sqnr_db)
    ('rounded', 'float16', 74)
    """
    if base.shape != model.shape:
        return _compare_reshaped(base, model)
    if base.ndim != 2:
        base, model = (array.reshape(-1, array.shape[-1] if array.ndim > 2 else 1) for array in (base, model))
    sums = _sum_entries(base, model)
    if sums is None:
        return TensorChange("non-finite")
    if sums.largest == 0:
        return TensorChange("identical", **sums.numbers)
    if (form := detect_format(base, model, sums.size)) is not None:
        return TensorChange("rounded", form, **sums.numbers)
    if min(base.shape) < 2:
        return TensorChange("changed", **sums.numbers)
    floor, rounding = file_rounding(model, dtype)
    update = np.empty(base.shape)
    for rows in row_blocks(base.shape):
        np.subtract(model[rows], base[rows], out=update[rows], dtype=np.float64)
    update /= sums.scale
    values = matrix_update_values(update, floor / sums.scale)
    rank = rank_above(values, floor / sums.scale)
    verdict = _verdict(update, values, rank, rounding / sums.scale**2, sums)
    return TensorChange(verdict, None, rank, **sums.numbers, values=values * sums.scale, floor=floor)


@dataclass(frozen=True)
class _Sums:
    """Sums over the entries of two tensors: |W0|^2, |W1|^2, |d|^2, <W0, W1> and <W0, d>.

    Entries are divided by `scale` before they are multiplied.
    """

    before: float
    after: float
    update: float
    inner: float
    along: float
    largest: float
    unchanged: float
    scale: float

    @property
    def size(self) -> float | None:
        return float(np.sqrt(self.update / self.before)) if self.before else None

    @property
    def cosine(self) -> float | None:
        if not self.before or not self.after:
            return None
        return self.inner / float(np.sqrt(self.before * self.after)) if self.largest else 1.0

    @property
    def numbers(self) -> dict[str, Any]:
        changed = self.largest * self.scale
        return {"size": self.size, "cosine": self.cosine, "unchanged": self.unchanged, "max_change": changed}


def _sum_entries(base: NDArray[Any], model: NDArray[Any]) -> _Sums | None:
    """Return the sums over all entries; None if an entry is not finite."""
    if not base.size:
        return _Sums(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    top = float(np.max([np.max([array.max(), -array.min()]) for array in (base, model)]))  # keeps NaN
    if not np.isfinite(top):
        return None
    scale = 1.0 if top == 0 or 1e-70 < top < 1e70 else top  # else squares would leave float64
    before2 = after2 = update2 = inner = along = largest = 0.0
    equal = 0
    for rows in row_blocks(base.shape):
        before, after = (array[rows].astype(np.float64) / scale for array in (base, model))
        update = after - before
        before2 += float(np.vdot(before, before))
        after2 += float(np.vdot(after, after))
        update2 += float(np.vdot(update, update))
        inner += float(np.vdot(before, after))
        along += float(np.vdot(before, update))
        largest = max(largest, float(update.max()), -float(update.min()))
        equal += update.size - int(np.count_nonzero(update))
    return _Sums(before2, after2, update2, inner, along, largest, equal / base.size, scale)


def _compare_reshaped(base: NDArray[Any], model: NDArray[Any]) -> TensorChange:
    """Compare tensors of different shapes. If only the number of rows differs, compare the common rows."""
    if base.ndim != model.ndim or base.shape[1:] != model.shape[1:]:
        return TensorChange("reshaped")
    rows = min(len(base), len(model))
    both = [array[:rows].reshape(-1, array.shape[-1] if array.ndim > 1 else 1) for array in (base, model)]
    sums = _sum_entries(*both)
    return TensorChange("non-finite") if sums is None else TensorChange("reshaped", **sums.numbers)


def _verdict(update: Reals, values: Reals, rank: int, rounding: float, sums: _Sums) -> str:
    (n, m), least = update.shape, min(update.shape)
    left = 2 * (1 - rank / n) * (1 - rank / m) * rounding
    if rank <= least / 4 and float(np.sum(values[rank:] ** 2)) <= left:
        return "low-rank" if rank else "below-floor"
    if sums.cosine is None or abs(sums.cosine) < max(LEAST_COSINE, CHANCE / np.sqrt(n * m)):
        return "unrelated"
    along = sums.along / float(np.sqrt(sums.update * sums.before))
    if abs(along) < NOISE_COSINE and values[0] < NOISE_EDGE * _random_sign_norm_bound(update):
        return "noise" if values[0] < NOISE_EDGE * _signed_norm(update) else "dense"
    return "dense"


def _random_sign_norm_bound(update: Reals) -> float:
    """Bound the largest singular value of the update with random signs (Bandeira and van Handel, 2016)."""
    columns, rows = (np.einsum(f"ij,ij->{side}", update, update).max() for side in "ji")
    largest = max(float(update.max()), -float(update.min()))
    return float(np.sqrt(columns) + np.sqrt(rows) + 2 * largest * np.sqrt(np.log(sum(update.shape))))


def _signed_norm(update: Reals) -> float:
    """Return the largest singular value of the update with random signs on its entries."""
    rng = np.random.default_rng(0)
    signed = np.where(rng.integers(0, 2, update.shape, dtype=bool), update, -update)
    if min(update.shape) < 16:  # too small for Lanczos
        return float(np.linalg.norm(signed, 2))
    start = rng.standard_normal(min(update.shape))
    top = scipy.sparse.linalg.svds(signed, k=1, tol=SIGNED_ERROR, v0=start, return_singular_vectors=False)
    return float(top[0])
