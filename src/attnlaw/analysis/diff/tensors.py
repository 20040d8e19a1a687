"""Compare one stored tensor of two models, and give the change a verdict: the first in this table that holds.

D = W1 - W0, energy is the sum of squares, and V is the energy of one rounding of W1 in its effective format:
the coarsest float format on which all of W1 lies. L and the verdicts on ranks are explained in `low_rank`.

| verdict | condition |
|---|---|
| non-finite, reshaped, identical | NaN or infinity; another shape; every entry is equal |
| zeroed | W1 is 0 |
| rounded | the base cast to a coarser float format, or on the grid of an integer format |
| rescaled | W1 is a factor times W0, for the tensor, each row or each column |
| below-floor, changed | a side below 16: `|D|^2 <= 2V` and no visible moves; otherwise changed |
| sparse | few entries changed, in many rows and columns |
| below-floor, low-rank, partly-hidden | see `low_rank` |
| reinitialised | `|cos(W0, W1)| < max(0.2, 4/sqrt(nm))`, and W1 has the spectrum of a random matrix |
| unrelated | the same cosine, and W1 has another spectrum |
| noise | s_1(D) < 1.1 times that of D with random signs, and |cos(D, W0)| < 0.05 |
| dense | otherwise |

A stack of matrices (experts) is compared matrix by matrix. Other tensors of three or more dimensions
(convolutions) are read as matrices with their first axis as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.low_rank import (
    LEAST_SIDE,
    ROUND_OFF,
    VISIBLE_MOVES,
    MatrixUpdate,
    Moves,
    RankVerdict,
    change_values,
    judge_rank,
    largest_value,
    signed_norm,
)
from attnlaw.analysis.diff.rounding import (
    Format,
    Grid,
    detect_cast,
    detect_code,
    effective_format,
    row_blocks,
)
from attnlaw.core.arrays import Reals

LEAST_COSINE, CHANCE = 0.2, 4.0
NOISE_EDGE, NOISE_COSINE = 1.1, 0.05
# A factor explains a change if this share of its energy is left: of a matrix, and of a vector.
UNEXPLAINED, UNEXPLAINED_VECTOR = 0.01, 1e-4
# Entries that a factor must explain: fewer are explained by any factor.
LEAST_SCALED, LEAST_SCALED_VECTOR = 16, 8
SPARSE_SHARE = 0.05
ON_GRID = 0.9
# Verdicts on parts of a stack, the least specific first: the stack has the first that one of its parts has.
STACK_ORDER = (
    *("non-finite", "dense", "noise", "unrelated", "reinitialised", "partly-hidden", "low-rank", "sparse"),
    *("rescaled", "changed", "zeroed", "below-floor", "rounded", "identical"),
)


@dataclass(frozen=True, eq=False)
class TensorChange(RankVerdict):
    """The change of one tensor. A number is None if it has no meaning for this tensor.

    Args:
        directions: number of directions that carry 90 percent of the energy of a dense change.
        factor: factor of a rescaled tensor, or the median if rows or columns have their own factors.
        along: the parts that have their own factor or another order: tensor, rows or columns.
        source: tensor of the base whose weights this tensor has.
        then: verdict that remains when the tensor is compared with its source, or in its new order.
        order: the rows or columns of the base in the order of the model.
        least_cosine: smallest cosine of a row, or of a column, with the one in the same place in the base.
        rounding_size: size of one rounding of the file, relative to the base.
        grid: effective format of the model's tensor.
    """

    verdict: str
    format: Format | None = None  # the format that the base was rounded to
    code: str | None = None  # the code in which the model stores the base, in words
    directions: int | None = None
    size: float | None = None  # |W1 - W0| / |W0|
    factor: float | None = None
    factor_low: float | None = None
    factor_high: float | None = None
    along: str | None = None
    source: str | None = None
    then: str | None = None
    cosine: float | None = None
    unchanged: float | None = None  # share of the entries that are equal
    max_change: float | None = None
    rounding_size: float | None = None
    order: NDArray[np.intp] | None = None
    least_cosine: float | None = None
    grid: Grid | None = None

    @property
    def sqnr_db(self) -> float | None:
        """Power of the base / power of the change, in decibels; None if nothing changed."""
        return -20 * float(np.log10(self.size)) if self.size else None


def compare_tensors(base: NDArray[Any], model: NDArray[Any], dtype: str) -> TensorChange:
    """Compare two tensors. `dtype` is the data type that the model's file names.

    >>> base = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    >>> change = compare_tensors(base, base.astype(np.float16), "float16")
    >>> change.verdict, change.format.name, round(change.sqnr_db)
    ('rounded', 'float16', 74)
    >>> round(compare_tensors(base, 10 * base, "float32").factor, 6)
    10.0
    """
    if base.shape != model.shape:
        return _compare_reshaped(base, model)
    if base.ndim == 3 and min(base.shape[1:]) >= LEAST_SIDE and len(base) > 1:
        return _join([_compare_matrices(*pair, dtype) for pair in zip(base, model, strict=True)], base, model)
    return _compare_matrices(as_matrix(base), as_matrix(model), dtype)


def as_matrix(array: NDArray[Any]) -> NDArray[Any]:
    """Return a tensor as a matrix: a vector is one column, and otherwise the first axis gives the rows."""
    if array.ndim == 2:
        return array
    return array.reshape(len(array), -1) if array.ndim > 2 and array.size else array.reshape(-1, 1)


def _join(parts: Sequence[TensorChange], base: NDArray[Any], model: NDArray[Any]) -> TensorChange:
    """Return the change of a stack of matrices from the changes of its matrices."""
    worst = next(name for name in STACK_ORDER if any(part.verdict == name for part in parts))
    members = [part for part in parts if part.verdict == worst]
    chosen = max(members, key=lambda part: (part.rank or 0, part.size or 0.0))
    sums = _sum_entries(*(array.reshape(-1, array.shape[-1]) for array in (base, model)))
    if sums is None:
        return chosen
    lows = [part.rank_low for part in members if part.rank_low is not None]
    factors = [part.factor_low for part in members] + [part.factor_high for part in members]
    known = [factor for factor in factors if factor is not None]
    return replace(
        chosen,
        **sums.numbers,
        values=None,
        rank_low=min(lows) if lows else None,
        factor_low=min(known) if known else None,
        factor_high=max(known) if known else None,
    )


def _compare_matrices(base: NDArray[Any], model: NDArray[Any], dtype: str) -> TensorChange:
    sums = _sum_entries(base, model)
    if sums is None:
        return TensorChange("non-finite")
    if sums.largest == 0:
        return TensorChange("identical", **sums.numbers)
    if not sums.after:
        return TensorChange("zeroed", **sums.numbers)
    if (form := detect_cast(base, model)) is not None:
        return TensorChange("rounded", format=form, **sums.numbers)
    grid = effective_format(model, dtype)
    if (code := detect_code(base, model, grid, sums.size)) is not None:
        return TensorChange("rounded", format=code, **sums.numbers)
    scaled = _Scaled(base, model, grid, sums.scale)
    moves = scaled.measure_moves()
    rounding_size = float(np.sqrt(moves.variance / sums.before)) if sums.before else None
    plain = TensorChange("changed", grid=grid, rounding_size=rounding_size, **sums.numbers)
    factors = _find_factors(sums, moves.variance, min(base.shape) < 2)
    if factors is not None:
        return replace(plain, verdict="rescaled", **factors)
    if min(base.shape) < LEAST_SIDE:
        hidden = sums.update <= 2 * moves.variance and moves.energy <= VISIBLE_MOVES * moves.moved_variance
        return replace(plain, verdict="below-floor") if hidden else plain
    update = scaled.update(moves, sums)
    if _is_sparse(update):
        return replace(plain, verdict="sparse")
    ranks = judge_rank(update)
    values = None if ranks.values is None else _pad(ranks.values, min(base.shape))
    unscaled = values * sums.scale if values is not None and not moves.relative else None
    plain = replace(plain, **{**vars(ranks), "verdict": ranks.verdict or "dense", "values": unscaled})
    if ranks.verdict is not None:
        return plain
    values = _pad(change_values(update.change), min(base.shape)) if values is None else values
    return _describe_dense(plain, update, values, sums)


def _describe_dense(plain: TensorChange, update: MatrixUpdate, values: Reals, sums: _Sums) -> TensorChange:
    """Return the verdict on a change without a low rank."""
    (n, m), cosine = update.change.shape, abs(sums.cosine or 0.0)
    directions = int(np.searchsorted(np.cumsum(values**2), 0.9 * float(np.sum(values**2)))) + 1
    plain = replace(plain, directions=directions)
    if cosine < max(LEAST_COSINE, CHANCE / np.sqrt(n * m)):
        weights = update.model.astype(np.float64)
        drawn = 1.1 * float(weights.std()) * (np.sqrt(n) + np.sqrt(m))
        return replace(plain, verdict="reinitialised" if largest_value(weights) < drawn else "unrelated")
    changed = update.change != 0
    rows, columns = changed.any(axis=1), changed.any(axis=0)
    inside = update.base[np.ix_(rows, columns)].astype(np.float64)
    block = update.change[np.ix_(rows, columns)]
    length = float(np.linalg.norm(inside) * np.linalg.norm(block))
    along = float(np.vdot(inside, block)) / length if length else 0.0
    small = abs(along) < NOISE_COSINE and values[0] < NOISE_EDGE * _random_sign_norm_bound(block)
    return replace(plain, verdict="noise") if small and values[0] < NOISE_EDGE * signed_norm(block) else plain


def _is_sparse(update: MatrixUpdate) -> bool:
    changed = update.change != 0
    count = int(np.count_nonzero(changed))
    rows, columns = int(changed.any(axis=1).sum()), int(changed.any(axis=0).sum())
    if count >= min(SPARSE_SHARE * changed.size, 2 * (rows + columns)) or min(rows, columns) < LEAST_SIDE:
        return False
    return float(np.sum(update.change**2)) > VISIBLE_MOVES * update.moves.moved_variance


def _pad(values: Reals, size: int) -> Reals:
    return np.pad(values, (0, size - values.size))


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Two tensors whose entries are divided by `scale`, so that their squares stay within float64."""

    base: NDArray[Any]
    model: NDArray[Any]
    grid: Grid
    scale: float

    def rows(self, rows: slice) -> tuple[Reals, Reals, Reals, Reals]:
        """Return base, model, rounded base and variances of some rows."""
        before, after = self.base[rows].astype(np.float64), self.model[rows].astype(np.float64)
        rounded = self.grid.round_weights(self.base[rows])
        rounded = np.where(np.isfinite(rounded), rounded, before)
        steps = self.grid.steps(after) / self.scale
        return before / self.scale, after / self.scale, rounded / self.scale, steps**2 / 12

    def measure_moves(self) -> Moves:
        variance = moved_variance = energy = change = total_move = 0.0
        moved = kept = counted = 0
        for rows in row_blocks(self.base.shape):
            before, after, rounded, variances = self.rows(rows)
            move = after - rounded
            where = move != 0
            variance += float(variances.sum())
            moved_variance += float(variances[where].sum())
            moved += int(np.count_nonzero(where))
            energy += float(np.vdot(move, move))
            update = after - before
            change += float(np.vdot(update, update))
            kept += int(np.count_nonzero(rounded == before))
            steps = self.grid.steps(before * self.scale) / self.scale
            tied = np.abs(rounded - before) == steps / 2
            counted += int(tied.size - np.count_nonzero(tied))
            total_move += float(np.abs(move[~tied]).sum())
        on_grid = kept >= ON_GRID * self.base.size
        few = not on_grid and moved < self.base.size / 2 and energy < change
        tiny = few and energy <= VISIBLE_MOVES * moved_variance
        recast = few and not tiny
        mean = total_move / counted if counted else 0.0
        return Moves(variance, moved_variance, moved, energy, mean, on_grid or recast, tiny, recast)

    def update(self, moves: Moves, sums: _Sums) -> MatrixUpdate:
        """Return the change with the variance of its rounding, entry by entry."""
        change, variances = np.empty(self.base.shape), np.empty(self.base.shape)
        for rows in row_blocks(self.base.shape):
            before, after, rounded, variances[rows] = self.rows(rows)
            np.subtract(after, rounded if moves.relative else before, out=change[rows])
        base, model = self.base, self.model
        if self.scale != 1:
            base, model = base.astype(np.float64) / self.scale, model.astype(np.float64) / self.scale
        return MatrixUpdate(change, variances, base, model, moves)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over entries divided by `scale`. `rows` and `columns` have W0^2, W0 D and D^2."""

    before: float
    after: float
    update: float
    inner: float
    rows: Reals
    columns: Reals
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
        return {
            "size": self.size,
            "cosine": self.cosine,
            "unchanged": self.unchanged,
            "max_change": self.largest * self.scale,
            "least_cosine": self._least_cosine,
        }

    @property
    def _least_cosine(self) -> float:
        """The smallest cosine of a row, or of a column, of both tensors. Rows of zeros do not count."""
        least = 1.0
        for before, products, updates in (self.rows, self.columns):
            lengths = before * (before + 2 * products + updates)
            known = lengths > 0
            if known.any():
                least = min(least, float(((before + products)[known] / np.sqrt(lengths[known])).min()))
        return least


def _sum_entries(base: NDArray[Any], model: NDArray[Any]) -> _Sums | None:
    """Return the sums over all entries; None if an entry is not finite."""
    row_sums, column_sums = np.zeros((3, base.shape[0])), np.zeros((3, base.shape[1]))
    if not base.size:
        return _Sums(0.0, 0.0, 0.0, 0.0, row_sums, column_sums, 0.0, 1.0, 1.0)
    top = float(np.max([np.max([array.max(), -array.min()]) for array in (base, model)]))  # keeps NaN
    if not np.isfinite(top):
        return None
    # Otherwise squares would leave float64.
    scale = 1.0 if top == 0 or 1e-70 < top < 1e70 else 2.0 ** int(np.frexp(top)[1] - 1)
    after2 = inner = largest = 0.0
    equal = 0
    for rows in row_blocks(base.shape):
        before, after = (array[rows].astype(np.float64) / scale for array in (base, model))
        update = after - before
        after2 += float(np.vdot(after, after))
        inner += float(np.vdot(before, after))
        for number, product in enumerate(((before, before), (before, update), (update, update))):
            row_sums[number, rows] = np.einsum("ij,ij->i", *product)
            column_sums[number] += np.einsum("ij,ij->j", *product)
        largest = max(largest, float(update.max()), -float(update.min()))
        equal += update.size - int(np.count_nonzero(update))
    before2, _, update2 = (float(total) for total in row_sums.sum(axis=1))
    sums = row_sums, column_sums, largest, equal / base.size, scale
    return _Sums(before2, after2, update2, inner, *sums)


def _find_factors(sums: _Sums, variance: float, vector: bool) -> dict[str, Any] | None:
    """Return the factor of the tensor, or those of its rows or columns, if they explain the change."""
    if sums.update <= 8 * variance or not sums.before:
        return None
    (n, m), share = (sums.rows.shape[1], sums.columns.shape[1]), UNEXPLAINED_VECTOR if vector else UNEXPLAINED
    choices = {"tensor": sums.rows.sum(axis=1, keepdims=True)}
    if vector:
        nonzero = max(np.count_nonzero(sums.rows[0]), np.count_nonzero(sums.columns[0]))
        choices = choices if nonzero >= LEAST_SCALED_VECTOR else {}
    else:
        choices |= {"rows": sums.rows} if m >= LEAST_SCALED else {}
        choices |= {"columns": sums.columns} if n >= LEAST_SCALED else {}
    for along, (before, products, updates) in choices.items():
        changes = np.divide(products, before, out=np.zeros_like(before), where=before > 0)
        left = float(np.sum(updates - changes * products))
        # Compared with the update alone, any weights that are small are a tiny factor times the base.
        if left - 2 * variance <= share * min(sums.update, sums.after):
            factors = 1 + changes[before > 0]
            factors[np.abs(factors) < ROUND_OFF] = 0.0
            return {
                "along": along,
                "factor": float(np.median(factors)),
                "factor_low": float(factors.min()),
                "factor_high": float(factors.max()),
            }
    return None


def _compare_reshaped(base: NDArray[Any], model: NDArray[Any]) -> TensorChange:
    """Compare tensors of different shapes. If only the number of rows differs, compare the common rows."""
    if base.ndim != model.ndim or base.shape[1:] != model.shape[1:]:
        return TensorChange("reshaped")
    rows = min(len(base), len(model))
    both = [array[:rows].reshape(-1, array.shape[-1] if array.ndim > 1 else 1) for array in (base, model)]
    sums = _sum_entries(*both)
    return TensorChange("non-finite") if sums is None else TensorChange("reshaped", **sums.numbers)


def _random_sign_norm_bound(update: Reals) -> float:
    """Bound the largest singular value of the update with random signs (Bandeira and van Handel, 2016)."""
    columns, rows = (np.einsum(f"ij,ij->{side}", update, update).max() for side in "ji")
    largest = max(float(update.max()), -float(update.min()))
    return float(np.sqrt(columns) + np.sqrt(rows) + 2 * largest * np.sqrt(np.log(sum(update.shape))))
