"""One table: the law of an output coordinate at several widths, each against the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attnlaw.core.estimate import BriefRepr, Estimate
from attnlaw.core.progress import Progress, no_progress
from attnlaw.theory.limit.depth import Depth, StackLaw, stack_law
from attnlaw.theory.limit.distance import distances
from attnlaw.theory.limit.finite import output_law
from attnlaw.theory.limit.memory import check_memory
from attnlaw.theory.limit.mixture import OutputLaw, gaussian_law


@dataclass(frozen=True, eq=False)
class LawAtWidth:
    """The law of one output coordinate, and the path of the tokens (None for a single layer)."""

    law: OutputLaw
    path: StackLaw | None


@dataclass(frozen=True, eq=False, repr=False)
class WidthRow(BriefRepr):
    """One width (an integer, or infinity): moments, and distances to the limit (None for the limit itself).

    `score_variance` is Var p_ii of the last attention block; `residual_of_distances` the quadrature's error.
    `path` is None for a single layer. Further distances are there where they were asked for. `laws_by_width`
    holds the laws of all widths of the table, itself included: their densities are read at the same points.
    """

    width: float
    law: OutputLaw
    score_variance: Estimate
    output_variance: Estimate
    kurtosis: Estimate
    kl_to_limit: Estimate | None
    w1_to_limit: Estimate | None
    ks_to_limit: Estimate | None
    residual_of_distances: float | None
    path: StackLaw | None
    kl_to_other_limit: Estimate | None = None
    kl_to_gaussian: Estimate | None = None
    kernel_kl_to_limit: float | None = None
    laws_by_width: Mapping[float, OutputLaw] = field(default_factory=dict)

    @cached_property
    def path_squared_length(self) -> list[Estimate] | None:
        """Sigma_ii of the token that is read, by depth."""
        return None if self.path is None else [point.squared_length for point in self.path.path()]

    @cached_property
    def path_cosine(self) -> list[Estimate | None] | None:
        """The mean cosine between tokens, by depth; None where there is one token."""
        return None if self.path is None else [point.cosine for point in self.path.path()]


def compare_widths(
    stack: Depth,
    widths: Sequence[float],
    draws: int,
    seed: int,
    token: int = 0,
    progress: Progress = no_progress,
) -> list[WidthRow]:
    """The law of one output coordinate of one token at each width, against the limit.

    All widths use the same seed and so share their normals, which makes distances to the limit precise.
    The stack's own width is not used. Fails for sizes that would take more than 4 GiB of memory.

    >>> from attnlaw.theory.limit import AttentionLayer, RandomInputs
    >>> stack = Depth(AttentionLayer(RandomInputs(4), heads=2))
    >>> rows = compare_widths(stack, (16, math.inf), draws=2000, seed=0)
    >>> 0.01 < rows[0].kl_to_limit.value < 0.03, rows[1].kl_to_limit is None
    (True, True)
    """
    for width in (math.inf, *widths):
        check_memory(at_width(stack, width), draws)
    limit = law_at(stack, math.inf, draws, seed, token)
    rows: list[WidthRow] = []
    for width in widths:
        progress(len(rows), len(widths))
        width_law = limit if width == math.inf else law_at(stack, width, draws, seed, token)
        rows.append(width_row(width, width_law, limit))
    progress(len(rows), len(widths))
    laws = {row.width: row.law for row in rows}
    return [replace(row, laws_by_width=laws) for row in rows]


def at_width(stack: Depth, width: float) -> Depth:
    """The same layers at another width."""
    return replace(stack, layer=stack.layer.at_width(width))


def law_at(stack: Depth, width: float, draws: int, seed: int, token: int) -> LawAtWidth:
    """The law at a width; one layer needs one token's own row of scores only."""
    stack = at_width(stack, width)
    if stack.is_layer:
        return LawAtWidth(output_law(stack.layer, draws, seed, token, stack.normalise), None)
    path = stack_law(stack, draws, seed, token)
    return LawAtWidth(path.law, path)


def width_row(width: float, width_law: LawAtWidth, limit: LawAtWidth) -> WidthRow:
    """The moments of a law and, where it is not the limit's, its distances to that."""
    law, apart = width_law.law, None if width_law is limit else distances(width_law.law, limit.law)
    return WidthRow(
        width=width,
        law=law,
        score_variance=law.score_variance(),
        output_variance=law.variance(),
        kurtosis=law.kurtosis(),
        kl_to_limit=apart.kl if apart else None,
        w1_to_limit=apart.w1 if apart else None,
        ks_to_limit=apart.ks if apart else None,
        residual_of_distances=apart.residual if apart else None,
        path=width_law.path,
    )


def density_rows(laws: Mapping[float, OutputLaw], points: int = 161) -> list[dict[str, float | None]]:
    """Densities within four and a half deviations of the mean, as rows `width`, `y`, `density`, `ratio`.

    `ratio` is to the density at infinite width, None where that is not among the laws.

    >>> from attnlaw.theory.limit import gaussian_law
    >>> rows = density_rows({16: gaussian_law(1.0), math.inf: gaussian_law(1.0)}, points=3)
    >>> [round(row["density"], 4) for row in rows[:3]], rows[0]["ratio"]
    ([0.0, 0.3989, 0.0], 1.0)
    """
    return [row for width in laws for row in density_of(width, laws, points)]


def density_of(
    width: float, laws: Mapping[float, OutputLaw], points: int = 161
) -> list[dict[str, float | None]]:
    """The rows of one width, at points that all the laws share."""
    ends = [
        law.mean().value + side * math.sqrt(law.variance().value)
        for law in laws.values()
        for side in (-4.5, 4.5)
    ]
    y = np.linspace(min(ends), max(ends), points)
    density = laws[width].density(y)
    ratio = (density / laws[math.inf].density(y)).tolist() if math.inf in laws else [None] * points
    same = gaussian_law(laws[width].variance().value, laws[width].mean().value).density(y)
    columns = zip(y.tolist(), density.tolist(), same.tolist(), ratio, strict=True)
    names = ("y", "density", "gaussian_density", "ratio")
    return [{"width": float(width), **dict(zip(names, values, strict=True))} for values in columns]
