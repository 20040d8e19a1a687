"""The empirical risk of a matrix, without the penalty: its value, its gradient and the labels.

The risk of arXiv 2509.24914 is summed over samples and over ALL ordered pairs (a, b) of tokens:

    R(S) = sum_mu sum_{a,b} (y_ab - yhat_ab)^2      (linear: each error may carry its own weight)
    linear   yhat_ab = h_ab,                              y_ab = h*_ab + noise_ab
    softmax  yhat_ab = exp(beta h_ab)/sum_c exp(beta h_ac),  y = the same function of h* + noise
    attended key: R(S) = sum_mu log(1 + e^v) - y v,  v = beta (h_1 - h_2),  y = 1 for the first key

| letter | meaning | shape |
|---|---|---|
| h | fields of the student, one column per pair a <= b | (n, P) |
| h*, noise | fields of the target and symmetric label noise | (n, P) |
| y | labels: packed pairs (linear) or full rows (softmax) | (n, P) or (n, T, T) |
| g | dR/dh for the packed pairs | (n, P) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.theory.learn.sensing import Sensing, upper


@dataclass(frozen=True, eq=False)
class Linear:
    """The squared loss of the linear output, which returns the scores themselves."""

    weights: Reals  # factors (n, P) of the squared errors
    ordered: bool = False  # whether the columns are ordered pairs (untied), so that each counts once
    quadratic: ClassVar[bool] = True
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        return fields

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of squared errors over ordered pairs, and its gradient in the scores."""
        weighted = self.curvature(tokens) * (fields - labels)
        return 0.5 * float(np.vdot(weighted, fields - labels)), weighted

    def curvature(self, tokens: int) -> Reals:
        """Return the second derivative of the loss in each score."""
        return 2.0 * (1.0 if self.ordered else pair_counts(tokens)) * self.weights


@dataclass(frozen=True)
class Softmax:
    """The squared loss of the softmax of each row of beta h."""

    beta: float
    quadratic: ClassVar[bool] = False
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        """Return the attention weights, of shape (n, T, T)."""
        first, second = upper(tokens)
        full = np.empty((fields.shape[0], tokens, tokens))
        full[:, first, second] = full[:, second, first] = self.beta * fields
        full -= full.max(axis=2, keepdims=True)
        np.exp(full, out=full)
        return np.asarray(full / full.sum(axis=2, keepdims=True))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of squared errors over ordered pairs, and its gradient in the scores."""
        outputs = self.labels(fields, tokens)
        residuals = outputs - labels
        value = float(np.vdot(residuals, residuals))
        # dyhat_ac/dh_ab = beta yhat_ac (delta_bc - yhat_ab)
        inner = np.einsum("nac,nac->na", residuals, outputs)
        full = 2.0 * self.beta * outputs * (residuals - inner[:, :, None])
        first, second = upper(tokens)
        packed = full[:, first, second] + np.where(first == second, 0.0, 1.0) * full[:, second, first]
        return value, packed

    def curvature(self, tokens: int) -> Reals:
        """Return an upper bound of the second derivative of the loss, one number for each score.

        Let u be a unit vector in a row, J the Jacobian of the softmax, r = yhat - y, and Var the variance of
        u under yhat. The second derivative along u is `2 |J u|^2 + 2 beta^2 sum_c r_c yhat_c ((u_c - mean
        u)^2 - Var)`. It is at most beta^2/2 + 2 beta^2, because |J| <= beta/2 and |r_c| <= 1.
        """
        return 2.5 * self.beta**2 * pair_counts(tokens)


@dataclass(frozen=True)
class Attended:
    """The cross-entropy loss for the one of two keys that a query attends to. Scores are (n, 2)."""

    beta: float
    drawn: bool = True  # whether labels are drawn keys instead of the probability of the first key
    quadratic: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        """Return the probability of the first key, an array of shape (n,)."""
        return np.asarray(scipy.special.expit(self.beta * (fields[:, 0] - fields[:, 1])))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return `sum log(1 + e^v) - y v` with `v = beta (h_1 - h_2)`, and its gradient in the scores."""
        v = self.beta * (fields[:, 0] - fields[:, 1])
        slope = self.beta * (scipy.special.expit(v) - labels)
        return float((np.logaddexp(0.0, v) - labels * v).sum()), np.stack([slope, -slope], axis=1)

    def curvature(self, tokens: int) -> Reals:
        """Return an upper bound of the second derivative of the loss, one number for each score."""
        return np.full(2, 0.5 * self.beta**2)


@dataclass(frozen=True)
class HermiteLoss:
    """The squared loss `(h_k(x) - y)^2` of one score x, h_2 = (x^2-1)/sqrt 2, h_3 = (x^3-3x)/sqrt 6."""

    order: int
    quadratic: ClassVar[bool] = False
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        if self.order == 2:
            return np.asarray((fields**2 - 1) / np.sqrt(2.0))
        return np.asarray((fields**3 - 3 * fields) / np.sqrt(6.0))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of the loss over samples, and its gradient in the scores."""
        rest = self.labels(fields, tokens) - labels
        slope = np.sqrt(2.0) * fields if self.order == 2 else np.sqrt(1.5) * (fields**2 - 1)
        return float(np.vdot(rest, rest)), 2 * rest * slope


Loss = Linear | Softmax | Attended


@dataclass(frozen=True, eq=False)
class Risk:
    """The training loss without weight decay, with its inputs and labels."""

    sensing: Sensing
    output: Loss
    labels: Reals

    def __call__(self, matrix: Reals) -> tuple[float, Reals]:
        """Return R(S) and its gradient."""
        value, weights = self.output.loss(self.sensing.fields(matrix), self.labels, self.sensing.shape[1])
        return value, self.sensing.adjoint(weights)

    def curvature(self, matrix: Reals) -> Reals:
        """Apply the second derivative of the risk (for some outputs an upper bound) to a matrix."""
        bound = self.output.curvature(self.sensing.shape[1])
        return self.sensing.adjoint(bound * self.sensing.fields(matrix))

    def step(self) -> float:
        """Return a safe step size of gradient descent: 1 over a little more than the largest curvature."""
        direction = np.eye(self.sensing.shape[2])
        direction[0] += 1.0
        direction[:, 0] += 1.0
        largest = 0.0
        for _ in range(30):
            direction = self.curvature(direction / np.linalg.norm(direction))
            largest = float(np.linalg.norm(direction))
        return 1.0 / (1.1 * largest)  # 30 power iterations may end below the largest curvature


def pair_counts(tokens: int) -> Reals:
    """Return how often each pair a <= b occurs among the ordered pairs: once if a = b, else twice."""
    first, second = upper(tokens)
    return np.where(first == second, 1.0, 2.0)
