"""One table: the law of an output coordinate at several widths, each against the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.limits.distance import distances
from attnlaw.limits.finite import output_law
from attnlaw.limits.memory import check_memory
from attnlaw.limits.mixture import Estimate, Law
from attnlaw.limits.stack import Stack, StackLaw, stack_law

# The estimates of a row, in the order in which they are shown.
QUANTITIES = ("score_variance", "output_variance", "kurtosis", "kl_to_limit", "w1_to_limit", "ks_to_limit")


@dataclass(frozen=True, eq=False)
class WidthRow:
    """One width (an integer, or infinity): moments, and distances to the limit (None for the limit itself).

    `score_variance` is Var p_ii of the last attention block; `residual` the quadrature's error of the
    distances. `path` is None for a single layer.
    """

    width: float
    law: Law
    score_variance: Estimate
    output_variance: Estimate
    kurtosis: Estimate
    kl_to_limit: Estimate | None
    w1_to_limit: Estimate | None
    ks_to_limit: Estimate | None
    residual: float | None
    path: StackLaw | None


def compare_widths(
    stack: Stack,
    widths: Sequence[float],
    draws: int,
    seed: int,
    token: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[WidthRow, ...]:
    """The law of one output coordinate of one token at each width, against the limit of infinite width.

    All widths use the same seed and so share their normals, which makes distances to the limit precise.
    The stack's own width is not used. Fails for sizes that would take more than 4 GiB of memory.

    >>> from attnlaw.limits import Layer, RandomInputs
    >>> stack = Stack(Layer(RandomInputs(4), heads=2))
    >>> rows = compare_widths(stack, (16, math.inf), draws=2000, seed=0)
    >>> 0.01 < rows[0].kl_to_limit.value < 0.03, rows[1].kl_to_limit is None
    (True, True)
    """
    report = progress or (lambda done, total: None)
    stacks = {width: replace(stack, layer=stack.layer.at_width(width)) for width in widths}
    widest = replace(stack, layer=stack.layer.at_width(math.inf))
    for one in (widest, *stacks.values()):
        check_memory(one, draws)
    limit, limit_path = _law(widest, draws, seed, token)
    rows: list[WidthRow] = []
    for width in widths:
        report(len(rows), len(widths))
        if width == math.inf:
            rows.append(_row(width, limit, limit_path, None))
        else:
            law, path = _law(stacks[width], draws, seed, token)
            rows.append(_row(width, law, path, limit))
    report(len(rows), len(widths))
    return tuple(rows)


def _law(stack: Stack, draws: int, seed: int, token: int) -> tuple[Law, StackLaw | None]:
    if stack.is_layer:
        return output_law(stack.layer, draws, seed, token, stack.normalise), None
    found = stack_law(stack, draws, seed, token)
    return found.law, found


def _row(width: float, law: Law, path: StackLaw | None, limit: Law | None) -> WidthRow:
    found = None if limit is None else distances(law, limit)
    return WidthRow(
        width=width,
        law=law,
        score_variance=law.score_variance(),
        output_variance=law.variance(),
        kurtosis=law.kurtosis(),
        kl_to_limit=found.kl if found else None,
        w1_to_limit=found.w1 if found else None,
        ks_to_limit=found.ks if found else None,
        residual=found.residual if found else None,
        path=path,
    )


def density_rows(laws: Mapping[float, Law], points: int = 161) -> list[dict[str, float | None]]:
    """Densities within four and a half deviations of the mean, as rows `width`, `y`, `density`, `ratio`.

    `ratio` is to the density at infinite width, None where that is not among the laws.

    >>> from attnlaw.limits import gaussian_law
    >>> rows = density_rows({16: gaussian_law(1.0), math.inf: gaussian_law(1.0)}, points=3)
    >>> [round(row["density"], 4) for row in rows[:3]], rows[0]["ratio"]
    ([0.0, 0.3989, 0.0], 1.0)
    """
    ends = [
        law.mean().value + side * math.sqrt(law.variance().value)
        for law in laws.values()
        for side in (-4.5, 4.5)
    ]
    y = np.linspace(min(ends), max(ends), points)
    limit = laws[math.inf].density(y) if math.inf in laws else None
    rows: list[dict[str, float | None]] = []
    for width, law in laws.items():
        density = law.density(y)
        ratio = [None] * points if limit is None else (density / limit).tolist()
        columns = zip(y.tolist(), density.tolist(), ratio, strict=True)
        rows += [{"width": float(width), "y": a, "density": b, "ratio": c} for a, b, c in columns]
    return rows
