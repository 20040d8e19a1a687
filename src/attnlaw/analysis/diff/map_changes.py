"""Compare one map of two models: size, ranks, alignment and new directions of its update.

A map is the matrix QK or VO of a head, or a feed-forward matrix.

| symbol | meaning |
|---|---|
| M0, M1, D | base, model, and update M1 - M0: matrices n x m that act on row vectors |
| k | number of singular values of M0 beyond the edge of its random reference |
| `floor` | what the rounding of the file leaves in D, divided by s_1(M0) |

A number that has no meaning is None. Size, scale, cosine and overlap need M0 != 0, and the cosine needs M1 !=
0. Ranks, shares and z need D != 0. There is no z either if all of D is below the floor: if only the gauge
changed, the factors differ, but D does not.

How far did singular values move, compared with noise of the size of the update? Under independent noise of
deviation tau in every entry of a matrix (n x m, singular values s)

    sd of s_j = tau,    mean of its move = tau^2/2 (sum_{l != j} 2 s_j / (s_j^2 - s_l^2) + |n - m| / s_j)

A head A B has noise of variance va in A (n x d) and vb in B (d x m). With w_l = va |B v_l|^2 + vb |A^T
u_l|^2, to second order (dM = E_A B + A E_B + E_A E_B, and the last term has mean zero)

    sd of s_j = sqrt(w_j)
    mean = (va (n - d) |B v_j|^2 + vb (m - d) |A^T u_j|^2) / (2 s_j)
           + sum_{l != j} s_j (w_j + w_l) / (2 (s_j^2 - s_l^2))

Both hold for values that are further apart than one deviation. Closer values repel each other equally, so the
sum leaves them out.

Intruders (arXiv 2410.21228) are vectors among the first 10 of the model whose cosine with every vector of the
base is below 1/2. Under any update, vectors with similar singular values mix, and they can count as
intruders. So `new` is stricter: it counts vectors that have less than 1/4 of their squared length in the span
of those base vectors whose singular value is at least half of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlaw.analysis.diff.alignment import (
    Share,
    half_share,
    matrix_share,
    rounded_half_null,
    rounding_share_null,
)
from attnlaw.analysis.diff.rounding import edge, rank_above
from attnlaw.analysis.diff.update import (
    SIDES,
    HeadFactors,
    MatrixVectors,
    ProductVectors,
    Side,
    SingularVectors,
    head_update_values,
    matrix_update_values,
    noise_spectrum,
    pad_columns,
    product_inner,
    triangle,
)
from attnlaw.analysis.fit.null import null_of_shape
from attnlaw.core.arrays import Reals
from attnlaw.spectra.spectrum import RANK_TOLERANCE, Spectrum

MOVED_DEVIATIONS = 4.0  # standard deviations beyond which a singular value counts as moved
LEADING_COUNT = 10
STRANGE, SHARED, COMPARABLE = 0.5, 0.25, 0.5


def matrix_moves(before: Reals, after: Reals, shape: tuple[int, int], size: float, count: int) -> Reals:
    """Return the changes of the first singular values of a matrix, as z-scores under noise of this size.

    >>> matrix_moves(np.array([4.0, 1.0]), np.array([4.5, 1.0]), (2, 2), size=0.2, count=1)
    array([4.97333333])
    """
    n, m = shape
    tau = size / np.sqrt(n * m)
    leading, others = before[:count, None], before[None, :]
    apart = leading**2 - others**2
    near = np.abs(leading - others) <= tau
    repelled = np.where(near, 0.0, 2 * leading / np.where(near, 1.0, apart)).sum(axis=1)
    mean = tau**2 / 2 * (repelled + abs(n - m) / before[:count])
    return np.asarray((after[:count] - before[:count] - mean) / tau)


def head_moves(
    base: ProductVectors,
    factors: tuple[Reals, Reals],
    shape: tuple[int, int],
    sizes: tuple[float, float],
    after: Reals,
    count: int,
) -> Reals:
    """Return the changes of the first `count` singular values of a head A B, as z-scores under noise.

    Args:
        factors: A and B of the base, in the same coordinates as `base`.
        shape: numbers n of rows and m of columns of the whole head.
        sizes: Frobenius norms of the changes of A and of B.
        after: singular values of the head in the model.
    """
    left, right = factors
    (n, m), d, s, first = shape, left.shape[1], base.values, slice(0, count)
    va, vb = sizes[0] ** 2 / (n * d), sizes[1] ** 2 / (m * d)
    through_right = va * np.sum((right @ base.right) ** 2, axis=0)
    through_left = vb * np.sum((left.T @ base.left) ** 2, axis=0)
    variances = through_right + through_left
    deviation = np.sqrt(variances[first])
    leading, others = s[first, None], s[None, :]
    near = np.abs(leading - others) <= deviation[:, None]
    pairs = leading * (variances[first, None] + variances[None, :])
    repelled = np.where(near, 0.0, pairs / np.where(near, 1.0, 2 * (leading**2 - others**2))).sum(axis=1)
    beside = (n - d) * through_right[first] + (m - d) * through_left[first]
    mean = beside / (2 * s[first]) + repelled
    return np.asarray((after[first] - s[first] - mean) / deviation)


def count_intruders(base: SingularVectors, model: SingularVectors) -> dict[Side, tuple[int, int]]:
    """Count for each side the intruders and the new directions among the model's first 10 vectors."""
    count = min(LEADING_COUNT, model.values.size)
    by_side: dict[Side, tuple[int, int]] = {}
    for side in SIDES:
        squares = base.coordinates(side, model.leading(side, count)) ** 2
        strange = squares.max(axis=0) < STRANGE**2
        strong = base.values[:, None] >= COMPARABLE * model.values[None, :count]
        fresh = np.where(strong, squares, 0.0).sum(axis=0) < SHARED
        by_side[side] = int(strange.sum()), int(fresh.sum())
    return by_side


def overlap(base: SingularVectors, model: SingularVectors, side: Side, k: int) -> float:
    """Return the mean squared cosine of the angles between the spans of both models' first k vectors."""
    crossed = base.leading(side, k).T @ model.leading(side, k)
    return float(np.sum(crossed**2) / k)


# A map that did not change has no new direction.
NOTHING_NEW = dict.fromkeys(("intruders_left", "intruders_right", "new_left", "new_right"), 0)


@dataclass(frozen=True, eq=False)
class MapChange:
    """The change of one map."""

    numbers: Mapping[str, Any]  # the numbers of the row, by column
    values: Reals | None = None  # singular values of the update, divided by s_1(M0)
    null: Reals | None = None  # singular values of noise of the same size, divided by s_1(M0)
    max_gap: float | None = None  # largest move of a singular value, in units of the floor


def compare_heads(
    base: HeadFactors,
    model: HeadFactors,
    steps: HeadFactors | None,
    rounded: tuple[Reals | None, Reals | None] = (None, None),
) -> MapChange:
    lefts, rights, scales = _reduce_factors(base, model)
    (left0, left1), (right0, right1) = lefts, rights
    shape, d = (base[0].shape[0], base[1].shape[1]), base[0].shape[1]
    before, after = ProductVectors.of(left0, right0), ProductVectors.of(left1, right1)
    floor = None
    if steps is not None:
        edges = [edge(part) / scale for part, scale in zip(steps, scales, strict=True)]
        floor = edges[0] * after.factor_norm("right") + before.factor_norm("left") * edges[1]
    changes = left1 - left0, right1 - right0
    sizes = _norm(changes[0]), _norm(changes[1])
    halves: dict[Side, tuple[Reals, Reals, int]] = {
        "left": (changes[0], right1, shape[0]),
        "right": (changes[1].T, left0.T, shape[1]),
    }
    grids: dict[Side, tuple[Reals | None, Reals, Reals]] = {
        "left": (rounded[0], base[0], model[1]),
        "right": (_transposed(rounded[1]), base[1].T, base[0].T),
    }

    def share(side: Side, directions: Reals) -> Share | None:
        alignment = half_share(directions, *halves[side])
        grid, factor, other = grids[side]
        if alignment is None or grid is None:
            return alignment
        # Express the directions in the coordinates of the factor, because steps belong to its entries.
        reduced_factor = left0 if side == "left" else right0.T
        placed = np.linalg.qr(factor @ np.linalg.lstsq(reduced_factor, directions, rcond=None)[0])[0]
        return Share(alignment.value, rounded_half_null(placed, grid, other, alignment.null))

    def moves(count: int) -> Reals:
        return head_moves(before, (left0, right0), shape, sizes, after.values, count)

    map_change = _build_change(
        before,
        after,
        head_update_values(left0, right0, left1, right1),
        norms=(_norm(before.values), _norm(after.values)),
        inner_product=product_inner(left0, right0, left1, right1),
        shape=shape,
        d=d,
        k=_outliers(before.values, shape, d) if steps is not None else None,
        floor=floor,
        rank=None,
        share=share,
        moves=moves,
    )
    noise = noise_spectrum(before.roots, shape, sizes) if any(sizes) else None
    return replace(map_change, null=None if noise is None else _relative(noise, before))


def compare_matrices(
    base: Reals,
    model: Reals,
    floor: float,
    rounded: Reals | None = None,
    values: Reals | None = None,
    rank: int | None = None,
) -> MapChange:
    """Compare two matrices. Rounding leaves singular values up to `floor` in the difference.

    `rounded` has the steps of the format to which the base was rounded. `values` and `rank` are those of the
    difference, if they are already known.
    """
    before_map, after_map, scale = _rescale(base, model)
    update = after_map - before_map
    known = matrix_update_values(update, floor / scale) if values is None else values / scale
    shape = base.shape[0], base.shape[1]
    before = MatrixVectors.of(before_map)
    k = _outliers(before.values, shape, None)
    after = MatrixVectors.first(after_map, min(max(LEADING_COUNT, k or 0), *shape))

    def share(side: Side, directions: Reals) -> Share | None:
        turned, stepped = (update, rounded) if side == "left" else (update.T, _transposed(rounded))
        alignment = matrix_share(directions, turned, known)
        null = alignment.null if stepped is None else rounding_share_null(directions, stepped)
        return Share(alignment.value, null)

    def moves(count: int) -> Reals:
        return matrix_moves(before.values, after.values, shape, _norm(update), count)

    map_change = _build_change(
        before,
        after,
        known,
        norms=(_norm(before_map), _norm(after_map)),
        inner_product=float(np.einsum("ij,ij->", before_map, after_map)),
        shape=shape,
        d=None,
        k=k,
        floor=floor / scale,
        rank=rank,
        share=share,
        moves=moves,
    )
    noise = null_of_shape(*shape).mean * _norm(known) / np.sqrt(known.size)
    return replace(map_change, null=_relative(noise, before) if known[0] > 0 else None)


def unchanged_map(shape: tuple[int, int], inner: int | None, matched: int | None = None) -> MapChange:
    equal = dict.fromkeys(("cosine", "scale", "overlap_left", "overlap_right"), 1.0)
    dimensions = {"rows": shape[0], "cols": shape[1], "inner": inner, "matched_head": matched}
    return MapChange({**dimensions, "size": 0.0, "size_2": 0.0, **equal, **NOTHING_NEW}, max_gap=0.0)


def _build_change(
    before: SingularVectors,
    after: SingularVectors,
    values: Reals,
    norms: tuple[float, float],
    inner_product: float,
    shape: tuple[int, int],
    d: int | None,
    k: int | None,
    floor: float | None,
    rank: int | None,
    share: Callable[[Side, Reals], Share | None],
    moves: Callable[[int], Reals],
) -> MapChange:
    """Return the change of a map. `share` and `moves` compute what differs for heads and matrices."""
    (norm0, norm1), size, top = norms, _norm(values), float(before.values[0])
    numbers: dict[str, Any] = {"rows": shape[0], "cols": shape[1], "inner": d, "k": k}
    if norm0 > 0:
        numbers |= {
            "size": size / norm0,
            "size_2": float(values[0] / before.values[0]),
            "scale": inner_product / norm0**2,
            "cosine": inner_product / (norm0 * norm1) if norm1 > 0 else None,
            "floor": None if floor is None else floor / top,
        }
        if k:
            numbers |= {f"overlap_{side}": overlap(before, after, side, k) for side in SIDES}
    gap = float(np.abs(before.values[: after.values.size] - after.values).max())
    relative, max_gap = _relative(values, before), gap / floor if floor else None
    if not size > 0:
        return MapChange({**numbers, **NOTHING_NEW}, relative, max_gap=max_gap)
    spectrum = Spectrum(values, shape, np.nan, np.nan, "split", inner=d)
    if rank is None and floor is not None:
        rank = rank_above(values, floor)
    numbers |= {"stable_rank": spectrum.stable_rank, "effective_rank": spectrum.effective_rank, "rank": rank}
    if k and top > 0:
        for side in SIDES:
            alignment = share(side, before.leading(side, k))
            if alignment is not None:
                numbers |= {f"share_{side}": alignment.value, f"z_{side}": alignment.z if rank else None}
    if rank and top > 0:
        z = moves(max(k or 0, 1))
        moved = None if k is None else int(np.count_nonzero(np.abs(z[:k]) > MOVED_DEVIATIONS))
        numbers |= {"z_top": float(z[0]) if np.isfinite(z[0]) else None, "moved": moved}
    if top > 0 and after.values[0] > 0:
        for side, (strange, new) in count_intruders(before, after).items():
            numbers |= {f"intruders_{side}": strange, f"new_{side}": new}
    return MapChange(numbers, relative, max_gap=max_gap)


def _outliers(values: Reals, shape: tuple[int, int], inner: int | None) -> int | None:
    """Count the singular values beyond the edge of the random reference; None if too many are zero."""
    if not values[0] > 0:
        return None
    kept = np.where(values > RANK_TOLERANCE * min(shape) * values[0], values, 0.0)
    return null_of_shape(*shape, inner).compare(kept).outliers


def _reduce_factors(
    base: HeadFactors, model: HeadFactors
) -> tuple[HeadFactors, HeadFactors, tuple[float, float]]:
    """Express heads in orthonormal bases of their factors. A0 and dA share a QR, so a tiny dA stays exact."""
    pairs: list[HeadFactors] = []
    scales = []
    for first, second in ((base[0], model[0]), (base[1].T, model[1].T)):
        before, after, scale = _rescale(*pad_columns(first, second))
        root = triangle(np.hstack([before, after - before]))
        d = before.shape[1]
        pairs.append((root[:, :d], (root[:, :d] + root[:, d:]) * bool(after.any())))
        scales.append(scale)
    lefts, (bottom0, bottom1) = pairs
    return lefts, (bottom0.T, bottom1.T), (scales[0], scales[1])


def _norm(array: Reals) -> float:
    return float(np.linalg.norm(array))


def _rescale(first: Reals, second: Reals) -> tuple[Reals, Reals, float]:
    """Divide two matrices by a power of two (else 1) if fourth powers of entries would leave float64."""
    peak = max(max(float(matrix.max()), -float(matrix.min())) for matrix in (first, second))
    if peak == 0 or 1e-30 < peak < 1e30:
        return first, second, 1.0
    scale = 2.0 ** int(np.frexp(peak)[1])
    return first / scale, second / scale, scale


def _relative(values: Reals, before: SingularVectors) -> Reals | None:
    return values / before.values[0] if before.values[0] > 0 else None


def _transposed(matrix: Reals | None) -> Reals | None:
    return None if matrix is None else matrix.T
