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
    """The loss of an output that is the field itself."""

    weights: Reals  # factors (n, P) of the squared errors
    ordered: bool = False  # whether the columns are ordered pairs (untied), so that each counts once
    quadratic: ClassVar[bool] = True
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        return fields

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of squared errors over ordered pairs, and its gradient in the packed fields."""
        weighted = self.curvature(tokens) * (fields - labels)
        return 0.5 * float(np.vdot(weighted, fields - labels)), weighted

    def curvature(self, tokens: int) -> Reals:
        """Return the second derivative of the loss in the packed fields, which is diagonal."""
        return 2.0 * (1.0 if self.ordered else pair_counts(tokens)) * self.weights


@dataclass(frozen=True)
class Softmax:
    """The loss of an output that is the softmax of each row of beta h."""

    beta: float
    quadratic: ClassVar[bool] = False
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        """Return attention rows of shape (n, T, T)."""
        first, second = upper(tokens)
        full = np.empty((fields.shape[0], tokens, tokens))
        full[:, first, second] = full[:, second, first] = self.beta * fields
        full -= full.max(axis=2, keepdims=True)
        np.exp(full, out=full)
        return np.asarray(full / full.sum(axis=2, keepdims=True))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of squared errors over ordered pairs, and its gradient in the packed fields."""
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
        """Return a diagonal upper bound of the second derivative in the packed fields.

        For a unit vector u in a row, with r = yhat - y and Var the variance of u under yhat (at most 1/2),
        the second derivative is d^2/dt^2 |r|^2 = 2 |J u|^2 + 2 beta^2 sum_c r_c yhat_c ((u_c - mean u)^2 -
        Var). Because |J| <= beta/2 and |r_c| <= 1, this derivative is at most beta^2/2 + 2 beta^2.
        """
        return 2.5 * self.beta**2 * pair_counts(tokens)


@dataclass(frozen=True)
class Attended:
    """The cross-entropy of the key to which a query attends, out of two keys. Fields have shape (n, 2)."""

    beta: float
    drawn: bool = True  # whether labels are drawn keys instead of the probability of the first key
    quadratic: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        """Return the probability of the first key, of shape (n,)."""
        return np.asarray(scipy.special.expit(self.beta * (fields[:, 0] - fields[:, 1])))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return `sum log(1 + e^v) - y v`, where `v = beta (h_1 - h_2)`, and its gradient in the fields."""
        v = self.beta * (fields[:, 0] - fields[:, 1])
        slope = self.beta * (scipy.special.expit(v) - labels)
        return float((np.logaddexp(0.0, v) - labels * v).sum()), np.stack([slope, -slope], axis=1)

    def curvature(self, tokens: int) -> Reals:
        """Return a diagonal upper bound of `beta^2 sigma (1 - sigma) [[1, -1], [-1, 1]]`."""
        return np.full(2, 0.5 * self.beta**2)


@dataclass(frozen=True)
class HermiteLoss:
    """The loss `(h_k(x) - y)^2` of a single field x, with h_2 = (x^2-1)/sqrt 2 and h_3 = (x^3-3x)/sqrt 6."""

    order: int
    quadratic: ClassVar[bool] = False
    drawn: ClassVar[bool] = False

    def labels(self, fields: Reals, tokens: int) -> Reals:
        if self.order == 2:
            return np.asarray((fields**2 - 1) / np.sqrt(2.0))
        return np.asarray((fields**3 - 3 * fields) / np.sqrt(6.0))

    def loss(self, fields: Reals, labels: Reals, tokens: int) -> tuple[float, Reals]:
        """Return the sum of the loss over samples, and its gradient in the fields."""
        rest = self.labels(fields, tokens) - labels
        slope = np.sqrt(2.0) * fields if self.order == 2 else np.sqrt(1.5) * (fields**2 - 1)
        return float(np.vdot(rest, rest)), 2 * rest * slope


Loss = Linear | Softmax | Attended


@dataclass(frozen=True, eq=False)
class Risk:
    """The data term of training: the data that the student sees, the loss of its output, and the labels."""

    sensing: Sensing
    output: Loss
    labels: Reals

    def __call__(self, matrix: Reals) -> tuple[float, Reals]:
        """Return R(S) and its gradient."""
        value, weights = self.output.loss(self.sensing.fields(matrix), self.labels, self.sensing.shape[1])
        return value, self.sensing.adjoint(weights)

    def curvature(self, matrix: Reals) -> Reals:
        """Apply the second derivative of R, or an upper bound if the output is not linear, to a matrix."""
        bound = self.output.curvature(self.sensing.shape[1])
        return self.sensing.adjoint(bound * self.sensing.fields(matrix))

    def step(self) -> float:
        """Return a safe step of gradient descent, 1/L, with L a little above the largest curvature of R."""
        direction = np.eye(self.sensing.shape[2])
        direction[0] += 1.0
        direction[:, 0] += 1.0
        largest = 0.0
        for _ in range(30):
            direction = self.curvature(direction / np.linalg.norm(direction))
            largest = float(np.linalg.norm(direction))
        return 1.0 / (1.1 * largest)


def pair_counts(tokens: int) -> Reals:
    """Return how often each packed pair occurs among the ordered pairs: 1 if a = b, 2 if not."""
    first, second = upper(tokens)
    return np.where(first == second, 1.0, 2.0)
