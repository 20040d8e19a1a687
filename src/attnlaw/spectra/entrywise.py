"""The largest error of a single entry if a matrix is truncated to a low rank by its SVD.

| here | formula, with A = U S V^T of n rows and m columns, E = A - A_r |
|---|---|
| largest | max |E_ij| |
| rms | (sum_{l>r} s_l^2 / (n m))^(1/2), the error that Frobenius optimality controls |
| tail | sum_{l>r} s_l / (n m)^(1/2), the largest error that the spectrum alone predicts |
| bound | max_ij (P_i R_j)^(1/2) with P = U_>^2 s_> and R = V_>^2 s_>, never below `largest` |
| coherence | largest / tail; at least 1 if A is positive semidefinite |

arXiv 2405.14494 has entrywise bounds for kernel matrices. The identities are ours: if A is positive
semidefinite, the largest error is on the diagonal, and by Cauchy and Schwarz `|E_ij| <= (P_i R_j)^(1/2)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value


@dataclass(frozen=True)
class EntrywiseError:
    """The errors of single entries in the best approximation of a given rank."""

    rank: int
    largest: float
    rms: float
    tail: float
    bound: float
    coherence: float | None


def entrywise_errors(matrix: ArrayLike, ranks: Iterable[int]) -> tuple[EntrywiseError, ...]:
    """Return the entrywise errors of the best Frobenius-norm approximations, one record for each rank.

    A single SVD gives the errors for all ranks. The truncated SVD minimises the Frobenius norm of the error,
    not its largest entry. `bound` needs the whole SVD, so it explains the error of this matrix but guarantees
    nothing for another.

    Args:
        matrix: n x m matrix, such as the attention weights of a head (queries in rows). Use weights after the
            softmax, because the rank of scores is at most the head size.
        ranks: the ranks of the approximations, from 0 to min(n, m). At rank 0 the error is the matrix itself.

    >>> errors = entrywise_errors(np.diag([3.0, 2.0, 1.0]), [0, 1, 3])
    >>> [(error.rank, error.largest, round(error.tail, 6), error.coherence) for error in errors]
    [(0, 3.0, 2.0, 1.5), (1, 2.0, 1.0, 2.0), (3, 0.0, 0.0, None)]
    """
    A, U, s, Vt = _decompose(matrix)
    wanted = [check_value("ranks", rank, int, minimum=0, maximum=s.size) for rank in ranks]
    noise = np.finfo(float).eps * max(A.shape) * float(s[0])
    errors: dict[int, EntrywiseError] = {}
    left, done = A.copy(), 0
    for rank in sorted(set(wanted)):
        left -= (U[:, done:rank] * s[done:rank]) @ Vt[done:rank]
        done = rank
        rest = s[rank:]
        rows, columns = U[:, rank:] ** 2 @ rest, rest @ Vt[rank:] ** 2
        largest, tail = float(np.abs(left).max()), float(rest.sum() / np.sqrt(A.size))
        rms, bound = float(np.sqrt(np.sum(rest**2) / A.size)), float(np.sqrt(rows.max() * columns.max()))
        coherence = largest / tail if rest.size and rest[0] > noise else None
        errors[rank] = EntrywiseError(rank, largest, rms, tail, bound, coherence)
    return tuple(errors[rank] for rank in wanted)


def rank_within(matrix: ArrayLike, error: float = 0.01) -> int:
    """Return the smallest rank at which no entry of the truncated SVD is off by more than `error`.

    This is stricter than a limit for the mean squared error. In rare cases, an entry is off by more than
    `error` again at a higher rank.

    >>> rank_within(np.diag([3.0, 2.0, 1.0]), 1.5)
    2
    """
    A, U, s, Vt = _decompose(matrix)
    allowed = check_value("error", error, float, greater_than=0)
    rms = np.sqrt(np.append(np.cumsum(s[::-1] ** 2)[::-1], 0.0) / A.size)
    rank = int(np.argmax(rms <= allowed))
    left = A - (U[:, :rank] * s[:rank]) @ Vt[:rank]
    while rank < s.size and float(np.abs(left).max()) > allowed:
        left -= np.multiply.outer(s[rank] * U[:, rank], Vt[rank])
        rank += 1
    return rank


def _decompose(matrix: ArrayLike) -> tuple[Reals, Reals, Reals, Reals]:
    A = np.asarray(matrix, dtype=float)
    if A.ndim != 2 or not A.size or not np.isfinite(A).all():
        raise InputError(
            f"entrywise errors: found an array of shape {A.shape}, expected one matrix of finite numbers; "
            "pass the weights of one head at a time"
        )
    return A, *np.linalg.svd(A, full_matrices=False)
