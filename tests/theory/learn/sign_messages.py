"""Approximate message passing for hardmax labels of two tokens, written without the package.

The student sees the token that each row of the noisy scores attends to, for n = alpha d^2 pairs of tokens.
The two differences `h_11 - h_12` and `h_22 - h_12` have covariance `K q`, K = [[3, 1], [1, 3]], for a matrix
of squared norm d q, and noise `K Delta/2`. One step of generalised message passing on symmetric matrices:

    omega = A(S) - V K g_old,   g = gradient of log P(labels | omega, covariance (V + Delta/2) K)
    a^2 = 1/(2 alpha mean(g^T K g)),   R = S + (2 a^2/d) A*(g),   S = f(R),   V = (2 a^2/d^2) div f

R is the target plus Gaussian noise of spectrum [-2a, 2a]. f is the Bayes denoiser `x - 2 a^2 Re g(x)` of its
eigenvalues; g solves the cubic `c a^2 g^3 - (a^2 + c x) g^2 + (x + c - 1/c) g - 1 = 0`, c = 1/sqrt(kappa0).
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr
from scipy.stats import multivariate_normal

K = np.array([[3.0, 1.0], [1.0, 3.0]])
DAMPING = 0.5


def differences(x: np.ndarray, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return `h_11 - h_12` and `h_22 - h_12` of every pair of tokens, (n, 2)."""
    root = np.sqrt(len(s))
    cross = np.einsum("ni,ni->n", x @ s, z)
    first, second = (np.einsum("ni,ni->n", tokens @ s, tokens) - np.trace(s) for tokens in (x, z))
    return np.stack([first - cross, second - cross], axis=-1) / root


def adjoint(x: np.ndarray, z: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the sum over pairs of g_1 A_1 + g_2 A_2, with A as in `differences`."""
    d = x.shape[1]
    cross = (x * g.sum(axis=1)[:, None]).T @ z
    matrix = (x * g[:, :1]).T @ x + (z * g[:, 1:]).T @ z - g.sum() * np.eye(d) - (cross + cross.T) / 2
    return np.asarray(matrix / np.sqrt(d))


def gradient(omega: np.ndarray, labels: np.ndarray, variance: float) -> np.ndarray:
    """Return the gradient in omega of log P(signs of N(omega, variance K) are the labels), (n, 2)."""
    spread = np.sqrt(3 * variance)
    k = labels * omega / spread
    result = np.zeros_like(omega)
    for product in (-1.0, 1.0):
        rows = labels.prod(axis=1) == product
        r = product / 3
        if not rows.any():
            continue
        both = multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf(k[rows])
        both = np.maximum(np.atleast_1d(both), 1e-12)
        for side in (0, 1):
            own, other = k[rows, side], k[rows, 1 - side]
            # d Phi2/d k_1 = phi(k_1) Phi((k_2 - r k_1)/sqrt(1 - r^2)): not the bivariate density
            density = np.exp(-(own**2) / 2) / np.sqrt(2 * np.pi)
            tail = ndtr((other - r * own) / np.sqrt(1 - r * r))
            result[rows, side] = labels[rows, side] * density * tail / both / spread
    return result


def real_transform(rank: float, a: float, x: float) -> float:
    """Return Re g(x) of the target's law plus a semicircle, whose support has one interval here.

    Off the support all roots of the cubic are real. The smallest on the side of x belongs to the law.
    """
    c = 1 / np.sqrt(rank)
    roots = np.roots([c * a * a, -(a * a + c * x), x + c - np.sqrt(rank), -1.0])
    lowest = roots[np.argmin(roots.imag)]
    if lowest.imag < -1e-9 * abs(lowest):
        return float(lowest.real)
    side = np.sign(x - np.sqrt(rank))
    return float(min(roots.real[np.sign(roots.real) == side], key=abs))


def denoised(eigenvalues: np.ndarray, rank: float, a: float) -> tuple[np.ndarray, float]:
    """Return `x - 2 a^2 Re g(x)` of the eigenvalues, and the divergence of this map of matrices."""
    step = 1e-4 * a
    both = np.concatenate([eigenvalues, eigenvalues + step])
    mapped = both - 2 * a * a * np.array([real_transform(rank, a, x) for x in both])
    f, ahead = mapped[: eigenvalues.size], mapped[eigenvalues.size :]
    i, j = np.triu_indices(eigenvalues.size, 1)
    ratios = (f[i] - f[j]) / (eigenvalues[i] - eigenvalues[j])
    return f, float(((ahead - f) / step).sum() + ratios.sum())


def estimation_error(
    alpha: float, rank: float, noise: float, d: int, seed: int, steps: int = 25
) -> tuple[float, float]:
    """Return the error `|S - S*|^2/d` that message passing reaches, and the error that it expects.

    The scores of each pair of tokens are turned around at random, which the student knows: this takes the
    skewness of the scores away, which would vanish only as 1/sqrt(d).
    """
    rng = np.random.default_rng(seed)
    m, n = round(rank * d), round(alpha * d * d)
    w = rng.standard_normal((d, m))
    target = w @ w.T / np.sqrt(m * d)
    x, z = rng.standard_normal((2, n, d))
    turned = rng.choice([-1.0, 1.0], (n, 1))
    noisy = turned * differences(x, z, target)
    noisy += np.sqrt(noise / 2) * rng.standard_normal((n, 2)) @ np.linalg.cholesky(K).T
    labels = np.where(noisy > 0, 1.0, -1.0)
    # The prior mean of the target is a multiple of the identity.
    s = np.sqrt(rank) * np.eye(d)
    V, g = 1.0, np.zeros((n, 2))
    for _ in range(steps):
        omega = turned * differences(x, z, s) - V * g @ K
        g = gradient(omega, labels, V + noise / 2)
        a = float(1 / np.sqrt(2 * alpha * np.einsum("na,ab,nb->n", g, K, g).mean()))
        values, vectors = np.linalg.eigh(s + (2 * a * a / d) * adjoint(x, z, turned * g))
        f, divergence = denoised(values, rank, a)
        new = (vectors * f) @ vectors.T
        V = DAMPING * V + (1 - DAMPING) * 2 * a * a / d**2 * divergence
        s = DAMPING * s + (1 - DAMPING) * new
    return float(np.sum((s - target) ** 2) / d), V
