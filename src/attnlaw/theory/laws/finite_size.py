"""Rules that say when a layer is too small for a law of random attention. Each was tested against draws.

beta is the standard deviation of a row's logits: `A = softmax(beta S)`, `S = Q K^T / sqrt(d_K)` with standard
Gaussian Q and K of n tokens (arXiv 2510.06685, 2610.10033). These rules are not in the papers, where beta
stays fixed as n grows.

| letter | meaning |
|---|---|
| n, h, d_K | tokens, heads, head size |
| b | `beta^2` |
| theta1 | `e^b - 1`, the limit of `|A|_F^2 - 1` |
| beta_2, beta_c | `sqrt(ln(n)/2)`, `sqrt(2 ln n)` |
| g_2 | `h d_K (d_K + 1)/(2n)`: rank of the heads' second Hermite terms over n |
| l^2 | `beta^4 n/(2 d_K)`: squared size of the spike that keys of unequal length make |

The rules do not cover causal masks, correlated tokens or rotary positions: draw masked attention as the null.
"""

from __future__ import annotations

import math

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.multi_head import MultiHeadLaw


def few_rows_beta(tokens: int) -> float:
    """Return the largest beta at which the law is valid, `beta_2 = sqrt(ln(n)/2)`.

    Above this beta, a few rows dominate `|A|_F^2`, because each of its row sums behaves like a random-energy
    model at 2 beta.

    >>> round(few_rows_beta(512), 2)
    1.77
    """
    return 0.5 * condensed_beta(tokens)


def condensed_beta(tokens: int) -> float:
    """Return `beta_c = sqrt(2 ln n)`. Above it, a row attends to only a few tokens, even for large n.

    At beta_c, the perplexity `n e^(-beta^2/2)` of a row is 1 (Derrida's random-energy model).

    >>> round(condensed_beta(512), 2)
    3.53
    """
    return math.sqrt(2 * math.log(check_value("tokens", tokens, int, minimum=2)))


def frobenius_shift(tokens: int, head_size: int, beta: float) -> float:
    """Return the relative difference between `|A|_F^2 - 1` at finite size and in the limit.

    To first order in 1/n and 1/d_K, `|A|_F^2 = e^b [1 + b^2/d_K + (3(e^b - 1) - 2(e^(2b) - 1))/n]`. The
    formula is accurate if the difference is a few percent. At beta 2 it is useless.
    """
    b = beta**2
    theta = math.expm1(b)
    return math.exp(b) / theta * (b * b / head_size + (3 * theta - 2 * math.expm1(2 * b)) / tokens)


LARGEST_SHIFT = 0.05
# At n = 1000 and one head, the distribution function is off by about 0.2/g_2: 0.09 at g_2 = 2, 0.03 at 8.
LEAST_WIDTH = 5.0
REMEDY = "draw random matrices of this shape instead"


def finite_size_warnings(
    tokens: int, head_size: int, beta: float, heads: int = 1, second_order: bool = False
) -> tuple[str, ...]:
    """Return sentences that explain why the limit may be wrong at this size, or an empty list.

    >>> finite_size_warnings(1000, 1000, 1.0)
    ()
    >>> [line.split(":")[0] for line in finite_size_warnings(1000, 64, 1.5)]
    ['beta 1.5 is too sharp for 1000 tokens', 'heads of size 64 are narrow for 1000 tokens']
    """
    lines = []
    shift = frobenius_shift(tokens, head_size, beta)
    lost = few_rows_beta(tokens)
    if abs(shift) > LARGEST_SHIFT or beta > lost:
        how = (
            f"above {lost:.3g} a few rows dominate the matrix"
            if beta > lost
            else f"the mean of the law is about {-shift:.0%} too {'large' if shift < 0 else 'small'}"
        )
        lines.append(f"beta {beta:g} is too sharp for {tokens} tokens: {how}; {REMEDY}")
    width = heads * head_size * (head_size + 1) / (2 * tokens)
    if width < LEAST_WIDTH and not second_order:
        lines.append(
            f"heads of size {head_size} are narrow for {tokens} tokens: "
            f"heads × head size × (head size + 1) / (2 × tokens) is {width:.2g}, "
            f"below {LEAST_WIDTH:g}, so the law is inaccurate; correct it with "
            f"--second-order, or {REMEDY}"
        )
    return tuple(lines)


def expected_spike(law: MultiHeadLaw, tokens: int, head_size: int) -> float | None:
    """Return the position of the outlier that keys of unequal length cause, or None if there is none.

    Column j of A is shifted by `beta^2 (|k_j|^2/d_K - 1)/2n`, the same in every row, where k_j is the key of
    token j. This shift is a matrix of rank one and squared size `beta^4 n/(2 d_K)`. It does not change the
    limiting law. There is no outlier if keys are normalised or if A is centred by its column means.

    >>> law = MultiHeadLaw(1.0, heads=1, key_ratio=64 / 1024)
    >>> expected_spike(law, 1024, 64) is None, round(expected_spike(MultiHeadLaw(1.0, 16, 1.0), 1024, 64), 3)
    (True, 10.005)
    """
    return law.spike(law.beta**4 * tokens / (2 * head_size))
