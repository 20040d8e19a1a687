"""What K learners do together: the error of their mean and of their vote, from three overlaps.

Scores omega_k of the learners and the teacher nu are jointly Gaussian: Var nu = 1, Var omega_k = q,
Cov(omega_k, omega_l) = q1, Cov(omega_k, nu) = m (arXiv 2201.13383).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, ndtr

from attnlaw.numerics.quadrature import panels

Reals = NDArray[np.float64]
FAR = 9.0  # standard deviations; the mass beyond is below the floats
NODES = 12


def mean_square_error(m: float, q: float, q1: float, learners: float) -> float:
    """E (nu - mean of omega)^2 = 1 - 2m + q1 + (q - q1)/K."""
    return 1 - 2 * m + q1 + (q - q1) / learners


def mean_sign_error(m: float, q: float, q1: float, learners: float) -> float:
    """P(sign of the mean differs from that of nu) = arccos(m/(q1 + (q - q1)/K)^(1/2))/pi."""
    return math.acos(m / math.sqrt(q1 + (q - q1) / learners)) / math.pi


def vote_error(m: float, q: float, q1: float, learners: float) -> float:
    """P(the majority of signs differs from that of nu); a tie of an even number counts one half.

    Given zeta, the part that all learners share, their signs are independent of each other and of nu's. With
    ties at one half an even number votes as one learner fewer does.

    >>> m, q, q1 = 2.150286, 18.530249, 6.747211
    >>> round(vote_error(m, q, q1, 1) - mean_sign_error(m, q, q1, 1), 9)
    0.0
    """
    if learners == math.inf:
        return mean_sign_error(m, q, q1, learners)
    odd = int(learners) - (learners % 2 == 0)
    zeta, weights = gaussian_nodes()
    positive = ndtr(math.sqrt(q1 / (q - q1)) * zeta)
    elected = bdtrc(odd // 2, odd, positive)
    truth = teacher_given(m, q1, zeta)
    return float(weights @ (truth * (1 - elected) + (1 - truth) * elected))


def teacher_given(m: float, q1: float, zeta: Reals) -> Reals:
    """P(nu > 0 | zeta), nu = (m/q1^(1/2)) zeta + (1 - m^2/q1)^(1/2) eta."""
    rest = max(1 - m * m / q1, np.finfo(float).tiny)
    return np.asarray(ndtr(m / math.sqrt(q1 * rest) * zeta))


def gaussian_nodes() -> tuple[Reals, Reals]:
    """Nodes and weights for a standard normal, ever finer towards 0, where votes and signs turn."""
    graded = FAR * 0.5 ** np.arange(30)
    z, steps = panels(np.concatenate([-graded, graded, [0.0], np.arange(-FAR, FAR)]), NODES)
    return z, steps * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
