"""Formulas for the limit of infinite width, and a comparison of finite widths with it.

| here    | means                                                                                    |
|---------|------------------------------------------------------------------------------------------|
| n, H    | width, heads                                                                             |
| Sigma   | limit of X X^T / n                                                                       |
| p       | scores; in the limit Gaussian, Cov(p_ij, p_kl) = Sigma_ik Sigma_jl, heads independent    |
| A       | attention weights, f(p)                                                                  |
| C       | draws in a chunk: about 2^15 / (H s) for a layer, 2^15 / (H s^2) for a stack, at least 1 |

Given the scores, output coordinates are independent N(0, (1/H) sum_a A^a Sigma A^aT), a Gaussian scale
mixture (arXiv 2506.00846). As H grows, the mixture tends to the Gaussian with covariance E[A Sigma A^T].

The memory of a law is known before anything is drawn: the factors in `peak_bytes` count how many chunks of
scores, masks and roots exist at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import BriefRepr, Estimate
from attnlaw.core.progress import Progress, no_progress
from attnlaw.theory.limit.depth import Depth, StackLaw, stack_law
from attnlaw.theory.limit.distance import distances, kernel_kl
from attnlaw.theory.limit.heads import can_draw_row
from attnlaw.theory.limit.inputs import MOST_MEMORY, ROOT_ARRAYS
from attnlaw.theory.limit.mixture import OutputLaw, gaussian_law, mean_of
from attnlaw.theory.limit.sampler import chunk_size, output_law

REFERENCES = {
    "limit": "the limit",
    "other_limit": "the limit of the other scaling",
    "gaussian": "the Gaussian",
}


def peak_bytes(stack: Depth, draws: int) -> int:
    """Return an upper bound of the memory in bytes that `stack_law` needs for a stack."""
    layer, s = stack.layer, stack.layer.tokens
    if stack.is_layer and can_draw_row(layer, stack.normalise):
        chunk = chunk_size(draws, layer.heads * s)
        return s * s + 8 * chunk * layer.heads * (6 * s + 5 * layer.heads)
    if stack.is_layer:
        chunk = chunk_size(draws, layer.heads * s)
        numbers = ROOT_ARRAYS * s * s + 6 * chunk * s * layer.heads
    else:
        chunk = chunk_size(draws, layer.heads * s * s)
        numbers = 8 * chunk * s * s * (layer.heads + stack.depth + 1)
    if layer.width != math.inf:
        numbers += 4 * layer.inputs.root_numbers(int(layer.width), chunk)
        if stack.mlp is not None:
            numbers += 3 * chunk * s * int(layer.width)
    return 8 * numbers


@dataclass(frozen=True, eq=False, repr=False)
class WidthRow(BriefRepr):
    """The distribution of an output coordinate at one width, its moments, and its distances to the limit.

    Args:
        kl_to_limit: the KL divergence to the infinite-width limit. This and the next three fields are None
            for the limit itself.
        kl_to_other_limit: the KL divergence to the limit for another scaling. This and the next two fields
            are None unless they were requested.
        laws_by_width: the distributions at all widths of the table, which share the points for densities.
    """

    width: float
    law: OutputLaw
    score_variance: Estimate
    output_variance: Estimate
    kurtosis: Estimate
    kl_to_limit: Estimate | None = None
    w1_to_limit: Estimate | None = None
    ks_to_limit: Estimate | None = None
    residual_of_distances: float | None = None
    path: StackLaw | None = None  # the lengths and cosines after each layer; None for a single layer
    kl_to_other_limit: Estimate | None = None
    kl_to_gaussian: Estimate | None = None
    kernel_kl_to_limit: float | None = None
    laws_by_width: Mapping[float, OutputLaw] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # why there is no KL to each of these laws

    @property
    def remark(self) -> str | None:
        """The reason why a KL divergence is missing, or None if none is missing."""
        by_reason: dict[str, list[str]] = {}
        for to, why in self.missing.items():
            by_reason.setdefault(why, []).append(f"to {to}")
        lines = [f"there is no KL divergence {' or '.join(names)}: {why}" for why, names in by_reason.items()]
        return "; ".join(lines) or None

    @cached_property
    def path_squared_length(self) -> list[Estimate] | None:
        """The squared length of the chosen token divided by the width n, after each layer."""
        return None if self.path is None else [mean_of(column) for column in self.path.squared_lengths.T]

    @cached_property
    def path_cosine(self) -> list[Estimate | None] | None:
        """The mean cosine between tokens after each layer, or None values if there is only one token."""
        if self.path is None:
            return None
        cosines, lengths = self.path.cosines, self.path.squared_lengths
        return [None] * lengths.shape[1] if cosines is None else [mean_of(column) for column in cosines.T]


def compare_widths(
    stack: Depth,
    widths: Sequence[float],
    draws: int,
    seed: int,
    token: int = 0,
    progress: Progress = no_progress,
    *,
    other_scaling: str | None = None,
    gaussian: bool = False,
    kernel: bool = False,
    errors: dict[float, InputError] | None = None,
) -> list[WidthRow]:
    """Compute the distribution of an output coordinate at each width, and compare it with the limit.

    All widths use the same seed and share random numbers. So their distances to the limit have small errors.

    Args:
        other_scaling: the name of another scaling, from `SCALINGS`. If given, the KL divergence to its limit
            is computed too.
        errors: a dictionary to which errors are added by width. A width with an error has no row. If `errors`
            is None, the first error is raised. A width that needs more than 4 GiB of memory fails before any
            draw.

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> from attnlaw.theory.limit.layer import AttentionLayer
    >>> stack = Depth(AttentionLayer(RandomInputs(4), heads=2))
    >>> rows = compare_widths(stack, (16, math.inf), draws=2000, seed=0)
    >>> 0.01 < rows[0].kl_to_limit.value < 0.03, rows[1].kl_to_limit is None
    (True, True)
    """
    stacks = {math.inf: at_width(stack, math.inf, draws)}
    for width in widths:
        if width not in stacks:
            with _collect(errors, width):
                stacks[width] = at_width(stack, width, draws)
    limit, limit_path = law_of(stacks[math.inf], draws, seed, token)
    other = None
    if other_scaling is not None:
        layer = stacks[math.inf].layer
        rescaled = replace(layer, scores=replace(layer.scores, scaling=other_scaling))
        other, _ = law_of(replace(stack, layer=rescaled), draws, seed, token)
    rows: list[WidthRow] = []
    for done, width in enumerate(widths):
        progress(done, len(widths))
        if width in stacks:
            with _collect(errors, width):
                law, path = limit, limit_path
                if width != math.inf:
                    law, path = law_of(stacks[width], draws, seed, token)
                references = {
                    "limit": None if law is limit else limit,
                    "other_limit": other,
                    # KL is least at the law's own moments, so their errors enter squared.
                    "gaussian": gaussian_law(law.variance().value, law.mean().value) if gaussian else None,
                }
                compared = {
                    name: distances(law, reference)
                    for name, reference in references.items()
                    if reference is not None
                }
                numbers: dict[str, Any] = {f"kl_to_{name}": seen.kl for name, seen in compared.items()}
                if law is not limit:
                    near = compared["limit"]
                    numbers |= {"w1_to_limit": near.w1, "ks_to_limit": near.ks}
                    numbers["residual_of_distances"] = near.residual
                    if kernel:
                        # The laws share the normals of their scores, but not those of their coordinates.
                        numbers["kernel_kl_to_limit"] = kernel_kl(law.draw(seed), limit.draw(seed + 1))
                missing = {
                    REFERENCES[name]: seen.why_no_kl for name, seen in compared.items() if seen.why_no_kl
                }
                moments = law.score_variance(), law.variance(), law.kurtosis()
                rows.append(WidthRow(width, law, *moments, path=path, missing=missing, **numbers))
    progress(len(widths), len(widths))
    laws = {row.width: row.law for row in rows}
    return [replace(row, laws_by_width=laws) for row in rows]


@contextmanager
def _collect(errors: dict[float, InputError] | None, width: float) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if errors is None:
            raise
        errors[width] = error


def at_width(stack: Depth, width: float, draws: int) -> Depth:
    """Return the same stack of layers at another width."""
    layer = stack.layer.at_width(width)
    stack = replace(stack, layer=layer)
    size = peak_bytes(stack, draws)
    if size > MOST_MEMORY:
        at = "infinite width" if width == math.inf else f"width {int(width)}"
        raise InputError(
            f"{layer.tokens} tokens with {layer.heads} heads, {stack.depth} layers and {at} need about "
            f"{-(-size // 2**30)} GiB of memory, more than {MOST_MEMORY // 2**30}: choose fewer tokens, "
            "or make one of the other sizes smaller"
        )
    return stack


def law_of(stack: Depth, draws: int, seed: int, token: int) -> tuple[OutputLaw, StackLaw | None]:
    if stack.is_layer:
        return output_law(stack.layer, draws, seed, token, stack.normalise), None
    path = stack_law(stack, draws, seed, token)
    return path.law, path


def density_rows(laws: Mapping[float, OutputLaw], points: int = 161) -> list[dict[str, float | None]]:
    """Return rows with y, density, Gaussian density and ratio to the limit, for several widths."""
    return [row for width in laws for row in density_of(width, laws, points)]


def density_of(
    width: float, laws: Mapping[float, OutputLaw], points: int = 161
) -> list[dict[str, float | None]]:
    """Return the rows of `density_rows` for one width, at the points y."""
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
