"""How sharp random attention may be before its law is lost: marks of beta that know the number of tokens.

beta is the standard deviation of a row's logits: `A = softmax(beta S)`, `S = Q K^T / sqrt(d_K)` with standard
Gaussian Q and K of n tokens (arXiv 2510.06685, 2610.10033). None of this is in those papers, where beta stays
fixed as n grows.

| letter | meaning |
|---|---|
| n, d_K | tokens, head size |
| b | `beta^2` |
| theta1 | `e^b - 1`, the limit of `|A|_F^2 - 1` |
| beta_2, beta_c | `sqrt(ln(n)/2)`, `sqrt(2 ln n)` |
"""

from __future__ import annotations

import math

from attnlaw.core.settings import check_value


def few_rows_beta(tokens: int) -> float:
    """`beta_2 = sqrt(ln(n)/2)`: above it a few rows carry `|A|_F^2`, and the law of the spectrum is lost.

    A row has `sum_j A_ij^2` from `sum_j e^(2 beta s_j)`, n terms of a random-energy model at 2 beta: its
    largest terms rule from half the condensing temperature on.

    >>> round(few_rows_beta(512), 2)
    1.77
    """
    return 0.5 * condensed_beta(tokens)


def condensed_beta(tokens: int) -> float:
    """`beta_c = sqrt(2 ln n)`: above it a row attends to a number of tokens that does not grow with n.

    It is where the perplexity `n e^(-beta^2/2)` of a row would be 1 (Derrida's random-energy model).

    >>> round(condensed_beta(512), 2)
    3.53
    """
    return math.sqrt(2 * math.log(check_value("tokens", tokens, int, minimum=2)))


def frobenius_shift(tokens: int, head_size: int, beta: float) -> float:
    """By what share of theta1 a finite `|A|_F^2 - 1` misses theta1, to first order in 1/n and 1/d_K.

    `|A|_F^2 = e^b [1 + b^2/d_K + (3(e^b - 1) - 2(e^(2b) - 1))/n]`. Good for shifts of a few percent; at
    beta 1.5 and n = d_K = 1000 it says -16%, where draws have -11%, and at 2 it is useless.

    >>> round(frobenius_shift(1000, 1000, 1.0), 4), round(frobenius_shift(1000, 1000, 1.5), 4)
    (-0.0105, -0.1649)
    """
    b = beta**2
    theta = math.expm1(b)
    return math.exp(b) / theta * (b * b / head_size + (3 * theta - 2 * math.expm1(2 * b)) / tokens)
