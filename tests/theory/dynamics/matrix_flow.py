"""The oracle of the closed solvers: the flow of a real matrix, step by step, from Gaussian starts.

Complex starts (transpose -> adjoint) have a bias of order 1/d^2, real ones of order 1/d.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Gains = Callable[[float, float], tuple[float, float]]


def tied_flow(
    gains: Gains,
    target: np.ndarray,
    width: float,
    scale: float,
    decay: float,
    times: list[float],
    rng: np.random.Generator,
    steps: int = 400,
) -> np.ndarray:
    """q, m, t of `dW/dtau = -4 (G S + H S*) W - gamma W` at some times, by RK4: shape (times, 3)."""
    d, wide = target.size, round(width * target.size)
    W = rng.standard_normal((d, wide)) + 1j * rng.standard_normal((d, wide))
    W *= np.sqrt(scale / (2 * wide))

    def numbers(W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        S = W @ W.conj().T
        diagonal = S.diagonal().real
        return S, np.array([np.vdot(S, S).real, diagonal @ target, diagonal.sum()]) / d

    def slope(W: np.ndarray) -> np.ndarray:
        S, (q, m, _) = numbers(W)
        G, H = gains(q, m)
        return -4 * (G * (S @ W) + H * target[:, None] * W) - decay * W

    moments, now = [], 0.0
    for time in times:
        count = max(int(np.ceil(steps * (time - now) / times[-1])), 1)
        h = (time - now) / count
        for _ in range(count):
            k1 = slope(W)
            k2 = slope(W + h / 2 * k1)
            k3 = slope(W + h / 2 * k2)
            k4 = slope(W + h * k3)
            W = W + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        now = time
        moments.append(numbers(W)[1])
    return np.array(moments)


def extrapolated(small: np.ndarray, large: np.ndarray, ratio: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """The limit of means over starts (axis 0) at two sizes, bias in 1/d^2, and its standard error."""
    factor = ratio**2 / (ratio**2 - 1)
    value = factor * large.mean(axis=0) - (factor - 1) * small.mean(axis=0)
    variance = factor**2 * large.var(axis=0, ddof=1) / len(large)
    variance = variance + (factor - 1) ** 2 * small.var(axis=0, ddof=1) / len(small)
    return value, np.sqrt(variance)
