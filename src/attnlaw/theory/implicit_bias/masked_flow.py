"""Gradient flow of factors A B on the observed entries of a matrix, and the greedy path of its ranks.

The loss is `|mask * (A B - M)|_F^2 / 2`, A n x k, B k x m; G = mask * (M - A B) is its negative gradient in
A B. From a vanishing start the flow stays near rank r until the top singular pair of G has grown, and so on
(Li, Luo and Lyu 2020; arXiv 2405.13721): `follow_greedy_path` follows it,
with one latent direction more at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

Reals = NDArray[np.float64]
RTOL, ATOL = 1e-9, 1e-6  # of the integrator; ATOL in units of the start
FITTED = 1e-8  # |G| over |mask * M| at which all is fitted
STILL = 1e-9  # the slope, in units of the top singular value of G, below which the flow stands
SEED_SIZE = 1e-5  # of a pair that is added, in units of sqrt |G|
# A stage or a run is given up beyond these: a nuclear norm over that of mask * M, a time times |mask * M|,
# slopes asked for (a stage with an end takes thousands; scipy 1.15 goes on for hours in one without).
LARGEST = 1e3
LONGEST = 1e9
MOST_SLOPES = 200_000


class NoEndError(Exception):
    """A stage asked for more slopes than any with an end."""


@dataclass(frozen=True, eq=False)
class FlowEnd:
    """Factors at the end of a flow, G there in size, and whether the flow stands still."""

    A: Reals
    B: Reals
    time: float
    residual: float
    still: bool


def gradient(A: Reals, B: Reals, M: Reals, mask: Reals) -> Reals:
    """G, the negative gradient in A B."""
    return np.asarray(mask * (M - A @ B))


def settle(A: Reals, B: Reals, M: Reals, mask: Reals, start: float) -> FlowEnd:
    """Follow the flow until all is fitted, or until it stands and no direction is left to grow from `start`.

    Near a saddle the flow all but stands, too: it is believed after the time in which a direction of size
    `start` would have left it.
    """
    (n, k), m = A.shape, B.shape[1]
    scale = float(np.linalg.norm(mask * M, 2))
    atol = min(ATOL * start, RTOL * float(np.sqrt(scale)))

    def slope(_: float, state: Reals) -> Reals:
        A, B = state[: n * k].reshape(n, k), state[n * k :].reshape(k, m)
        G = gradient(A, B, M, mask)
        return np.concatenate([(G @ B.T).ravel(), (A.T @ G).ravel()])

    asked = 0

    def counted(time: float, state: Reals) -> Reals:
        nonlocal asked
        asked += 1
        if asked > MOST_SLOPES:
            raise NoEndError
        return slope(time, state)

    state, time, span = np.concatenate([A.ravel(), B.ravel()]), 0.0, 0.0
    stood = stuck = False
    while True:
        A, B = state[: n * k].reshape(n, k), state[n * k :].reshape(k, m)
        G = gradient(A, B, M, mask)
        left, top = float(np.linalg.norm(G)), float(np.linalg.norm(G, 2))
        fitted = left < FITTED * scale
        stands = time > 0 and float(np.abs(slope(0.0, state)).max()) < STILL * scale**1.5
        # A direction of `start` leaves a saddle of top singular value s in the time ln(1/start)/s.
        escape = 2 * np.log1p(np.sqrt(scale) / start) / max(top, FITTED * scale)
        if fitted or (stands and stood and span >= escape):
            return FlowEnd(A, B, time, left, still=True)
        lost = float(np.linalg.norm(A @ B, "nuc")) > LARGEST * float(np.linalg.norm(mask * M, "nuc"))
        if lost or stuck or time * scale > LONGEST:
            return FlowEnd(A, B, time, left, still=False)
        stood, span = stands, max(escape, time)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a stage that runs away, which is told below
            try:
                ended = solve_ivp(counted, (0, span), state, method="LSODA", rtol=RTOL, atol=atol)
            except NoEndError:
                return FlowEnd(A, B, time, left, still=False)
        state, time = ended.y[:, -1], time + float(ended.t[-1])
        stuck = not ended.success


@dataclass(frozen=True, eq=False)
class GreedyLimit:
    """The greedy limit A B, the first pair of its path (n + m), `lost` the rank whose stage has no end."""

    A: Reals
    B: Reals
    first: Reals
    residual: float
    lost: int | None

    @property
    def rank(self) -> int:
        return int(self.A.shape[1])


def follow_greedy_path(M: Reals, mask: Reals, latent: int) -> GreedyLimit:
    """Add the top singular pair of G, flow until it stands, repeat: at most `latent` times.

    >>> M, mask = np.array([[0.0, 1.0], [1.0, 0.5]]), np.array([[0.0, 1.0], [1.0, 1.0]])
    >>> found = follow_greedy_path(M, mask, 2)
    >>> found.rank, (found.A @ found.B).round(6).tolist()
    (1, [[2.0, 1.0], [1.0, 0.5]])
    """
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
