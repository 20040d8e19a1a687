"""Risk of weighted ridge regression on groups of samples, in the limit n, p -> infinity at fixed n/p.

| here | meaning |
|---|---|
| pi_g, w_g, sigma_g^2 | share, weight and noise variance of group g |
| e_g | Tr(Sigma_g R)/n, the fixed point |
| c_g | w_g/(mu + w_g e_g), how much a sample of group g counts |
| R | (sum_g pi_g c_g Sigma_g + rho)^-1 |
| t_g | leverage of group g on the target |

A deterministic equivalent (ours; for one group that of arXiv 1906.11300 and its successors):

    T_gh = Tr(Sigma_g R Sigma_h R)/n,  b_g = Tr(Sigma_g R Sigma_t R)/n,  t = (1 - T diag(pi c^2))^-1 b
    bias = rho^2 theta^T R (Sigma_t + sum_g pi_g c_g^2 t_g Sigma_g) R theta
    variance = sum_g sigma_g^2 pi_g c_g^2 t_g

Only rho mu = ridge matters. (rho, mu) = (ridge, 1) is the usual form. (1, ridge) stays finite as the ridge
vanishes with fewer samples than directions; there e is known as kappa, and the weights drop out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.numerics.fixed_point import accelerated_iteration
from attnlaw.theory.regression.problem import Regression

# With fewer `effective_samples` than this, the sizes are too small for the limit.
LEAST_SPARE = 10.0


@dataclass(frozen=True, eq=False)
class RidgeFixedPoint:
    """The solution of the fixed-point equations of a problem, from which bias and variance follow."""

    problem: Regression
    rho: float
    e: Reals
    c: Reals
    R: Reals
    residual: float
    converged: bool

    @property
    def leverages(self) -> Reals:
        """The leverage of each group on the target (t_g in the module's formulas)."""
        groups, target = self.problem.covariances
        b = _traces(_products(groups, self.R), _products(target[None], self.R))[:, 0] / self.problem.samples
        return np.asarray(np.linalg.solve(np.eye(b.size) - self._slopes, b))

    def bias_of(self, signals: Reals | None) -> float:
        """Return the bias for each signal. None stands for a random direction of length one."""
        groups, target = self.problem.covariances
        counts = self.problem.shares * self.c**2 * self.leverages
        inside = target + np.tensordot(counts, groups, axes=1)
        if signals is None:
            quadratic = _traces(_products(inside[None], self.R), self.R[None])[0, 0] / self.problem.dimension
        elif self.R.ndim == 1:
            quadratic = float(inside @ (self.R * signals) ** 2)
        else:
            quadratic = float(self.R @ signals @ inside @ (self.R @ signals))
        return self.rho**2 * float(quadratic)

    @property
    def variance(self) -> float:
        return float(self.problem.noises @ (self.problem.shares * self.c**2 * self.leverages))

    @property
    def degrees(self) -> float:
        """The degrees of freedom of the fit, which are n if it fits all labels exactly."""
        return float(self.problem.samples * (self.problem.shares * self.c) @ self.e)

    @property
    def effective_samples(self) -> float:
        """The effective number of samples, about the inverse of the limit's relative error."""
        return self.problem.samples * (1 - float(np.abs(np.linalg.eigvals(self._slopes)).max()))

    @property
    def _slopes(self) -> Reals:
        """The derivatives of the fixed-point equations, T diag(pi c^2)."""
        products = _products(self.problem.covariances[0], self.R)
        T = _traces(products, products) / self.problem.samples
        return np.asarray(T * (self.problem.shares * self.c**2))


@dataclass(frozen=True)
class RidgeRisk:
    """The excess risk on noise-free labels, and the degrees of freedom of the fit."""

    bias: float
    variance: float
    degrees: float
    residual: float
    outcome: Outcome = Outcome.DONE
    remark: str | None = None

    @property
    def excess(self) -> float:
        return self.bias + self.variance


def ridge_risk(problem: Regression) -> RidgeRisk:
    """Compute the risk of ridge regression in the limit of large n and p.

    At p = 200 the error of the variance is about one per cent. The module's docstring has the formulas.

    >>> from attnlaw.theory.regression.problem import Group
    >>> group = Group(1.0, np.ones(200), noise=0.5)
    >>> risk = ridge_risk(Regression((group,), np.full(200, 200**-0.5), samples=100))
    >>> round(risk.bias, 12), round(risk.variance, 12)  # 1 - n/p and 0.5 n/(p - n) of isotropic inputs
    (0.5, 0.5)
    """
    point = solve(problem)
    bias = point.bias_of(np.asarray(problem.signal))
    return RidgeRisk(bias, point.variance, point.degrees, point.residual, *outcome_and_remark(point))


def solve(problem: Regression) -> RidgeFixedPoint:
    """Solve the fixed-point equations, by accelerated iteration in the logarithms of e."""
    groups, _ = problem.covariances
    pi, w, n = problem.shares, problem.weights, problem.samples
    rho, mu = _form(problem)

    def resolvent(e: Reals) -> tuple[Reals, Reals]:
        c = w / (mu + w * e)
        whole = np.tensordot(pi * c, groups, axes=1)
        inverse = 1 / (whole + rho) if whole.ndim == 1 else np.linalg.inv(whole + rho * np.eye(len(whole)))
        return c, np.asarray(inverse)

    def update(logs: Reals) -> Reals:
        R = resolvent(np.exp(logs))[1]
        return np.asarray(np.log(_inner(groups, R) / n))

    identity = np.ones_like(groups[0]) if groups.ndim == 2 else np.eye(problem.dimension)
    start = np.log(_inner(groups, identity) / n)
    iteration = accelerated_iteration(update, start, damping=0.0, tolerance=1e-13, max_steps=1000)
    e = np.exp(iteration.state)
    c, R = resolvent(e)
    return RidgeFixedPoint(problem, rho, e, c, R, iteration.residual, iteration.residual < 1e-9)


def _form(problem: Regression) -> tuple[float, float]:
    """Return the factors (rho, mu) of the ridge, or raise an `InputError` if the fit is not unique."""
    n, p = problem.samples, problem.dimension
    if problem.ridge > 0:
        return (1.0, problem.ridge) if n < p else (problem.ridge, 1.0)
    groups, _ = problem.covariances
    whole = groups.sum(axis=0)
    count = np.count_nonzero if whole.ndim == 1 else partial(np.linalg.matrix_rank, hermitian=True)
    directions = int(count(whole))
    if n < directions:
        return 1.0, 0.0
    if n > directions == p:
        return 0.0, 1.0
    raise InputError(
        f"regression: {n} samples of inputs with {directions} directions out of {p} do not determine a "
        "unique fit without a ridge; give a ridge above 0"
    )


def outcome_and_remark(point: RidgeFixedPoint) -> tuple[Outcome, str | None]:
    """Return the outcome of a computation and, if it is not reliable, a remark with a remedy."""
    if not point.converged:
        return Outcome.NOT_CONVERGED, "the equations did not converge; give a larger ridge"
    if point.effective_samples < LEAST_SPARE:
        return (
            Outcome.ILL_CONDITIONED,
            "the numbers of samples and directions are close: at this size the error of the limit is "
            f"about 1/{point.effective_samples:.2g}; give a ridge, or another number of samples",
        )
    return Outcome.DONE, None


def _inner(covariances: Reals, R: Reals) -> Reals:
    """Return Tr(Sigma_g R) for each group, for matrices or for diagonals."""
    return np.asarray(covariances.reshape(len(covariances), -1) @ R.ravel())


def _products(covariances: Reals, R: Reals) -> Reals:
    """Return Sigma_g R for each group."""
    return np.asarray(covariances * R if R.ndim == 1 else covariances @ R)


def _traces(left: Reals, right: Reals) -> Reals:
    """Return Tr(A_g B_h) for all pairs of groups g and h."""
    other = right if right.ndim == 2 else np.swapaxes(right, 1, 2)
    return np.asarray(left.reshape(len(left), -1) @ other.reshape(len(right), -1).T)
