"""Find the rank of an update, and what the rounding of the file hides of it.

The noise of a difference is not one rounding of the file: merging the same update k times repeats the same
error, so its energy (sum of squares) is k^2 roundings. The noise is therefore estimated from the difference.

| symbol | meaning |
|---|---|
| W0, W1 | tensor of the base and of the model |
| v, V | variance step^2/12 of one rounding of an entry of W1, and its sum |
| L | W1 - cast(W0): the change relative to the base in the format of the model |
| X | L if the update is tiny or recast, otherwise W1 - W0 |
| Y | X with its rows and columns divided so that the noise has variance 1 everywhere |
| edge | largest singular value of noise with the energy of what is left of Y (Marchenko-Pastur) |

An update is tiny if it moves few entries of the rounded base, and each by one step. Its size then follows
from how many entries moved: an entry moves with the chance |update| / step.

What remains after the leading directions is split by the size of the weights: errors of rounding grow with
the weight, an update does not. So `mean rest^2 = kappa v + tau^2` over the exponents of W1, and tau^2 is the
part of an update that has no direction above the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.analysis.diff.update import triangle
from attnlaw.core.arrays import Reals
from attnlaw.numerics.symmetric import symmetric_eigenvalues

# Smallest side of a matrix, or of its changed block, for statements about noise.
LEAST_SIDE = 16
# A move of one step has 12 times the variance of a rounding; above twice that, moves are visible.
VISIBLE_MOVES = 24.0
# A singular value is a direction from this multiple of the edge on; it is certain from the second one on.
ABOVE_EDGE, CERTAIN = 1.06, 1.5
MOST_TURNS, SINKHORN_TURNS, FIT_TURNS = 5, 6, 12
# If one singular value is this many times the next, the values before it are directions.
JUMP = 10.0
# A direction is clear if it exceeds the edge by this factor: then the scales of the noise are good enough.
CLEAR = 2.0
# Singular values below this multiple of the largest are computed again after the others are subtracted.
RESOLVED = 1e-4
# Lanczos is used for up to this share of all vectors.
FEW_VECTORS = 0.1
LEAST_SQUARE = 1e-9
# Singular values below this multiple of the largest are errors of float64 arithmetic.
ROUND_OFF = 1e-12
EXACT_RANK = 1e-6
# What is left of an update may have this relative size: a product computed in bfloat16 leaves 0.0017.
FAINT = 0.003
# A hidden share of this energy does not matter for the rank.
LITTLE = 0.01
# Errors of so many merges, each rounded, may depend on the update. Then what is left has no clear origin.
MOST_MERGES = 100


@dataclass(frozen=True)
class Moves:
    """How the model differs from the base in the model's effective format."""

    variance: float  # V
    moved_variance: float  # the part of V of the entries in which L is not 0
    moved: int  # their number
    energy: float  # |L|^2
    mean: float  # of |L|, without weights exactly between two steps
    on_grid: bool  # the format of the model holds at least 90 percent of the base's entries, or recast
    tiny: bool  # the update moves only a few entries, each by one step
    recast: bool

    @property
    def relative(self) -> bool:
        """Whether L replaces D."""
        return self.tiny or self.recast


@dataclass(frozen=True, eq=False)
class MatrixUpdate:
    """The data of a changed matrix that a verdict on its rank needs: X, v, W0, W1 and the moves."""

    change: Reals
    variances: Reals
    base: NDArray[Any]
    model: NDArray[Any]
    moves: Moves


@dataclass(frozen=True, eq=False)
class RankVerdict:
    """The estimated rank of an update, with its limits. `verdict` is None if the rank is not low.

    Args:
        rank: number of directions above the noise, between `rank_low` and `rank_high`. A low-rank update
            without `rank_high` may have more directions, which the file's rounding hides.
        update_size: size of the update without rounding errors, relative to the base. `update_size_most` is
            the upper limit of the size, if the update is below the floor.
        hidden: share of the update's energy without a direction above the noise.
        roundings: energy of the noise, in units of one rounding of the file.
        values: singular values of the whole change, if they were computed.
    """

    verdict: str | None = None
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    update_size: float | None = None
    update_size_most: float | None = None
    hidden: float | None = None
    roundings: float | None = None
    values: Reals | None = None


class Terms:
    """The singular values of a wide matrix, from its Gram matrix, and its leading terms.

    Values below 1e-4 of the largest are computed again after the larger terms are subtracted.
    """

    def __init__(self, matrix: Reals) -> None:
        self.matrix = matrix
        self._gram = matrix @ matrix.T
        self._vectors = np.zeros((len(matrix), 0))
        self.values = _gram_values(self._gram.copy())
        resolved = int(np.count_nonzero(self.values > RESOLVED * self.values[0]))
        if 0 < resolved <= len(matrix) / 4:
            rest = self.rest(resolved)
            self.values[resolved:] = _gram_values(rest @ rest.T)[: self.values.size - resolved]

    def left(self, count: int) -> Reals:
        """Return the first `count` left singular vectors as columns."""
        if self._vectors.shape[1] < count:
            self._vectors = _leading_vectors(self._gram, count)
        return self._vectors[:, :count]

    def rest(self, count: int) -> Reals:
        """Return the matrix without its first `count` singular terms."""
        if not count:
            return self.matrix
        left = self.left(count)
        return np.asarray(self.matrix - left @ (left.T @ self.matrix))


def _gram_values(gram: Reals) -> Reals:
    return np.asarray(np.sqrt(np.maximum(symmetric_eigenvalues(gram)[::-1], 0.0)))


def _leading_vectors(gram: Reals, count: int) -> Reals:
    size = len(gram)
    if count <= FEW_VECTORS * size:
        start = np.random.default_rng(0).standard_normal(size)
        values, vectors = scipy.sparse.linalg.eigsh(gram, k=count, which="LA", v0=start)
        return np.asarray(vectors[:, np.argsort(-values)])
    wanted = [size - count, size - 1]
    return np.asarray(scipy.linalg.eigh(gram, subset_by_index=wanted, check_finite=False)[1][:, ::-1])


def signed_norm(matrix: Reals) -> float:
    """Return the largest singular value of a matrix with random signs on its entries."""
    rng = np.random.default_rng(0)
    return largest_value(np.where(rng.integers(0, 2, matrix.shape, dtype=bool), matrix, -matrix))


def largest_value(matrix: Reals) -> float:
    """Return the largest singular value of a matrix with a relative error of 1e-3."""
    if min(matrix.shape) < LEAST_SIDE:  # too small for Lanczos
        return float(np.linalg.norm(matrix, 2))
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    top = scipy.sparse.linalg.svds(matrix, k=1, tol=1e-3, v0=start, return_singular_vectors=False)
    return float(top[0])


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of an update that rise above the noise."""

    left: Reals  # `left @ right` is the part of the update in these directions
    right: Reals
    high: int  # number of singular values above the edge
    sure: int  # the number above 1.5 times the edge
    gap: float  # smallest singular value among the directions, divided by the edge
    many: bool = False  # more than a quarter of the shorter side: then the other fields mean nothing

    @property
    def rank(self) -> int:
        return int(self.left.shape[1])

    @cached_property
    def seen(self) -> Reals:
        return np.asarray(self.left @ self.right)

    @property
    def values(self) -> Reals:
        """The singular values of the visible part of the update."""
        if not self.rank:
            return np.zeros(0)
        core = triangle(self.left) @ triangle(self.right.T).T
        return np.asarray(np.linalg.svd(core, compute_uv=False))


MANY = Directions(np.zeros((0, 0)), np.zeros((0, 0)), 0, 0, 0.0, many=True)


def balance(squares: Reals) -> tuple[Reals, Reals]:
    """Return factors a, b of rows and columns so that squares/(a b) has mean 1 in every row and column."""
    # A row of zeros has steps near 0: dividing by them would leave nothing of the other rows.
    squares = np.maximum(squares, LEAST_SQUARE * squares.mean())
    rows, columns = np.ones(squares.shape[0]), np.ones(squares.shape[1])
    for _ in range(SINKHORN_TURNS):
        rows = squares @ (1 / columns) / columns.size
        columns = (1 / rows) @ squares / rows.size
    return rows, columns


def find_directions(change: Reals, variances: Reals, tiny: bool) -> Directions:
    """Find the directions of a wide matrix that are above its noise, which is first that of one rounding."""
    n, m = change.shape
    top = n // 4
    rows, columns = balance(variances)
    best: Directions | None = None
    previous = None
    for turn in range(MOST_TURNS):
        scale_rows, scale_columns = np.sqrt(rows)[:, None], np.sqrt(columns)
        terms = Terms(change / scale_rows / scale_columns)
        s = terms.values
        with np.errstate(divide="ignore", invalid="ignore"):
            k = int(np.nanargmax(s[:top] / s[1 : top + 1])) + 1
        jumps = bool(s[k - 1] > JUMP * s[k])
        r, many = (k if jumps and not tiny else 0), False
        while True:
            level = float(np.sqrt(np.sum(s[r:] ** 2) / ((n - r) * (m - r))))
            edge = max(level * (np.sqrt(n - r) + np.sqrt(m - r)), ROUND_OFF * s[0])
            if s[r] > ABOVE_EDGE * edge:
                edge = max(edge, signed_norm(terms.rest(r)))
            above = int(np.count_nonzero(s > ABOVE_EDGE * edge))
            if above <= r:
                break
            r = above
            if r > n / 4:
                many = True
                break
        if many and not (turn == 0 and jumps):
            return MANY
        if many:
            r = k
        else:
            left = terms.left(r)
            directions = Directions(
                scale_rows * left,
                left.T @ terms.matrix * scale_columns,
                high=int(np.count_nonzero(s > edge)),
                sure=int(np.count_nonzero(s > CERTAIN * edge)),
                gap=float(s[r - 1] / edge) if r else 0.0,
            )
            if r and directions.gap >= CLEAR:
                return directions
            if best is None or r <= best.rank:
                best = directions
            if r == previous:
                break
        previous = r
        rows, columns = balance((terms.rest(r) * scale_rows * scale_columns) ** 2)
    return MANY if best is None else best


def exact_directions(change: Reals, most: float) -> Directions:
    """Return the exact rank of a change that has too few entries for statistics."""
    left, s, right = np.linalg.svd(change, full_matrices=False)
    rank = int(np.count_nonzero(s > EXACT_RANK * s[0]))
    if rank > most:
        return MANY
    return Directions(left[:, :rank] * s[:rank], right[:rank], rank, rank, np.inf)


@dataclass(frozen=True)
class RestFit:
    """The rest of an update: kappa (in units of V, or None), energy of a hidden update, and its error."""

    kappa: float | None
    hidden: float = 0.0
    error: float = 0.0

    @property
    def significant(self) -> bool:
        return self.hidden > 4 * self.error


def fit_rest(rest: Reals, update: MatrixUpdate, noise_share: float) -> RestFit:
    """Fit `mean rest^2 = kappa v + tau^2`. A share r/n + r/m of the noise is in the r directions."""
    weights = np.asarray(update.model, dtype=np.float64)
    exponents = np.where(weights == 0, -1100, np.frexp(weights)[1]).ravel() + 1100
    counts = np.bincount(exponents)
    used = counts >= 30
    if update.moves.on_grid:
        used &= np.bincount(exponents, (update.change != 0).ravel()) > 0.7 * counts
    if np.count_nonzero(used) < 2:
        return RestFit(None)
    count = counts[used].astype(np.float64)
    squares = np.bincount(exponents, (rest**2).ravel())[used] / count
    variance = np.bincount(exponents, update.variances.ravel())[used] / count
    unit = float(variance.max())
    kappa, tau2, error = _fit_line(variance / unit, squares / unit, count)
    total, entries = float(update.variances.sum()), rest.size
    kappa /= max(1 - 2 * noise_share, 0.5)
    tau2 -= noise_share * kappa * total / (entries * unit)
    spread = entries * unit * error + 0.1 * noise_share * kappa * total
    return RestFit(kappa, max(entries * unit * tau2, 0.0), spread)


def _fit_line(x: Reals, y: Reals, count: Reals) -> tuple[float, float, float]:
    """Fit y = slope x + constant with both at least 0. Return slope, constant and the constant's error."""
    slope, constant = 1.0, 0.0
    design = np.stack([x, np.ones_like(x)], axis=1)
    tiny = float(np.finfo(float).tiny)
    for _ in range(FIT_TURNS):
        weights = count / (2 * np.maximum(slope * x + constant, 1e-30 + tiny) ** 2)
        matrix, target = design.T @ (weights[:, None] * design), design.T @ (weights * y)
        slope, constant = np.linalg.lstsq(matrix, target, rcond=1e-14)[0]
        if slope < 0:
            slope, constant = 0.0, max(float(target[1] / matrix[1, 1]), 0.0)
        elif constant < 0:
            slope, constant = max(float(target[0] / matrix[0, 0]), 0.0), 0.0
    weights = count / (2 * np.maximum(slope * x + constant, 1e-30 + tiny) ** 2)
    matrix = design.T @ (weights[:, None] * design)
    scale = np.sqrt(np.diag(matrix))
    inverse = np.linalg.pinv(matrix / np.outer(scale, scale), rcond=1e-14)
    return float(slope), float(constant), float(np.sqrt(max(inverse[1, 1], 0.0)) / scale[1])


def follows_base(rest: Reals, base: Reals) -> bool:
    """Return whether the remainder is proportional to the rows, or to the columns, of the base (DoRA)."""
    energy = float(np.sum(rest**2))
    products, squares = rest * base, base**2
    for axis in (1, 0):
        lengths = np.maximum(squares.sum(axis=axis), np.finfo(float).tiny)
        along = float(np.sum(products.sum(axis=axis) ** 2 / lengths))
        chance = float(np.sum(np.sum(products**2, axis=axis) / lengths))
        if along > 0.3 * energy and along > 3 * chance:
            return True
    return False


def judge_rank(update: MatrixUpdate) -> RankVerdict:
    """Return the verdict on a change: below-floor, low-rank, partly-hidden, or not low-rank (None)."""
    n, m = update.change.shape
    energy, few_entries = float(np.sum(update.change**2)), 2 * (n + m)
    unmoved = energy <= VISIBLE_MOVES * update.moves.moved_variance
    if update.moves.moved < few_entries and (update.moves.tiny or (update.moves.on_grid and unmoved)):
        return RankVerdict("below-floor", rank=0, **_tiny_size(update))
    block = _block(update)
    few = np.count_nonzero(block.change) < few_entries or min(block.change.shape) < LEAST_SIDE
    most = min(n, m) / 4
    values = None
    if few:
        directions = exact_directions(block.change, most)
    else:
        values = change_values(block.change)
        quarter = min(block.change.shape) // 4
        tail = float(np.sum(values[quarter:] ** 2))
        roundings = tail / float(block.variances.sum())
        # Many merges, each rounded, leave a small share of the update that is many roundings.
        merged = roundings <= MOST_MERGES**2 and tail <= LITTLE * energy
        if roundings > 400 and tail > FAINT**2 * energy and not merged:
            return RankVerdict(values=values)
        directions = find_directions(block.change, block.variances, update.moves.tiny)
    verdict = _judge_rest(block, directions, energy, float(np.sum(update.base.astype(np.float64) ** 2)), few)
    sizes = {} if verdict.verdict is None else _tiny_size(update)
    return replace(verdict, values=values, **sizes)


def change_values(change: Reals) -> Reals:
    """Return the singular values of a change by its shorter Gram matrix, down to 1e-8 of the largest."""
    wide = change if change.shape[0] <= change.shape[1] else change.T
    return _gram_values(wide @ wide.T)


def _tiny_size(update: MatrixUpdate) -> dict[str, Any]:
    """Estimate the size of a tiny update from the mean move. On a grid, the size cannot be known."""
    if not update.moves.tiny:
        return {}
    length = float(np.linalg.norm(update.base.astype(np.float64)))
    size = float(np.sqrt(np.pi / 2)) * update.moves.mean * np.sqrt(update.change.size)
    return {"update_size": float(size / length)} if length else {}


def _block(update: MatrixUpdate) -> MatrixUpdate:
    """Leave out rows and columns without a change, and turn the matrix so that it is wide."""
    changed = update.change != 0
    rows, columns = changed.any(axis=1), changed.any(axis=0)
    every = bool(rows.all() and columns.all())

    def part(matrix: NDArray[Any]) -> Reals:
        chosen = matrix if every else matrix[np.ix_(rows, columns)]
        wide = chosen if np.count_nonzero(rows) <= np.count_nonzero(columns) else chosen.T
        return wide.astype(np.float64, copy=False)

    change, variances, base, model = map(part, (update.change, update.variances, update.base, update.model))
    return MatrixUpdate(change, variances, base, model, update.moves)


def _judge_rest(
    block: MatrixUpdate, directions: Directions, energy: float, base_energy: float, few: bool
) -> RankVerdict:
    """Judge a block by its directions and by what they leave."""
    change, (n, m), total = block.change, block.change.shape, float(block.variances.sum())
    r, gap = directions.rank if not directions.many else 0, directions.gap
    unclear = directions.many or r == 0 or gap < CERTAIN
    stuck = block.moves.on_grid and np.count_nonzero(change) < change.size / 2
    if stuck and energy <= 2 * total and unclear:
        return RankVerdict("below-floor", rank=0)
    if directions.many:
        return RankVerdict()
    rest = change - directions.seen if r else change
    left, g = float(np.sum(rest**2)), r / n + r / m
    seen_energy = float(np.sum(directions.values**2))
    seen = max(seen_energy - g * left, 0.0)
    roundings = left / (max(1 - r / n, 1e-9) * max(1 - r / m, 1e-9) * total)

    def conclude(
        verdict: str, hidden: float | None = None, fitted: bool = False, most: float | None = None
    ) -> RankVerdict:
        sizes: dict[str, Any] = {}
        if base_energy:
            # On a grid, moves below one step leave no trace: the size of a hidden update is not known.
            if r or not block.moves.on_grid:
                sizes["update_size"] = float(np.sqrt((seen + (hidden or 0.0)) / base_energy))
            if most is not None and not block.moves.on_grid:
                sizes["update_size_most"] = float(np.sqrt(most / base_energy))
        if not r:
            return RankVerdict(verdict, 0, roundings=roundings, **sizes)
        # After a jump, the next value is near the edge, where the largest value of noise is.
        low, high = min(max(directions.sure, 1), r), r if gap >= JUMP else directions.high
        if block.moves.on_grid and not few:
            visible = np.count_nonzero(directions.values**2 > 0.1 * max(total, left))
            low = max(min(low, int(visible)), 1)
        # Uncertain directions do not count if the update is the same without them.
        rank = low if left + float(np.sum(directions.values[low:] ** 2)) <= FAINT**2 * seen_energy else r
        if verdict == "partly-hidden" and hidden is not None and seen + hidden:
            sizes["hidden"] = hidden / (seen + hidden)
        return RankVerdict(
            verdict, rank, low, None if fitted and gap < 3 else high, roundings=roundings, **sizes
        )

    if block.moves.tiny:
        return conclude("partly-hidden" if r else "below-floor")
    if r and left <= FAINT**2 * seen_energy:
        return conclude("low-rank")
    if r and left > 2 * total and follows_base(rest, block.base):
        return RankVerdict()
    fit = fit_rest(rest, block, g)
    half_seen = seen_energy >= energy / 2
    if fit.kappa is None or fit.kappa > 100:
        if r and gap >= CERTAIN and half_seen:
            return conclude("partly-hidden")
        if left > 4 * total:
            return RankVerdict()
        return conclude("partly-hidden" if r else "below-floor")
    little = fit.hidden < LITTLE * (seen + fit.hidden)
    if fit.significant and fit.hidden > fit.kappa * total and fit.hidden > total / 2:
        if block.moves.on_grid and r and half_seen and left <= 100 * total:
            return conclude("partly-hidden", fit.hidden)
        return RankVerdict()
    if not r:
        if left > 4 * total:
            return RankVerdict()
        size = fit.hidden if fit.significant else 0.0
        return conclude("below-floor", size, most=fit.hidden + 2 * fit.error)
    if (little or not fit.significant) and gap >= CERTAIN and (g <= 0.2 or gap >= 5) and not stuck:
        return conclude("low-rank", fit.hidden if fit.significant else 0.0, fitted=True)
    return conclude("partly-hidden", fit.hidden)
