"""Gaussian matrices that answer questions: never formed, exact in law, also while they are trained by SGD.

| here    | means                                                                                    |
|---------|------------------------------------------------------------------------------------------|
| W       | (out, in) with independent N(0, std^2) entries                                           |
| V, Y    | rows asked from the right, orthonormal (k, in), and what came: `V W^T = Y` (k, out)      |
| U, B    | rows asked from the left, orthonormal (m, out), and what came: `U W = B` (m, in)         |
| D, X    | a use of W: `dL/dW = D^T X`, D (s, out) the gradient of what came, X (s, in) what was read |

For a new q orthogonal to V, `W q = U^T B q + (I - U^T U) g` with g fresh, and for a new p orthogonal to U,
`W^T p = V^T Y^T p + (I - V^T V) g`: Gaussian conditioning, exact for any sequence of questions, each of which
may depend on all answers before (Bolthausen, 2014). A step of SGD adds `-rate D^T X`, of low rank. So
`|dL/dW|_F^2 = sum (D D^T) o (X X^T)`.

Cost: O(s^2 (in + out)) for a question about s rows; it grows with their number, and once that reaches the
width the matrix itself would be cheaper. Adam divides entry by entry and has no such form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

SAME = 1e-10  # of a row's length: what is left of it is rounding, the question was asked before


@dataclass(eq=False)
class LazyMatrix:
    """W (out, in) of deviation `std`, drawn as far as it is asked for; its `uses` since the last step.

    `zero_row` is a row that is zero before the first step: the embedding of padding.

    >>> W = LazyMatrix(1000, 1000, 1.0, torch.Generator().manual_seed(0))
    >>> x, d = torch.ones(1, 1000, dtype=torch.float64), torch.ones(1, 1000, dtype=torch.float64)
    >>> bool(torch.allclose(W.right(x) @ d.T, x @ W.left(d).T))
    True
    """

    out: int
    inner: int
    std: float
    generator: torch.Generator
    zero_row: int | None = None
    uses: list[tuple[Any, Any]] = field(default_factory=list)
    steps: list[tuple[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.V, self.Y = self._empty(self.inner), self._empty(self.out)
        self.U, self.B = self._empty(self.out), self._empty(self.inner)

    def right(self, x: Any) -> Any:
        """X W^T for rows X (s, in)."""
        known, rest = self._split_rows(x, self.V)
        if len(rest[1]):
            fresh = self._draw_normals(len(rest[1]), self.out)
            fresh = fresh - fresh @ self.U.T @ self.U + rest[1] @ self.B.T @ self.U
            self.V, self.Y = torch.cat([self.V, rest[1]]), torch.cat([self.Y, fresh])
            known = torch.cat([known, rest[0]], dim=1)
        answer = self._without_row(known @ self.Y)
        for d, moved in self.steps:
            answer = answer - (x @ moved.T) @ d
        return answer

    def left(self, d: Any) -> Any:
        """D W for rows D (s, out)."""
        known, rest = self._split_rows(self._without_row(d), self.U)
        if len(rest[1]):
            fresh = self._draw_normals(len(rest[1]), self.inner)
            fresh = fresh - fresh @ self.V.T @ self.V + rest[1] @ self.Y.T @ self.V
            self.U, self.B = torch.cat([self.U, rest[1]]), torch.cat([self.B, fresh])
            known = torch.cat([known, rest[0]], dim=1)
        answer = known @ self.B
        for moved, x in self.steps:
            answer = answer - (d @ moved.T) @ x
        return answer

    def gradient_norm(self) -> float:
        """|dL/dW|_F over all uses since the last step."""
        d, x = self._gradient()
        return math.sqrt(max(float(((d @ d.T) * (x @ x.T)).sum()), 0.0))

    def step(self, rate: float) -> None:
        """A step of SGD; what was used is forgotten."""
        d, x = self._gradient()
        self.steps.append((rate * d, x))
        self.uses.clear()

    def _gradient(self) -> tuple[Any, Any]:
        if not self.uses:  # an expert that no token was sent to
            return self._empty(self.out), self._empty(self.inner)
        d, x = (torch.cat(part) for part in zip(*self.uses, strict=True))
        return d, x

    def _split_rows(self, rows: Any, known: Any) -> tuple[Any, tuple[Any, Any]]:
        """Rows as `C known + T Q`: C, and (T, Q) with Q orthonormal and orthogonal to what is known."""
        c = rows @ known.T
        rest = rows - c @ known
        again = rest @ known.T  # once more against rounding
        c, rest = c + again, rest - again @ known
        left, sizes, q = torch.linalg.svd(rest, full_matrices=False)
        count = int((sizes > SAME * max(float(rows.norm()), 1e-300)).sum())
        count = min(count, rows.shape[1] - len(known))
        return c, (left[:, :count] * sizes[:count], q[:count])

    def _draw_normals(self, rows: int, columns: int) -> Any:
        return self.std * torch.randn(rows, columns, dtype=torch.float64, generator=self.generator)

    def _without_row(self, answer: Any) -> Any:
        if self.zero_row is None:
            return answer
        answer = answer.clone()
        answer[:, self.zero_row] = 0.0
        return answer

    @staticmethod
    def _empty(columns: int) -> Any:
        return torch.zeros(0, columns, dtype=torch.float64)
