"""State evolution's softmax averages the plain way: dense Hessians (N, P, P), LU for every draw.

The coordinates are those of `attnlaw.theory.learn.softmax_channel`; draws stand on the first axis.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.theory.learn import softmax
from attnlaw.theory.learn.softmax import ChannelAverages

Reals = NDArray[np.float64]
MAX_NEWTON = 60


@lru_cache(maxsize=8)
def coordinates(tokens: int) -> tuple[Reals, Reals]:
    """`R` of shape (T, T, P) and `K` of shape (P, P) (read-only).

    >>> coordinates(2)[1].tolist()
    [[3.0, 1.0], [1.0, 3.0]]
    """
    pairs = [(a, b) for a in range(tokens) for b in range(a, tokens) if (a, b) != (0, 1)]
    R = np.zeros((tokens, tokens, len(pairs)))
    for index, (a, b) in enumerate(pairs):
        R[a, b, index] = R[b, a, index] = 1.0
    # Var h_aa = 2Q, Var h_ab = Q, independent; subtracting h_12 adds Q to every entry.
    K = np.diag([2.0 if a == b else 1.0 for a, b in pairs]) + 1.0
    R.setflags(write=False)
    K.setflags(write=False)
    return R, K


def softmax_rows(v: Reals, beta: float, tokens: int) -> Reals:
    """Rows of the softmax of the field with coordinates v (N, P): shape (N, T, T)."""
    R, _ = coordinates(tokens)
    logits = beta * np.tensordot(v, R, axes=(1, 2))
    logits = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.asarray(logits / logits.sum(axis=2, keepdims=True))


def loss(v: Reals, y: Reals, beta: float) -> Reals:
    """`sum_ab (y_ab - sigma_ab)^2` per draw."""
    return np.asarray(((y - softmax_rows(v, beta, y.shape[1])) ** 2).sum(axis=(1, 2)))


def derivatives(v: Reals, y: Reals, beta: float) -> tuple[Reals, Reals]:
    """Gradient (N, P) and Hessian (N, P, P) of the loss in the coordinates v.

    Per row, with residual r = y - sigma, `u = r sigma` and `J = diag(sigma) - sigma sigma^T`: the gradient is
    `-2 beta (u - sigma sum(u))`, and the Hessian differentiates it once more.
    """
    tokens = y.shape[1]
    R, _ = coordinates(tokens)
    sigma = softmax_rows(v, beta, tokens)
    r = y - sigma
    u = r * sigma
    total = u.sum(axis=2, keepdims=True)
    slope = -2 * beta * (u - sigma * total)
    jacobian = _softmax_jacobian(sigma)
    d_u = (r - sigma)[..., :, None] * jacobian
    d_total = d_u.sum(axis=2, keepdims=True)
    curved = -2 * beta**2 * (d_u - jacobian * total[..., None] - sigma[..., :, None] * d_total)
    return np.tensordot(slope, R, axes=([1, 2], [0, 1])), _project(curved, tokens)


def gauss_newton(v: Reals, y: Reals, beta: float) -> Reals:
    """The positive semidefinite part `2 beta^2 J J` of the Hessian: shape (N, P, P)."""
    jacobian = _softmax_jacobian(softmax_rows(v, beta, y.shape[1]))
    return _project(2 * beta**2 * (jacobian @ jacobian), y.shape[1])


def label_response(v: Reals, y: Reals, beta: float) -> Reals:
    """`B = -d^2 l / dp dv*`, per row `2 beta^2 J(sigma) J(y)`: shape (N, P, P)."""
    sigma = softmax_rows(v, beta, y.shape[1])
    return _project(2 * beta**2 * (_softmax_jacobian(sigma) @ _softmax_jacobian(y)), y.shape[1])


def _softmax_jacobian(sigma: Reals) -> Reals:
    return np.asarray(np.eye(sigma.shape[2]) * sigma[..., None] - sigma[..., :, None] * sigma[..., None, :])


def _project(blocks: Reals, tokens: int) -> Reals:
    """`sum_a R_a^T blocks_a R_a` for blocks of shape (N, T, T, T), as one product of matrices."""
    lift = _lift(tokens)
    size = round(lift.shape[1] ** 0.5)
    return np.asarray((blocks.reshape(-1, tokens**3) @ lift).reshape(-1, size, size))


@lru_cache(maxsize=8)
def _lift(tokens: int) -> Reals:
    R, _ = coordinates(tokens)
    return np.asarray(np.einsum("abp,acq->abcpq", R, R).reshape(tokens**3, -1))


def local_minimum(start: Reals, omega: Reals, y: Reals, precision: Reals, beta: float) -> tuple[Reals, Reals]:
    """A local minimum of `l(v) + (v - omega)^T precision (v - omega)/2` and its value, for every draw.

    Newton's method, with the Gauss-Newton matrix where the Hessian gives no descent, and halved steps.
    """
    v = start.copy()

    def objective(at: Reals, which: NDArray[np.intp]) -> Reals:
        offset = at - omega[which]
        penalty = 0.5 * np.einsum("np,pq,nq->n", offset, precision, offset)
        return np.asarray(loss(at, y[which], beta) + penalty)

    active = np.arange(v.shape[0])
    value = objective(v, active)
    for _ in range(MAX_NEWTON):
        gradient, hessian = derivatives(v[active], y[active], beta)
        gradient += (v[active] - omega[active]) @ precision
        step = -np.linalg.solve(hessian + precision, gradient[..., None])[..., 0]
        slope = (gradient * step).sum(axis=1)
        poor = ~(slope < 0)
        if poor.any():
            convex = gauss_newton(v[active[poor]], y[active[poor]], beta) + precision
            safe = np.linalg.solve(convex, gradient[poor][..., None])[..., 0]
            step[poor] = -safe
            slope[poor] = -(gradient[poor] * safe).sum(axis=1)
        length = np.ones(active.size)
        trying = np.arange(active.size)
        old = value[active]
        for _ in range(30):
            at = v[active[trying]] + length[trying, None] * step[trying]
            new = objective(at, active[trying])
            good = new <= old[trying] + 1e-4 * length[trying] * slope[trying] + 1e-14 * (
                1 + np.abs(old[trying])
            )
            v[active[trying[good]]] = at[good]
            value[active[trying[good]]] = new[good]
            trying = trying[~good]
            if not trying.size:
                break
            length[trying] *= 0.5
        moved = np.abs(step).max(axis=1) * length
        active = active[moved > 1e-9 * (1 + np.abs(v[active]).max(axis=1))]
        if not active.size:
            break
    return v, value


class DenseChannel(softmax._Channel):
    """The averages by `tr[(I + V H K)^-1 H K]` and `tr[(I + V H K)^-1 B K]` as they are written."""

    def _minima(self, E: float, theta: float, V: float) -> tuple[Reals, Reals]:
        """The proximal points, and the labels, draws on the first axis."""
        omega, labels = self.student(E, theta).T.copy(), np.moveaxis(self.labels, -1, 0).copy()
        if self.calls % softmax.REFRESH == 0 or not self.starts:
            self.starts = [omega, self.shown.T.copy()]
        self.calls += 1
        beta = self.problem.beta
        minima = [local_minimum(start, omega, labels, self.inverse / V, beta) for start in self.starts]
        self.starts = [v for v, _ in minima]
        return np.where((minima[0][1] <= minima[1][1])[:, None], minima[0][0], minima[1][0]), labels

    def average(self, E: float, theta: float, V: float) -> ChannelAverages:
        problem, K = self.problem, self.K
        p, labels = self._minima(E, theta, V)
        gradient, hessian = derivatives(p, labels, problem.beta)
        HK, BK = hessian @ K, label_response(p, labels, problem.beta) @ K
        size = K.shape[0]
        both = np.linalg.solve(np.eye(size) + V * HK, np.concatenate([HK, BK], axis=2))
        trace, response = (
            np.trace(part, axis1=1, axis2=2).mean() for part in (both[:, :, :size], both[:, :, size:])
        )
        power = np.einsum("np,pq,nq->n", gradient, K, gradient).mean()
        scale, train = 2 * problem.alpha, loss(p, labels, problem.beta).mean()
        return ChannelAverages(
            float(scale * trace), float(scale * power), float(scale * response), float(train)
        )

    def response(self, E: float, theta: float, V: float) -> float:
        """`2 alpha tr[(K G)^2]` with `G = (I + V H K)^-1 H`."""
        p, labels = self._minima(E, theta, V)
        hessian = derivatives(p, labels, self.problem.beta)[1]
        product = self.K @ np.linalg.solve(np.eye(self.K.shape[0]) + V * hessian @ self.K, hessian)
        return float(2 * self.problem.alpha * np.trace(product @ product, axis1=1, axis2=2).mean())
