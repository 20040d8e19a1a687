r"""Sizes of a head: those of its two factors, which determine its balance, and those of its queries and keys.

The factors are A = W_Q and B = W_K, or A = W_V and B = W_O^T. Scores, or outputs, do not change if A becomes
A G and B becomes B G^(-T). The set of such G is the gauge of the head.

| gauge | G | least \|A G\|_F^2 + \|B G^(-T)\|_F^2, halved |
|---|---|---|
| `full` | any invertible matrix | \|A B^T\|_* |
| `rotary` | a complex number for each plane, any matrix on the rest | sum_j \|A_j\| \|B_j\| + \|A B^T\|_* |
| `none` | nothing: norms, clipping or gates are between the factors | |

In the row `rotary`, j runs over the planes that positions turn, and A B^T is the product of the columns that
they do not turn. The least value is reached exactly if D = A^T A - B^T B vanishes on the directions in which
G can move: for the full gauge all of D, for the rotary gauge the trace of each plane and all of the rest
(this is ours). The sizes of D and of both Gram matrices are taken on the same directions.

Under grouped queries B is shared, A stacks the queries of a group (for VO the outputs are stacked), and every
head of the group has the sizes of the group. The bias of queries is one more row of A, as if weight decay
acts on the bias too. Latent attention and keys of an earlier layer are left out, because other factors share
the gauge there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.blocks import Attention, Rotary
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.arrays import Reals
from attnlaw.numerics.lapack import singular_values

# A triangular factor (or a matrix with the same Gram matrix) and the power of two it was divided by.
Root = tuple[Reals, float]
FULL, ROTARY, NO_GAUGE = GAUGES = ("full", "rotary", "none")


@dataclass(frozen=True)
class FactorSizes:
    """Sizes of the factors A (rows x inner) and B (cols x inner) of a head, divided by `scale`."""

    rows: int
    cols: int
    inner: int
    turned: int  # number of columns in planes that rotary positions turn
    squares: tuple[float, float]  # |A|_F^2 and |B|_F^2
    least: float  # least value of half their sum over the gauge
    nuclear: float  # |A B^T|_*
    difference: float  # |D|_F with D = A^T A - B^T B
    grams: float  # |A^T A|_F + |B^T B|_F
    scale: float = 1.0
    weights: FactorSizes | None = None  # the same sizes without the bias of queries; None if there is no bias


def factor_sizes(
    left: Root,
    right: Root,
    sides: tuple[int, int],
    rotary: Rotary | None,
    nuclear_norm: float | None = None,
) -> FactorSizes | None:
    """Compute the sizes of A and B from their triangular factors, or None if they exceed float64.

    Pass the numbers of rows of A and B as `sides`, and |A B^T|_* as `nuclear_norm` if you know it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        share = left[1] ** 0.5 / right[1] ** 0.5
        a, b = left[0] * share, right[0] / share
        first, second = a.T @ a, b.T @ b
        inner = a.shape[1]
        turned = planes(rotary)
        rest = np.setdiff1d(np.arange(inner), turned)
        if nuclear_norm is None:
            nuclear = float(singular_values(a @ b.T).sum())
        else:
            nuclear = nuclear_norm / left[1] / right[1]
        least = nuclear
        grams = [first, second, first - second]
        sizes = [float(np.linalg.norm(gram)) for gram in grams]
        if turned.size:
            lengths = [np.diag(gram)[turned].sum(axis=1) for gram in grams]
            least = float(np.sqrt(lengths[0] * lengths[1]).sum())
            if rest.size:
                least += float(singular_values(a[:, rest] @ b[:, rest].T).sum())
            sizes = [
                float(np.hypot(np.linalg.norm(traces) / 2**0.5, np.linalg.norm(gram[np.ix_(rest, rest)])))
                for traces, gram in zip(lengths, grams, strict=True)
            ]
    squares = float(np.trace(first)), float(np.trace(second))
    if not np.isfinite([*sizes, *squares, least]).all():
        return None
    both = sizes[0] + sizes[1], left[1] * right[1]
    return FactorSizes(*sides, inner, turned.size, squares, least, nuclear, sizes[2], *both)


def planes(rotary: Rotary | None) -> NDArray[np.intp]:
    """Return the pairs of columns that rotary positions rotate together, a pair in each row."""
    if rotary is None:
        return np.zeros((0, 2), dtype=np.intp)
    columns = rotary.start + np.arange(rotary.size)
    return columns.reshape(-1, 2) if rotary.adjacent else columns.reshape(2, -1).T


def gauge_of(block: Attention, kind: str) -> str | None:
    """Return which changes of the factors leave a head's output the same, or None if it is not clear."""
    how = block.scores
    clipped = how.clip is not None
    between = clipped or block.value_norm or block.output_norm or block.gate
    if block.latent or block.source is not None:
        return None
    if not KINDS[kind].scores:
        return NO_GAUGE if between else FULL
    if how.query_norm or how.key_norm or clipped:
        return NO_GAUGE
    if how.rotary is None:
        return FULL
    return ROTARY if how.rotary.start + how.rotary.size <= block.head_size else None


def block_factors(
    model: Model,
    block: Attention,
    kind: str,
    shape: tuple[int, int],
    roots: Sequence[tuple[Root, Root]],
    nuclear: Sequence[float],
) -> list[FactorSizes | None]:
    """Return the sizes of the factors of every head in a block."""
    if gauge_of(block, kind) not in (FULL, ROTARY):
        return [None] * block.heads
    scores = KINDS[kind].scores
    rotary = block.scores.rotary if scores else None
    bias = model.bias(block.query).reshape(block.heads, -1) if scores and block.query.bias else None
    sizes_by_head: list[FactorSizes | None] = []
    for group in range(block.kv_heads):
        heads = [head for head in range(block.heads) if block.kv_head(head) == group]
        lefts, rights = ([roots[head][side] for head in heads] for side in (0, 1))
        if scores:
            left, right, sides = _stack_roots(lefts), rights[0], (len(heads) * shape[0], shape[1])
        else:
            left, right, sides = lefts[0], _stack_roots(rights), (shape[0], len(heads) * shape[1])
        sizes = factor_sizes(left, right, sides, rotary, nuclear[heads[0]] if len(heads) == 1 else None)
        if bias is not None:
            whole = factor_sizes(_stack_roots([left, (bias[heads], 1.0)]), right, sides, rotary)
            sizes = None if whole is None else replace(whole, weights=sizes)
        sizes_by_head += [sizes] * len(heads)
    return sizes_by_head


def _stack_roots(roots: Sequence[Root]) -> Root:
    """Stack triangular factors one below the other, scaled by the largest of their powers of two."""
    if len(roots) == 1:
        return roots[0]
    scale = max(scale for _, scale in roots)
    return np.vstack([root * (power / scale) for root, power in roots]), scale


@dataclass(frozen=True, eq=False)
class Lengths:
    """The numbers from which the largest length of a query or key y = z R + y0 follows."""

    values: Reals  # singular values of R, padded with zeros to the size of y
    along: Reals  # squared components of y0 along the right singular vectors of R
    square: float  # upper bound of |z|^2


@dataclass(frozen=True, eq=False)
class ScorePart:
    """Sizes of one part of a head's queries and keys, such as the entries that positions rotate.

    If rotary positions or clipping change queries and keys, `lengths` describes how long they can be. All
    other sizes describe queries and keys before this change.
    """

    values: Reals  # singular values of R_Q R_K^T
    query: float  # |R_Q k0|
    key: float  # |R_K q0|
    shifts: float  # q0 . k0.
    squares: tuple[float, float]  # upper bounds of |z|^2 for queries and keys
    lengths: tuple[Lengths, Lengths] | None = None


@dataclass(frozen=True, eq=False)
class ScoreSizes:
    """Sizes of a head's queries and keys: of all entries, and of the parts whose products form a score."""

    whole: ScorePart
    parts: tuple[ScorePart, ...]
