"""The operator T(X) of a forward pass, `vec F(X) = T(X) vec X + c(X)`.

T is applied to vectors and never stored as a matrix, except for small sizes.
`vec` stacks columns: entry (token i, coordinate k) of an s x D matrix is entry k s + i of its vector. So the
D x D block from token j to token i is `T[i::s, j::s]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.analysis.forward.blocks import FrozenBlock
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value

DENSE_LIMIT = 4096
BATCH_ENTRIES = 2**20  # numbers in a batch of hidden states: 8 MB, and several times that inside a block


@dataclass(frozen=True, eq=False)
class Operator:
    """The linear part T and the offset c of one forward pass."""

    block: FrozenBlock  # the frozen network
    tokens: int  # number s of tokens
    width: int  # number D of coordinates of a token

    @property
    def size(self) -> int:
        return self.tokens * self.width

    def matvec(self, vector: Reals) -> Reals:
        """Return T v for a vector, or for the columns of a matrix."""
        return self._apply_to_states(vector, self.block.linear)

    def rmatvec(self, vector: Reals) -> Reals:
        """Return T^T v for a vector, or for the columns of a matrix."""
        return self._apply_to_states(vector, self.block.transpose)

    @property
    def offset(self) -> Reals:
        """The offset c as a vector, stacked in the same order as vec X."""
        return self.block.offset.ravel(order="F")

    def as_linear_operator(self) -> scipy.sparse.linalg.LinearOperator:
        return scipy.sparse.linalg.LinearOperator(
            (self.size, self.size),
            matvec=self.matvec,
            rmatvec=self.rmatvec,
            matmat=self.matvec,
            rmatmat=self.rmatvec,
            dtype=np.float64,
        )

    def dense(self) -> Reals:
        """Return T as a matrix, or raise an `InputError` if its size s D is above 4096."""
        if self.size > DENSE_LIMIT:
            raise InputError(
                f"the operator is {self.size} x {self.size} ({self.tokens} tokens of width {self.width}), "
                f"expected at most {DENSE_LIMIT}; use fewer tokens, or multiply by it with matvec and "
                "rmatvec"
            )
        step = self.batch
        identity = np.eye(self.size)
        parts = [self.matvec(identity[:, start : start + step]) for start in range(0, self.size, step)]
        return np.concatenate(parts, axis=1)

    @property
    def batch(self) -> int:
        """Number of hidden states that go through the blocks at once."""
        return max(1, BATCH_ENTRIES // self.size)

    def _apply_to_states(self, vector: Reals, apply: Callable[[Reals], Reals]) -> Reals:
        shape = vector.shape
        columns = vector.reshape(self.size, -1).T
        states = columns.reshape(-1, self.width, self.tokens).swapaxes(-1, -2)
        return apply(states).swapaxes(-1, -2).reshape(columns.shape).T.reshape(shape)


@dataclass(frozen=True)
class TopSingularValues:
    values: tuple[float, ...] | None  # None if Lanczos did not converge
    residual: float | None  # max |T^T u - sigma v| / sigma_1; None if Lanczos did not converge
    remark: str | None = None  # what to do if it did not converge


def top_singular_values(operator: Operator, top: int = 8) -> TopSingularValues:
    """Return the `top` largest singular values of T, computed by Lanczos (ARPACK on T^T T).

    The start is fixed, so results are reproducible. A value sigma has a relative error of about eps
    (sigma_1/sigma)^2, where eps is the precision of float64.
    """
    top = check_value("top", top, int, minimum=1, maximum=operator.size - 1)
    start = np.random.default_rng(0).standard_normal(operator.size)
    try:
        u, values, vt = scipy.sparse.linalg.svds(
            operator.as_linear_operator(), k=top, v0=start, maxiter=1000, solver="arpack"
        )
    except scipy.sparse.linalg.ArpackError as error:  # includes missing convergence
        remark = (
            "the singular values could not be computed, because the Lanczos method failed "
            f"({error}); ask for another number of them"
        )
        return TopSingularValues(None, None, remark)
    order = np.argsort(-values)
    values, u, v = values[order], u[:, order], vt[order].T
    residual = np.linalg.norm(operator.rmatvec(u) - v * values, axis=0).max() / values[0]
    return TopSingularValues(tuple(map(float, values)), float(residual))
