"""When not to trust a law of random attention at a finite size: own rules, each held against draws.

| letter | meaning |
|---|---|
| n, h, d_K | tokens, heads, head size |
| g_2 | `h d_K (d_K + 1)/(2n)`: rank of the heads' second Hermite terms over n |
| l^2 | `beta^4 n/(2 d_K)`: squared size of the spike that keys of unequal length make |

Not covered at all: causal masks (uniform attention M is then a matrix of full rank, and `|A - M|_F^2` grows
like `theta ln n`: draw masked nulls), correlated tokens, rotary positions.
"""

from __future__ import annotations

from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.temperature import few_rows_beta, frobenius_shift

LARGEST_SHIFT = 0.05
# At n = 1000 and one head the distribution function is off by about 0.2/g_2: 0.09 at 2, 0.05 at 4, 0.03 at 8.
LEAST_WIDTH = 5.0
REMEDY = "draw finite matrices of this shape as the null"


def finite_size_warnings(
    tokens: int, head_size: int, beta: float, heads: int = 1, second_order: bool = False
) -> tuple[str, ...]:
    """What to beware of when the limit stands for finite attention matrices; empty where it is close.

    `second_order`: the law keeps the second Hermite term, the cure for narrow heads.

    >>> finite_size_warnings(1000, 1000, 1.0)
    ()
    >>> [line.split(":")[0] for line in finite_size_warnings(1000, 64, 1.5)]
    ['beta 1.5 is too sharp for 1000 tokens', 'heads of size 64 are narrow for 1000 tokens']
    """
    lines = []
    shift = frobenius_shift(tokens, head_size, beta)
    lost = few_rows_beta(tokens)
    if abs(shift) > LARGEST_SHIFT or beta > lost:
        how = f"above {lost:.3g} a few rows rule" if beta > lost else f"the mean is off by about {shift:.0%}"
        lines.append(f"beta {beta:g} is too sharp for {tokens} tokens: {how}; {REMEDY}")
    width = heads * head_size * (head_size + 1) / (2 * tokens)
    if width < LEAST_WIDTH and not second_order:
        lines.append(
            f"heads of size {head_size} are narrow for {tokens} tokens: h d_K^2/(2n) is {width:.2g}, below "
            f"{LEAST_WIDTH:g}, and their noise is not white; give head_size to MultiHeadLaw, or {REMEDY}"
        )
    return tuple(lines)


def expected_spike(law: MultiHeadLaw, tokens: int, head_size: int) -> float | None:
    """Where the spike of unequal keys stands beyond the law's edge; None where it stays inside.

    All rows of A have a common shift `beta^2 (|k_j|^2/d_K - 1)/2n`: a rank-one term of squared size
    `beta^4 n/(2 d_K)`, which stays O(1) as n grows and which a weak limit does not see. It is gone where keys
    are normalised and where A is centred by its column means.

    >>> law = MultiHeadLaw(1.0, heads=1, key_ratio=64 / 1024)
    >>> expected_spike(law, 1024, 64) is None, round(expected_spike(MultiHeadLaw(1.0, 16, 1.0), 1024, 64), 3)
    (True, 10.005)
    """
    return law.spike(law.beta**4 * tokens / (2 * head_size))
