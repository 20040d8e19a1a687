"""The row softmax as state evolution sees it: coordinates, loss with derivatives, proximal point.

A row softmax of a symmetric T x T field h does not change if a constant is added to all of h. It shows every
other change. So it sees `P = T(T+1)/2 - 1` coordinates `v_ab = h_ab - h_12`, a <= b, (a, b) != (1, 2), with
covariance `Q K` (for two tokens `K = [[3, 1], [1, 3]]`).

| letter | meaning |
|---|---|
| sigma, y | student's and teacher's softmax rows, shape (T, T, N) |
| g, H, B | `-l'(p)`, `l''(p)`, `-d^2 l / dp dv*` in the coordinates v |
| p | `argmin l(v) + (v - omega)^T (V K)^-1 (v - omega) / 2` |
| C | second derivatives of the loss of one row in its own logits, T x T |

The N draws are on the last axis. Every number of a small matrix is an array over all draws, so a
factorisation is a few array operations for all of them (`attnlaw.numerics.small_systems`).

The loss `l(v) = sum_ab (y_ab - sigma_ab)^2` is not convex. The proximal point is the better of two local
minima, reached from omega and from the teacher's logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.numerics.small_systems import factor, solve

MAX_NEWTON, MAX_HALVINGS = 60, 30


@lru_cache(maxsize=8)
def places(tokens: int) -> NDArray[np.intp]:
    """Return the index of the coordinate of each score h_ab, an array of shape (T, T)."""
    pairs = [(a, b) for a in range(tokens) for b in range(a, tokens) if (a, b) != (0, 1)]
    coordinates = np.full((tokens, tokens), len(pairs))
    for index, (a, b) in enumerate(pairs):
        coordinates[a, b] = coordinates[b, a] = index
    coordinates.setflags(write=False)
    return coordinates


@lru_cache(maxsize=8)
def covariance(tokens: int) -> Reals:
    """Return the covariance K of the coordinates v for Q = 1, a read-only array of shape (P, P)."""
    at = places(tokens)
    # Var h_aa = 2Q, Var h_ab = Q, independent; subtracting h_12 adds Q to every entry.
    variances = np.ones(tokens * (tokens + 1) // 2 - 1)
    variances[at.diagonal()] = 2.0
    K = np.diag(variances) + 1.0
    K.setflags(write=False)
    return K


def softmax_rows(v: Reals, beta: float, tokens: int) -> Reals:
    """Return the softmax rows (T, T, N) that belong to the coordinates v (P, N)."""
    logits = np.concatenate([beta * v, np.zeros((1, v.shape[1]))])[places(tokens)]
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return np.asarray(logits)


def loss(sigma: Reals, y: Reals) -> Reals:
    """Return the squared loss `sum_ab (y_ab - sigma_ab)^2` for each draw."""
    away = y - sigma
    return np.asarray(np.einsum("abn,abn->n", away, away))


def derivatives(sigma: Reals, y: Reals, beta: float) -> tuple[Reals, Reals]:
    """Return the gradient (P, N) and the Hessian (P, P, N) of the loss in the coordinates v.

    In each row, let `r = y - sigma`, `t = sum r sigma`, `e = r - sigma` and `s = sum e sigma`. Then the
    gradient in the row's logits is `-2 beta sigma (r - t)`, and the Hessian is `C_bc = -2 beta^2 sigma_b
    [(e_b - t) 1(b=c) - sigma_c (e_b + e_c - t - s)]`.
    """
    r = y - sigma
    t = (r * sigma).sum(axis=1, keepdims=True)
    e = r - sigma
    m = e - 0.5 * (t + (e * sigma).sum(axis=1, keepdims=True))
    slope = (-2 * beta) * sigma * (r - t)
    scaled = 2 * beta**2 * sigma
    alone = -scaled * (e - t)
    return _sum_by_coordinate(slope), _symmetric(
        alone, lambda a, b, c: scaled[a, b] * sigma[a, c] * (m[a, b] + m[a, c])
    )


def gauss_newton(sigma: Reals, beta: float) -> Reals:
    """Return the positive semidefinite part `2 beta^2 J J` of the Hessian (P, P, N).

    In each row `J = diag(sigma) - sigma sigma^T`, which gives `C_bc = 2 beta^2 sigma_b [sigma_b 1(b=c) -
    sigma_c (sigma_b + sigma_c - sum sigma^2)]`.
    """
    m = sigma - 0.5 * (sigma * sigma).sum(axis=1, keepdims=True)
    scaled = 2 * beta**2 * sigma
    return _symmetric(scaled * sigma, lambda a, b, c: -scaled[a, b] * sigma[a, c] * (m[a, b] + m[a, c]))


def label_response(sigma: Reals, y: Reals, beta: float) -> Reals:
    """Return how the gradient responds to labels: the symmetric part of `-d^2 l / dp dv*`, (P, P, N).

    Each row of the softmax adds `C = 2 beta^2 J(sigma) J(y)`, where J is its Jacobian:

        C_bc = 2 beta^2 [sigma_b y_b 1(b=c) - sigma_b y_c (y_b + sigma_c - sum sigma y)]

    Only `(C + C^T) / 2` is computed, because traces with symmetric matrices need no more.
    """
    half = 0.5 * (sigma * y).sum(axis=1, keepdims=True)
    scaled = beta**2 * sigma
    first, second = y - half, sigma - half
    return _symmetric(
        2 * scaled * y,
        lambda a, b, c: (
            -scaled[a, b] * y[a, c] * (first[a, b] + second[a, c])
            - scaled[a, c] * y[a, b] * (first[a, c] + second[a, b])
        ),
    )


def _sum_by_coordinate(rows: Reals) -> Reals:
    """Return the sums (P, N) of those entries (T, T, N) that belong to the same coordinate."""
    at = places(rows.shape[0])
    sums = np.zeros((at.max() + 1, rows.shape[2]))
    for (a, b), place in np.ndenumerate(at):
        sums[place] += rows[a, b]
    return sums[:-1]


def _symmetric(alone: Reals, pair: Callable[[int, int, int], Reals]) -> Reals:
    """Return `sum_a R_a^T C_a R_a` for rows `C_a = diag(alone_a) + pair(a, ., .)`, shape (P, P, N)."""
    tokens, _, draws = alone.shape
    at = places(tokens)
    size = int(at.max())
    matrices = np.zeros((size, size, draws))
    for a in range(tokens):
        kept = [b for b in range(tokens) if at[a, b] < size]
        for b in kept:
            matrices[at[a, b], at[a, b]] += alone[a, b] + pair(a, b, b)
            for c in kept:
                # Two different coordinates are in at most one common row, so this is one term and not a sum.
                if at[a, c] < at[a, b]:
                    matrices[at[a, b], at[a, c]] = matrices[at[a, c], at[a, b]] = pair(a, b, c)
    return matrices


def local_minimum(start: Reals, omega: Reals, y: Reals, precision: Reals, beta: float) -> tuple[Reals, Reals]:
    """Return a local minimum (P, N) of `l(v) + (v - omega)^T precision (v - omega)/2`, and its value."""
    minima, values = start.copy(), np.empty(start.shape[1])
    active = np.arange(start.shape[1])
    v, sigma = start, softmax_rows(start, beta, y.shape[0])
    value = loss(sigma, y) + _penalty(v - omega, precision)
    for _ in range(MAX_NEWTON):
        gradient, hessian = derivatives(sigma, y, beta)
        gradient += precision @ (v - omega)
        hessian += precision[..., None]
        step = -solve(factor(hessian), gradient)
        slope = (gradient * step).sum(axis=0)
        # Where the Hessian gives no descent, the Gauss-Newton matrix does.
        poor = np.flatnonzero(~(slope < 0))
        if poor.size:
            convex = gauss_newton(sigma[..., poor], beta) + precision[..., None]
            step[:, poor] = -solve(factor(convex), gradient[:, poor])
            slope[poor] = (gradient[:, poor] * step[:, poor]).sum(axis=0)
        v, sigma, value, length = _line_search((v, sigma, value), step, slope, (omega, y, precision, beta))
        minima[:, active], values[active] = v, value
        moved = np.abs(step).max(axis=0) * length
        going = np.flatnonzero(moved > 1e-9 * (1 + np.abs(v).max(axis=0)))
        if not going.size:
            break
        if going.size < active.size:
            active = active[going]
            v, sigma, value, omega, y = (array[..., going] for array in (v, sigma, value, omega, y))
    return minima, values


def _line_search(
    here: tuple[Reals, Reals, Reals], step: Reals, slope: Reals, problem: tuple[Reals, Reals, Reals, float]
) -> tuple[Reals, Reals, Reals, Reals]:
    """Halve steps by Armijo's rule; return points, softmax rows, values and fractions of the steps."""
    v, sigma, value = here
    omega, y, precision, beta = problem
    length = np.ones(value.size)
    trying = np.arange(value.size)
    next_v, next_sigma, next_value = here
    for halving in range(MAX_HALVINGS):
        part = (...,) if trying.size == value.size else (..., trying)
        at = v[part] + length[part] * step[part]
        rows = softmax_rows(at, beta, y.shape[0])
        new = loss(rows, y[part]) + _penalty(at - omega[part], precision)
        old = value[part]
        good = new <= old + 1e-4 * length[part] * slope[part] + 1e-14 * (1 + np.abs(old))
        if halving == 0 and good.all():
            return at, rows, new, length
        if halving == 0:
            next_v, next_sigma, next_value = v.copy(), sigma.copy(), value.copy()
        taken = trying[good]
        next_v[:, taken], next_sigma[..., taken], next_value[taken] = at[:, good], rows[..., good], new[good]
        trying = trying[~good]
        if not trying.size:
            break
        length[trying] *= 0.5
    return next_v, next_sigma, next_value, length


def _penalty(offset: Reals, precision: Reals) -> Reals:
    return np.asarray(0.5 * np.einsum("pn,pn->n", offset, precision @ offset))
