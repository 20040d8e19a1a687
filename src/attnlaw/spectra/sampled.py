"""The (1,1) norm of a large product A B, N x M, from some of its columns.

Column j of A B has the Euclidean norm l_j, known without forming it, and the sum of absolute entries a_j,
which needs 2 N d operations. Columns drawn with probabilities l_j / sum l, with replacement, give the
estimate (sum l) mean(a_j / l_j) of sum a: without bias, and with little variance, because a_j / l_j hardly
varies (of Gaussian entries it is (2 N / pi)^(1/2), give or take (pi / 2 - 1)^(1/2) / N^(1/2) of itself).
More are drawn until the standard error is at most `ACCURACY`; where that takes as many columns as there
are, all are summed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import Estimate

# Products of more entries than this are sampled, in so many columns at a time.
LARGE = 2**20
COLUMNS = 32
# The largest standard error, relative.
ACCURACY = 0.005

Matrix = NDArray[np.float64]


def sampled_absolute_sum(left: Matrix, right: Matrix, lengths: Matrix, seed: int) -> Estimate:
    """The sum of absolute entries of `left @ right` with its standard error; the same in every run.

    `lengths` are the Euclidean norms of the columns of the product.

    >>> ones = np.ones((3, 200))
    >>> found = sampled_absolute_sum(ones.T, ones, np.full(200, 3 * 200**0.5), seed=0)
    >>> round(found.value, 6), found.error
    (120000.0, 0.0)
    """
    total = float(lengths.sum())
    if total == 0:
        return Estimate(0.0)
    rng = np.random.default_rng(seed)
    ratios = np.empty(0)
    while ratios.size < lengths.size:
        drawn = rng.choice(lengths.size, COLUMNS, p=lengths / total)
        new_ratios = np.abs(left @ right[:, drawn]).sum(axis=0) / lengths[drawn]
        ratios = np.append(ratios, new_ratios)
        mean, error = float(ratios.mean()), float(ratios.std(ddof=1) / np.sqrt(ratios.size))
        if error <= ACCURACY * mean:
            return Estimate(total * mean, total * error)
    starts = range(0, lengths.size, COLUMNS)
    return Estimate(sum(float(np.abs(left @ right[:, at : at + COLUMNS]).sum()) for at in starts))
