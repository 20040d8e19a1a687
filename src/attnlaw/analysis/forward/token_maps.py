"""Measure how much each input token moves each output token, by block norms of T and by attention rollout."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from attnlaw.analysis.forward.blocks import FrozenAttention
from attnlaw.analysis.forward.operator import DENSE_LIMIT, Operator
from attnlaw.core.arrays import Reals
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value

PROBES = 64
ANNOUNCED_SECONDS = 60.0  # expected times above this are announced


@dataclass(frozen=True, eq=False)
class TokenMap:
    """The influence of tokens: `norms[i, j]` is |T_ij|_F of the block of T from input j to output i."""

    norms: Reals
    errors: Reals  # standard errors, all zero if the norms are exact
    probes: int | None  # number of random probes for each token; None if the norms are exact

    @property
    def shares(self) -> Reals:
        totals = self.norms.sum(axis=1, keepdims=True)
        shares: Reals = np.divide(self.norms, totals, out=np.zeros_like(self.norms), where=totals > 0)
        return shares


def token_map(
    operator: Operator, seed: int = 0, progress: Progress = no_progress, probes: int | None = None
) -> TokenMap:
    """Return the Frobenius norms of the token-to-token blocks of T.

    They are exact if s D is at most 4096 and `probes` is not given. Otherwise random probes estimate them:
    for random signs z at token j, the mean of |T (z at j)|_i^2 is |T_ij|_F^2.
    """
    if probes is not None:
        check_value("probes", probes, int, minimum=2)  # their spread gives the standard error
    rng = np.random.default_rng(seed)
    exact = probes is None and operator.size <= DENSE_LIMIT
    count = operator.width if exact else probes or PROBES
    squares, variances = np.zeros((2, operator.tokens, operator.tokens))
    start = perf_counter()
    for j in range(operator.tokens):
        inputs = np.eye(count) if exact else rng.choice([-1.0, 1.0], size=(count, operator.width))
        moved = _squared_outputs(operator, inputs, j)
        if exact:
            squares[:, j] = moved.sum(axis=0)
        else:
            squares[:, j] = moved.mean(axis=0)
            variances[:, j] = moved.var(axis=0, ddof=1) / count
        if j == 0 and (seconds := (perf_counter() - start) * operator.tokens) > ANNOUNCED_SECONDS:
            minutes = f"the map of {operator.tokens} tokens will take about {seconds / 60:.0f} min"
            logging.getLogger("attnlaw").info("%s; to skip it, use --only heads", minutes)
        progress(j + 1, operator.tokens)
    norms = np.sqrt(squares)
    errors = np.divide(np.sqrt(variances), 2 * norms, out=np.zeros_like(norms), where=norms > 0)
    return TokenMap(norms, errors, None if exact else count)


def _squared_outputs(operator: Operator, inputs: Reals, j: int) -> Reals:
    """Return the squared length of every output token for each row of `inputs`, put in at token j alone."""
    moved = np.empty((len(inputs), operator.tokens))
    for start in range(0, len(inputs), operator.batch):
        part = inputs[start : start + operator.batch]
        states = np.zeros((len(part), operator.tokens, operator.width))
        states[:, j] = part
        moved[start : start + len(part)] = (operator.block.linear(states) ** 2).sum(axis=-1)
    return moved


def rollout(blocks: Iterable[FrozenAttention]) -> Reals:
    """Return attention rollout: the product over layers of (mean_h A_h + I) / 2 (arXiv 2005.00928).

    Rollout ignores values, feed-forward blocks and norms. The rows of a rollout sum to 1.

    >>> import numpy as np
    >>> uniform = FrozenAttention(np.full((1, 2, 2), 0.5), *(np.zeros((2, 2)), np.zeros(2)) * 2)
    >>> rollout([uniform])
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    product: Reals | None = None
    for block in blocks:
        mixing = (block.probabilities.mean(axis=0) + np.eye(block.probabilities.shape[-1])) / 2
        product = mixing if product is None else mixing @ product
    assert product is not None, "the model has no attention block; give a Transformer"
    return product
