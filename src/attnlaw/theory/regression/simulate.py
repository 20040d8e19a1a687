"""Fit ridge and kernel ridge regression to random samples, to compare with the theory.

Bias and variance are exact means over the noise of the labels at fixed inputs, so no noise is drawn. Means
over draws of the inputs have standard errors. The seeds of the draws are children of one seed, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.draws import generators, mean_of
from attnlaw.theory.limit.wishart import symmetric_root
from attnlaw.theory.regression.kernels import kernel_matrix
from attnlaw.theory.regression.problem import Regression

# Test inputs for the risk of a kernel, in each draw. Their error is part of the spread over draws.
TEST_INPUTS = 1000


@dataclass(frozen=True)
class MeasuredRisk:
    """The measured risk: means over random draws of the inputs, with their standard errors."""

    bias: Estimate
    variance: Estimate
    excess: Estimate
    seeds: int


def simulate_ridge(problem: Regression, seeds: int = 8, seed: int = 0) -> MeasuredRisk:
    """Fit ridge regression to several draws of the inputs, and measure its risk.

    >>> from attnlaw.theory.regression.problem import Group
    >>> group = Group(1.0, np.ones(40), noise=0.5)
    >>> risk = simulate_ridge(Regression((group,), np.full(40, 40**-0.5), samples=20), seeds=4)
    >>> 0.3 < risk.bias.value < 0.7
    True
    """
    theta, (_, target) = np.asarray(problem.signal), problem.covariances
    group = group_of_samples(problem)
    pairs = []
    for rng in generators(seed, seeds):
        X = draw_inputs(problem, rng)
        A = _fit(X, problem.weights[group], problem.ridge)
        bias = squared_norm(A @ (X @ theta) - theta, target)
        spread = A * (target[:, None] * A) if target.ndim == 1 else A * (target @ A)
        pairs.append((bias, float(spread.sum(axis=0) @ problem.noises[group])))
    return _summarise_runs(pairs, seeds)


def simulate_kernel_ridge(problem: Regression, kernel: str, seeds: int = 8, seed: int = 0) -> MeasuredRisk:
    """Fit kernel ridge regression to several draws of the inputs, and measure its risk."""
    theta, (_, target) = np.asarray(problem.signal), problem.covariances
    group = group_of_samples(problem)
    root = _root(target)
    pairs = []
    for rng in generators(seed, seeds):
        X = draw_inputs(problem, rng)
        test = _multiply_root(rng.standard_normal((TEST_INPUTS, problem.dimension)), root)
        K = kernel_matrix(kernel, X, X) + np.diag(problem.ridge / problem.weights[group])
        A = np.linalg.solve(K, kernel_matrix(kernel, X, test)).T
        bias = float(np.mean((A @ (X @ theta) - test @ theta) ** 2))
        pairs.append((bias, float(np.mean(A**2, axis=0) @ problem.noises[group])))
    return _summarise_runs(pairs, seeds)


def group_of_samples(problem: Regression) -> NDArray[np.intp]:
    """Return the group of each sample. Raise an `InputError` if a group's size is not whole."""
    counts = problem.shares * problem.samples
    if np.abs(counts - counts.round()).max() > 1e-6:
        raise InputError(
            f"regression: shares {problem.shares.tolist()} of {problem.samples} samples are not whole "
            "numbers; simulate another number of samples"
        )
    return np.repeat(np.arange(len(problem.groups)), counts.round().astype(int))


def draw_inputs(problem: Regression, rng: np.random.Generator) -> Reals:
    """Draw the inputs X (n x p). The groups are in order."""
    group, p = group_of_samples(problem), problem.dimension
    Z = rng.standard_normal((problem.samples, p))
    for g, covariance in enumerate(problem.covariances[0]):
        Z[group == g] = _multiply_root(Z[group == g], _root(covariance))
    return Z


def draw(problem: Regression, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """Draw the inputs X and their noisy labels y."""
    X = draw_inputs(problem, rng)
    deviations = np.sqrt(problem.noises[group_of_samples(problem)])
    return X, X @ np.asarray(problem.signal) + deviations * rng.standard_normal(problem.samples)


def squared_norm(vector: Reals, covariance: Reals) -> float:
    """Return v^T Sigma v for a vector v and a covariance Sigma."""
    return float(vector @ (covariance * vector if covariance.ndim == 1 else covariance @ vector))


def _fit(X: Reals, weights: Reals, ridge: float) -> Reals:
    """Return the p x n matrix that turns labels into the fitted coefficients theta."""
    n, p = X.shape
    if n < p:
        return np.asarray(np.linalg.solve(X @ X.T + np.diag(n * ridge / weights), X).T)
    weighted = (X * weights[:, None]).T
    return np.asarray(np.linalg.solve(weighted @ X + n * ridge * np.eye(p), weighted))


def _root(covariance: Reals) -> Reals:
    if covariance.ndim == 1:
        return np.sqrt(covariance)
    return symmetric_root(covariance)


def _multiply_root(Z: Reals, root: Reals) -> Reals:
    return np.asarray(Z * root if root.ndim == 1 else Z @ root)


def _summarise_runs(pairs: Sequence[tuple[float, float]], seeds: int) -> MeasuredRisk:
    bias, variance = np.array(pairs).T
    return MeasuredRisk(mean_of(bias), mean_of(variance), mean_of(bias + variance), seeds)
