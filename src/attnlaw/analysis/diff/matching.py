"""Heads and neurons that stand in another order, and rows that were scaled.

Heads are assigned by the mean cosine of their QK and VO maps (Hungarian method; under grouped queries groups
to groups, and heads within them). A layer's assignment holds only if every head that moves has a cosine above
0.5 there and 0.1 more than at its own place: fresh weights would be reordered at cosines of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals

FactorsByHead = Sequence[tuple[Reals, Reals]]
LEAST, GAIN = 0.5, 0.1
# A head above this at its own place would have to be at 0.9 elsewhere: nearly the double of that head.
SETTLED = 0.8


def match_heads(
    base: Sequence[FactorsByHead], model: Sequence[FactorsByHead], key_value_heads: int = 0
) -> list[int] | None:
    """The model's head that each of the base's heads became; None where they kept their order.

    `base` and `model` have the factors of every head for each kind of map (QK, VO), `groups` is the number
    of key/value heads where that is not the number of heads.
    """
    kinds = list(zip(base, model, strict=True))
    if len(base[0]) == len(model[0]) and heads_in_place(same_head_cosines(*factors) for factors in kinds):
        return None
    cosines = np.mean([head_cosines(*factors) for factors in kinds], axis=0)
    return _accept_moves(cosines, _assign_heads(cosines, key_value_heads))


def head_cosines(base: FactorsByHead, model: FactorsByHead) -> Reals:
    """Cosine of every head of the base with every head of the model, of one kind of map."""
    norms0, norms1 = (np.array([_norm(*head) for head in heads]) for heads in (base, model))
    lefts0, rights0, lefts1, rights1 = (
        np.hstack([head[side] if side == 0 else head[side].T for head in heads])
        for heads in (base, model)
        for side in (0, 1)
    )
    crossed = (lefts0.T @ lefts1) * (rights0.T @ rights1)
    d0, d1 = base[0][0].shape[1], model[0][0].shape[1]
    inner = crossed.reshape(len(base), d0, len(model), d1).sum(axis=(1, 3))
    return np.asarray(inner / np.maximum(np.outer(norms0, norms1), np.finfo(float).tiny))


def match_neurons(base: Reals, model: Reals) -> NDArray[np.intp] | None:
    """The model's column that each column of the base became; None where they kept their order.

    Columns whose cosine at their own place is below 0.8 are sought by the largest cosine, all of them where
    that is so of most; it holds only if it is a permutation and every one that moves gains as heads must.
    """
    norms = [np.sqrt(np.maximum(np.einsum("ij,ij->j", part, part), 1e-300)) for part in (base, model)]
    diagonal = np.einsum("ij,ij->j", base, model) / norms[0] / norms[1]
    lost = np.flatnonzero(diagonal < SETTLED)
    order = np.arange(base.shape[1])
    if lost.size < 2:
        return None
    if lost.size > order.size / 2:
        lost = order.copy()
    cosines = base[:, lost].T @ model / norms[0][lost, None] / norms[1]
    order[lost] = cosines.argmax(axis=1)
    gained = cosines[np.arange(lost.size), order[lost]]
    moved = order[lost] != lost
    enough = (gained > LEAST) & (gained >= cosines[np.arange(lost.size), lost] + GAIN)
    if np.unique(order).size < order.size or not moved.any() or not enough[moved].all():
        return None
    return order


def is_folded(base: Reals, model: Reals, rounding: float) -> bool:
    """Whether the model is the base with its rows multiplied by numbers that differ: a gain was folded in.

    `rounding` is the Frobenius norm of what rounding leaves in the model.
    """
    squares = np.sum(base**2, axis=1)
    ratios = np.sum(base * model, axis=1) / np.maximum(squares, 1e-300)
    left = float(np.linalg.norm(model - ratios[:, None] * base))
    return bool(left <= 4 * rounding and np.ptp(ratios[squares > 0]) > 1e-3 * np.abs(ratios).max())


def heads_in_place(cosines: Iterable[Reals]) -> bool:
    """Whether every head is so near to itself, in the mean over kinds of map, that none can have moved."""
    return bool((np.mean(list(cosines), axis=0) > SETTLED).all())


def same_head_cosines(base: FactorsByHead, model: FactorsByHead) -> Reals:
    """Cosines of heads of the same number."""
    cosines = []
    for (left0, right0), (left1, right1) in zip(base, model, strict=False):
        inner = float(np.sum((left0.T @ left1) * (right0 @ right1.T)))
        norms = _norm(left0, right0) * _norm(left1, right1)
        cosines.append(inner / norms if norms else 1.0)
    return np.array(cosines)


def _norm(left: Reals, right: Reals) -> float:
    return float(np.sqrt(max(np.sum((left.T @ left) * (right @ right.T)), 0.0)))


def _assign_heads(cosines: Reals, groups: int) -> NDArray[np.intp]:
    """The model's head for each of the base's, so that the sum of cosines is largest."""
    heads, others = cosines.shape
    if not groups or heads != others:
        return _best_assignment(cosines)
    size = heads // groups
    blocks = cosines.reshape(groups, size, groups, size).transpose(0, 2, 1, 3)
    within = np.array([[_best_assignment(block) for block in row] for row in blocks])
    totals = np.array(
        [
            [
                float(blocks[group, other][np.arange(size), within[group, other]].sum())
                for other in range(groups)
            ]
            for group in range(groups)
        ]
    )
    chosen = _best_assignment(totals)
    return np.concatenate([chosen[group] * size + within[group, chosen[group]] for group in range(groups)])


def _best_assignment(cosines: Reals) -> NDArray[np.intp]:
    """The column of every row; -1 for rows that got none."""
    rows, columns = scipy.optimize.linear_sum_assignment(-cosines)
    assignment = np.full(cosines.shape[0], -1, dtype=np.intp)
    assignment[rows] = columns
    return assignment


def _accept_moves(cosines: Reals, chosen: NDArray[np.intp]) -> list[int] | None:
    """The assignment; None where it moves nothing, or moves something without need."""
    moved = False
    for head, there in enumerate(chosen):
        if there == head or there < 0:
            continue
        here = cosines[head, head] if head < cosines.shape[1] else -1.0
        if cosines[head, there] <= LEAST or cosines[head, there] < here + GAIN:
            return None
        moved = True
    return chosen.tolist() if moved else None
