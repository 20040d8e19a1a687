"""Bracketed roots of many equations at once, and accelerated fixed-point iteration, which always stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals

# A step of the accelerated iteration is shortened to this length.
LARGEST_STEP = 1.0


@dataclass(frozen=True)
class Roots:
    """Roots of several equations, with their residuals and the widths of the last brackets."""

    x: Reals
    residual: Reals
    width: Reals
    steps: int


def bracketed_roots(
    function: Callable[[Reals, NDArray[np.intp]], Reals],
    low: Reals,
    high: Reals,
    *,
    ends: tuple[Reals, Reals] | None = None,
    tolerance: float = 1e-13,
    max_steps: int = 80,
) -> Roots:
    """Solve several equations `function(x, which) = 0` at once, by Chandrupatla's method (1997).

    `function` takes the points and the indices of the equations that are not yet solved. If the function has
    the same sign at both `ends` of a bracket, the result is the end with the smaller absolute value.
    `tolerance` is the width of the last bracket relative to |x|.

    >>> targets = np.array([2.0, 5.0])
    >>> bracketed_roots(lambda x, i: x * x - targets[i], np.zeros(2), np.full(2, 9.0)).x.round(12).tolist()
    [1.414213562373, 2.2360679775]
    """
    every = np.arange(low.size)
    a, b = high.astype(float).copy(), low.astype(float).copy()
    fb, fa = (function(b, every), function(a, every)) if ends is None else (end.copy() for end in ends)
    c, fc = a.copy(), fa.copy()
    t = np.full(low.size, 0.5)
    active = np.sign(fa) * np.sign(fb) < 0
    steps = 0
    while active.any() and steps < max_steps:
        steps += 1
        i = np.flatnonzero(active)
        x = a[i] + t[i] * (b[i] - a[i])
        fx = function(x, i)
        same = np.sign(fx) == np.sign(fa[i])
        c[i], fc[i] = np.where(same, a[i], b[i]), np.where(same, fa[i], fb[i])
        b[i], fb[i] = np.where(same, b[i], a[i]), np.where(same, fb[i], fa[i])
        a[i], fa[i] = x, fx
        best = np.where(np.abs(fa[i]) < np.abs(fb[i]), a[i], b[i])
        width = np.abs(b[i] - a[i])
        limit = 0.5 * (tolerance * np.abs(best) + 1e-300)
        t[i] = _next_step(a[i], b[i], c[i], fa[i], fb[i], fc[i], limit / np.maximum(width, 1e-300))
        active[i] = (width > 2 * limit) & (fx != 0.0)
    x = np.where(np.abs(fa) < np.abs(fb), a, b)
    residual = np.where(np.abs(fa) < np.abs(fb), fa, fb)
    return Roots(x, residual, np.abs(a - b), steps)


def _next_step(a: Reals, b: Reals, c: Reals, fa: Reals, fb: Reals, fc: Reals, least: Reals) -> Reals:
    """Return an inverse quadratic step, away from the ends of the bracket, if it is safe, else a bisection
    step.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        xi = (a - b) / (c - b)
        phi = (fa - fb) / (fc - fb)
        inside = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        step = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    step = np.where(inside & np.isfinite(step), step, 0.5)
    least = np.minimum(least, 0.5)
    return np.asarray(np.clip(step, least, 1 - least))


@dataclass(frozen=True)
class Iteration:
    """The result of a fixed-point iteration. `error` is the larger of the next step and the residual."""

    state: Reals  # the fixed point, or the best state if the iteration did not converge
    residual: float  # `max |update(x) - x|` at the state
    error: float
    steps: int
    converged: bool


def accelerated_iteration(
    update: Callable[[Reals], Reals],
    start: Reals,
    *,
    damping: float = 0.5,
    tolerance: float = 1e-9,
    max_steps: int = 400,
    patience: int = 40,
) -> Iteration:
    """Find a fixed point of `update` by Anderson's method (1965), for a few unknowns.

    A plain step is `x <- damping x + (1 - damping) update(x)`. The method estimates the slope of `update(x) -
    x` from past steps, as many as there are unknowns. So it needs few steps even if a plain iteration
    converges slowly. The state has converged if no entry of this residual exceeds `tolerance`. If the
    residual has not halved in `patience` steps, the iteration ends with the best state so far.

    >>> result = accelerated_iteration(np.cos, np.array([1.0]))
    >>> result.converged, float(result.state[0].round(6)), result.steps < 10
    (True, 0.739085, True)
    """
    x = np.asarray(start, dtype=float)
    points: list[Reals] = []
    misses: list[Reals] = []
    best, least, mark, since = x, np.inf, np.inf, 0
    for step in range(1, max_steps + 1):
        miss = update(x) - x
        residual = float(np.max(np.abs(miss)))
        if not np.isfinite(residual):
            return Iteration(best, least, np.inf, step, False)
        points, misses = [*points[-x.size :], x], [*misses[-x.size :], miss]
        move = _anderson_step(np.array(points), np.array(misses), damping)
        length = float(np.max(np.abs(move)))
        if residual < least:
            best, least = x, residual
        # At least one secant is needed to know whether the fixed point is near.
        if residual <= tolerance and (len(points) > 1 or residual == 0):
            return Iteration(x, residual, max(length, residual), step, True)
        since = 0 if least < 0.5 * mark else since + 1
        mark = least if since == 0 else mark
        if since >= patience:
            break
        x = x + move * min(1.0, LARGEST_STEP / length)
    return Iteration(best, least, np.inf, step, False)


def _anderson_step(points: Reals, misses: Reals, damping: float) -> Reals:
    """Return a plain step from the point at which the secants of past steps predict the fixed point."""
    if len(points) == 1:
        return np.asarray((1 - damping) * misses[-1])
    moved, changed = np.diff(points, axis=0).T, np.diff(misses, axis=0).T
    weights = np.linalg.lstsq(changed, misses[-1], rcond=1e-10)[0]
    return np.asarray((1 - damping) * misses[-1] - (moved + (1 - damping) * changed) @ weights)
