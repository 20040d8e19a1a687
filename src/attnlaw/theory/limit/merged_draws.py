"""Many variances of a mixture of centred normals as few, with the same density to about 1e-9.

| here | means                                                   |
|------|---------------------------------------------------------|
| s    | log v of a draw, measured from the centre of its cell    |
| m, w | mean and variance of s within a cell; k its third central moment |
| a    | y^2 / (2 v): how far out a point lies, in the draw's own units |

`log v` is cut into cells of width h, and the draws of a cell become the two points of its Gauss quadrature,
which keep the moments of s up to the third: `m + t -+ sqrt(t^2 + w)` with `t = k / (2 w)`. Weights are
positive, so logarithms of sums stay safe far out. An average of f(log v) errs by at most `h^4 / 1536` of the
largest fourth derivative, whatever the draws (a Chebyshev polynomial bounds the quadrature's orthogonal one):
for a normal's density at h = 0.05 some 1e-8 of it at a = 1, and 1e-5 at a = 8, e^-8 of its height.
"""

from __future__ import annotations

import numpy as np

from attnlaw.theory.limit.wishart import Array

CELL = 0.05


def merge_variances(variances: Array) -> tuple[Array, Array]:
    """Variances and their weights (which add up to one) in the place of many of equal weight.

    >>> merge_variances(np.array([1.0, 0.0, 1.0, 1.0]))
    (array([0., 1.]), array([0.25, 0.75]))
    """
    positive = variances[variances > 0]
    log_v = np.log(positive)
    numbers, place, counts = np.unique(np.floor(log_v / CELL), return_inverse=True, return_counts=True)
    centres = (numbers + 0.5) * CELL
    s = log_v - centres[place]
    m, second, third = (np.bincount(place, s**order, len(counts)) / counts for order in (1, 2, 3))
    w = second - m**2
    # One draw, or equal ones: a single point, at the mean.
    spread = w > 1e-12 * CELL**2
    t = np.where(spread, third - m * (3 * second - 2 * m**2), 0.0) / np.where(spread, 2 * w, 1.0)
    root = np.where(spread, np.sqrt(t**2 + np.maximum(w, 0.0)), 1.0)
    upper = np.where(spread, (root - t) / (2 * root), 0.0)
    low = centres + np.where(spread, m + t - root, m)
    high = (centres + m + t + root)[spread]
    zeros = len(variances) - len(positive)
    nodes = np.concatenate([np.zeros(min(zeros, 1)), np.exp(low), np.exp(high)])
    shares = np.concatenate([np.full(min(zeros, 1), zeros), counts * (1 - upper), (counts * upper)[spread]])
    return nodes, shares / len(variances)
