"""Matrix completion by factors A B that are trained on some entries of a matrix (arXiv 2405.13721).

Rows and columns are the vertices of a graph, and observed entries are its edges. Rows of A and columns of B
in different components never meet in the gradient, so their flows are independent. The blocks W_cc' of W = A
B between components are what the start left. As init vanishes (ours):

| a component c | its block W_cc |
|---|---|
| complete, M_c = U S V^T | M_c: least nuclear norm; latent rows Q_c: Gram-Schmidt of `U^T A_0 + (B_0 V)^T` |
| not complete | the greedy limit (`follow_greedy_path`): low rank, not the least nuclear norm |

Between components, `W_cc' = U S^(1/2) Q_c Q_c'^T S'^(1/2) V'^T` is random, not zero. The nuclear norm of W is
the sum of those of the W_cc, and its rank is min(k, sum of their ranks).

The loss is `|mask * (A B - M)|_F^2 / 2`, where A is n x k and B is k x m. Its negative gradient in A B is G =
mask * (M - A B). From a vanishing start, the flow stays near rank r until the top singular pair of G has
grown, then near rank r + 1, and so on (Li, Luo and Lyu 2020; arXiv 2405.13721). `follow_greedy_path` follows
it with one more latent direction at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Indices, Reals, require_shapes
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.settings import check_value

RTOL, ATOL = 1e-9, 1e-6  # tolerances of the integrator; ATOL is in units of the start
FITTED = 1e-8  # all is fitted if |G| / |mask * M| is below this
STILL = 1e-9  # the flow has stopped if its slope, in units of |mask * M|^(3/2), is below this
SEED_SIZE = 1e-5  # size of a new pair, in units of sqrt |G|
# A stage or a run is given up beyond these: its nuclear norm relative to mask * M, its time times |mask * M|,
# and its number of slopes. A stage with an end takes thousands; without one, SciPy 1.15 runs for hours.
LARGEST = 1e3
LONGEST = 1e9
MOST_SLOPES = 200_000


class NoEndError(Exception):
    """The error of an integrator that takes too many steps for a flow that converges."""


@dataclass(frozen=True, eq=False)
class FlowEnd:
    """The factors at the end of a flow, and the norm of the gradient there (`residual`)."""

    A: Reals
    B: Reals
    time: float
    residual: float
    still: bool


def gradient(A: Reals, B: Reals, M: Reals, mask: Reals) -> Reals:
    """Return the negative gradient G of the loss with respect to the product A B."""
    return np.asarray(mask * (M - A @ B))


def settle(A: Reals, B: Reals, M: Reals, mask: Reals, start: float) -> FlowEnd:
    """Follow the flow from the factors A and B until it ends.

    The flow slows down near a saddle point. So it counts as ended only after a direction of size `start` had
    enough time to grow.
    """
    (n, k), m = A.shape, B.shape[1]
    scale = float(np.linalg.norm(mask * M, 2))
    atol = min(ATOL * start, RTOL * float(np.sqrt(scale)))

    def slope(_: float, state: Reals) -> Reals:
        A, B = state[: n * k].reshape(n, k), state[n * k :].reshape(k, m)
        G = gradient(A, B, M, mask)
        return np.concatenate([(G @ B.T).ravel(), (A.T @ G).ravel()])

    evaluations = 0

    def counted_slope(time: float, state: Reals) -> Reals:
        nonlocal evaluations
        evaluations += 1
        if evaluations > MOST_SLOPES:
            raise NoEndError
        return slope(time, state)

    state, time, span = np.concatenate([A.ravel(), B.ravel()]), 0.0, 0.0
    stopped_before = failed = False
    while True:
        A, B = state[: n * k].reshape(n, k), state[n * k :].reshape(k, m)
        G = gradient(A, B, M, mask)
        left, top = float(np.linalg.norm(G)), float(np.linalg.norm(G, 2))
        fitted = left < FITTED * scale
        stopped = time > 0 and float(np.abs(slope(0.0, state)).max()) < STILL * scale**1.5
        # A direction of size `start` leaves a saddle with top singular value s in the time ln(1/start)/s.
        escape = 2 * np.log1p(np.sqrt(scale) / start) / max(top, FITTED * scale)
        if fitted or (stopped and stopped_before and span >= escape):
            return FlowEnd(A, B, time, left, still=True)
        lost = float(np.linalg.norm(A @ B, "nuc")) > LARGEST * float(np.linalg.norm(mask * M, "nuc"))
        if lost or failed or time * scale > LONGEST:
            return FlowEnd(A, B, time, left, still=False)
        stopped_before, span = stopped, max(escape, time)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # stages that diverge are reported below
            try:
                solution = scipy.integrate.solve_ivp(
                    counted_slope, (0, span), state, method="LSODA", rtol=RTOL, atol=atol
                )
            except NoEndError:
                return FlowEnd(A, B, time, left, still=False)
        state, time = solution.y[:, -1], time + float(solution.t[-1])
        failed = not solution.success


@dataclass(frozen=True, eq=False)
class GreedyLimit:
    """The greedy limit: factors A and B that were found by adding one direction at a time."""

    A: Reals
    B: Reals
    first: Reals  # first singular pair of its path, n + m numbers
    residual: float
    lost: int | None  # rank whose stage has no end; None if all stages end

    @property
    def rank(self) -> int:
        return int(self.A.shape[1])


def follow_greedy_path(M: Reals, mask: Reals, latent: int) -> GreedyLimit:
    """Add the top singular pair of G and follow the flow until it ends, at most `latent` times."""
    n, m = M.shape
    A, B = np.zeros((n, 0)), np.zeros((0, m))
    scale = float(np.linalg.norm(mask * M, 2))
    residual, first = float(np.linalg.norm(mask * M)), np.zeros(n + m)
    while A.shape[1] < latent and residual > FITTED * scale:
        U, s, Vt = np.linalg.svd(gradient(A, B, M, mask))
        if not A.shape[1]:
            first = np.append(U[:, 0], Vt[0])
        size = SEED_SIZE * float(np.sqrt(s[0]))
        end = settle(np.column_stack([A, size * U[:, 0]]), np.vstack([B, size * Vt[0]]), M, mask, size)
        if not end.still:
            return GreedyLimit(end.A, end.B, first, end.residual, end.A.shape[1])
        A, B, residual = end.A, end.B, end.residual
    return GreedyLimit(A, B, first, residual, None)


RANK = 1e-6  # singular values below this share of the largest count as zero
TRAINED_RANK = 1e-3  # the same for a trained matrix, whose start is not zero


@dataclass(frozen=True, eq=False)
class Completion:
    """A matrix with observed entries, and the factors that are trained on them.

    Args:
        matrix: the n x m matrix M. Entries that are not observed may have any value.
        mask: an n x m array that is true for observed entries.
        latent: the width k of the factors, by default the smaller of n and m.
        init: standard deviation of all entries of A and B at the start.

    >>> problem = Completion([[0, 1], [1, 0.5]], [[False, True], [True, True]])
    >>> problem.latent, problem.init
    (2, 0.001)
    """

    matrix: ArrayLike
    mask: ArrayLike
    latent: int | None = None
    init: float = 1e-3

    def __post_init__(self) -> None:
        M, mask = np.asarray(self.matrix, dtype=float), np.asarray(self.mask, dtype=bool)
        require_shapes(
            M.ndim == 2 and M.shape == mask.shape, "completion", "n x m of both", matrix=M, mask=mask
        )
        if not mask.any():
            raise InputError(
                "completion: the mask shows no entry, so nothing can be learned; show at least one entry"
            )
        if not np.isfinite(M[mask]).all():
            raise InputError("completion: an observed entry is not finite; leave it out of the mask")
        if not M[mask].any():
            raise InputError(
                "completion: all observed entries are zero, which the initial matrix already fits; show "
                "an entry that is not zero"
            )
        k = min(M.shape) if self.latent is None else check_value("latent", self.latent, int, minimum=1)
        object.__setattr__(self, "matrix", np.where(mask, M, 0.0))
        object.__setattr__(self, "mask", mask.astype(float))
        object.__setattr__(self, "latent", k)
        object.__setattr__(self, "init", check_value("init", self.init, float, greater_than=0))

    @property
    def arrays(self) -> tuple[Reals, Reals, int]:
        """The matrix M with zeros where it is not observed, the mask as 0 and 1, and the width k."""
        assert self.latent is not None
        return np.asarray(self.matrix), np.asarray(self.mask), self.latent

    def start(self, seed: int) -> tuple[Reals, Reals]:
        """Draw the starting factors A_0 and B_0, the same for prediction and training with one seed."""
        (n, m), k = self.arrays[0].shape, self.arrays[2]
        rng = np.random.default_rng(seed)
        return self.init * rng.standard_normal((n, k)), self.init * rng.standard_normal((k, m))


@dataclass(frozen=True, eq=False)
class CompletionPrediction:
    """The matrix that training reaches from an infinitely small random start.

    Args:
        kind: "connected", "complete" (several components, each fully observed) or "disconnected".
        matrix: the n x m matrix. Entries between components are nan if their limit is not known.
        exponent: as `init` goes to 0, other singular values of the trained matrix fall as `init**exponent`,
            if training does not enlarge them. The exponent is None if every component is complete.
    """

    kind: str
    components: int
    rank: int
    nuclear: float
    matrix: Reals
    exponent: float | None
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


@dataclass(frozen=True, eq=False)
class CompletionRun:
    """A trained matrix W.

    `rank` counts the singular values above 0.001 times the largest, and `residual` is |mask * (W - M)|.
    """

    matrix: Reals
    rank: int
    nuclear: float
    time: float
    residual: float
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


@dataclass(frozen=True, eq=False)
class _Block:
    """One component at the end of training: W_cc = A B, and its latent rows Q (None if not known)."""

    rows: Indices
    cols: Indices
    A: Reals
    B: Reals
    Q: Reals | None
    exponent: float | None
    residual: float
    lost: int | None = None


def components(mask: ArrayLike) -> list[tuple[Indices, Indices]]:
    """Return the rows and the columns of each connected component of the observed entries."""
    seen = np.asarray(mask, dtype=bool)
    n, m = seen.shape
    rows, cols = np.nonzero(seen)
    graph = scipy.sparse.coo_array((np.ones(rows.size), (rows, n + cols)), shape=(n + m, n + m))
    count, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    pairs = [(np.flatnonzero(label[:n] == c), np.flatnonzero(label[n:] == c)) for c in range(count)]
    return [(rows, cols) for rows, cols in pairs if rows.size and cols.size]


def predict_completion(problem: Completion, seed: int = 0) -> CompletionPrediction:
    """Predict the matrix at which the flow ends, for an infinitely small start.

    `seed` determines the directions of the start. If two singular values of a complete component are equal,
    the blocks between components have no limit.

    >>> prediction = predict_completion(Completion([[1, 0], [0, 4]], np.eye(2)), seed=0)
    >>> prediction.kind, prediction.rank, round(prediction.nuclear, 6), prediction.matrix.round(3).tolist()
    ('complete', 2, 5.0, [[1.0, 0.911], [0.911, 4.0]])
    """
    M, mask, k = problem.arrays
    blocks = [_solve_block(problem, seed, rows, cols) for rows, cols in components(mask)]
    W = np.zeros(M.shape)
    for block in blocks:
        for other in blocks:
            W[np.ix_(block.rows, other.cols)] = _block_product(block, other)
    sizes = [np.linalg.svd(block.A @ block.B, compute_uv=False) for block in blocks]
    rank = min(k, sum(int(np.sum(s > RANK * s[0])) for s in sizes))
    whole = all(mask[np.ix_(block.rows, block.cols)].all() for block in blocks)
    kind = "connected" if len(blocks) == 1 else "complete" if whole else "disconnected"
    exponents = [block.exponent for block in blocks if block.exponent is not None]
    outcome, remark = _outcome_and_remark(blocks, k, float(np.linalg.norm(mask * M)))
    exponent, nuclear = min(exponents, default=None), float(sum(s.sum() for s in sizes))
    return CompletionPrediction(kind, len(blocks), rank, nuclear, W, exponent, outcome, remark)


def _solve_block(problem: Completion, seed: int, rows: Indices, cols: Indices) -> _Block:
    M, mask, k = problem.arrays
    entries, seen = M[np.ix_(rows, cols)], mask[np.ix_(rows, cols)]
    A_0, B_0 = problem.start(seed)
    start = np.vstack([A_0[rows], B_0[:, cols].T])
    U, s, Vt = np.linalg.svd(entries, full_matrices=False)
    if seen.all():
        r = min(k, int(np.sum(s > RANK * s[0])))
        U, root, Vt = U[:, :r], np.sqrt(s[:r]), Vt[:r]
        Q, triangle = np.linalg.qr((np.hstack([U.T, Vt]) @ start).T)
        Q = (Q * np.sign(np.diag(triangle))).T
        return _Block(rows, cols, U * root, root[:, None] * Vt, Q, None, float(np.linalg.norm(s[r:])))
    limit = follow_greedy_path(entries, seen, k)
    # A single direction keeps the latent row of its first pair; the rows of later directions turn.
    row = limit.first @ start
    Q1 = row[None] / np.linalg.norm(row) if limit.rank == 1 and limit.lost is None else None
    exponent = 2 * (1 - float(s[1] / s[0])) if s[0] else None
    return _Block(rows, cols, limit.A, limit.B, Q1, exponent, limit.residual, limit.lost)


def _block_product(block: _Block, other: _Block) -> Reals:
    """Return the block W_cc' between two components; its entries are nan if they cannot be predicted."""
    if block is other:
        return np.asarray(block.A @ block.B)
    if block.Q is None or other.Q is None:
        return np.full((block.rows.size, other.cols.size), np.nan)
    return np.asarray(block.A @ block.Q @ other.Q.T @ other.B)


def _outcome_and_remark(blocks: list[_Block], latent: int, size: float) -> tuple[Outcome, str | None]:
    lost = next((block.lost for block in blocks if block.lost is not None), None)
    if lost is not None:
        return Outcome.NOT_CONVERGED, (
            f"no rank-{lost} critical point: training diverges or takes too long there, and this is its "
            "last position; train from two small initialisation scales instead"
        )
    if np.sqrt(sum(block.residual**2 for block in blocks)) > FITTED * size:
        return Outcome.DONE, (
            f"latent {latent} is too small to fit all observed entries; choose a larger value"
        )
    if len(blocks) > 1 and any(block.Q is None for block in blocks):
        remark = (
            "attnlaw cannot predict entries between two incomplete blocks if a block has a rank above "
            "one; train the factors instead"
        )
        return Outcome.DONE, remark
    return Outcome.DONE, None


def train_completion(problem: Completion, seed: int = 0) -> CompletionRun:
    """Follow the flow from a random start to its end, with the integrator LSODA.

    This works for sizes up to about 30 x 30. To check a prediction, compare two values of `init`: the
    difference falls as `init**exponent`.

    >>> observed = [[False, True], [True, True]]
    >>> run = train_completion(Completion([[0, 1], [1, 0.6]], observed, init=1e-6))
    >>> round(float(run.matrix[0, 0]), 2), run.rank  # 1/0.6
    (1.67, 1)
    """
    M, mask, k = problem.arrays
    end = settle(*problem.start(seed), M, mask, problem.init)
    W = end.A @ end.B
    s = np.linalg.svd(W, compute_uv=False)
    outcome, remark = Outcome.DONE, None
    if not end.still:
        outcome = Outcome.NOT_CONVERGED
        remark = (
            "training had not converged when it stopped; choose a larger initialisation scale, or show "
            "more entries"
        )
    elif end.residual > FITTED * float(np.linalg.norm(mask * M)):
        remark = f"latent {k} is too small to fit all observed entries; choose a larger value"
    rank = int(np.sum(s > TRAINED_RANK * s[0]))
    return CompletionRun(W, rank, float(s.sum()), end.time, end.residual, outcome, remark)


def mean_cosine(latent: int) -> float:
    """Return the mean absolute cosine between two random directions in k dimensions."""
    log_ratio = scipy.special.gammaln(latent / 2) - scipy.special.gammaln((latent + 1) / 2)
    return float(np.exp(log_ratio) / np.sqrt(np.pi))
