"""`limit` as a task of a study: the law of a layer's output at one width, and its distances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attnlaw.study.task import Result

if TYPE_CHECKING:
    from attnlaw.base.estimate import Estimate
    from attnlaw.limits.stack import Depth

QUANTITIES = ("score_variance", "output_variance", "kurtosis", "kl_to_limit", "w1_to_limit", "ks_to_limit")


def limit(
    *,
    tokens: int = 4,
    heads: int = 2,
    width: float = math.inf,
    draws: int = 50_000,
    activation: str = "identity",
    mask: str = "none",
    depth: int = 1,
    residual: bool = False,
    normalise: bool = False,
    token: int = 1,
    head_width: int | None = None,
    scaling: str = "1/sqrt(n)",
    other_scaling: str | None = None,
    gaussian: bool = False,
    kernel: bool = False,
    seed: int,
) -> Result:
    """`attnlaw limit --width N`: the law at one width against the limit; errors are standard errors.

    Further distances where they are asked for: `kl_to_other_limit`, to the limit of `other_scaling`;
    `kl_to_gaussian`, to the Gaussian of the same mean and variance; `kernel_kl_to_limit`, the paper's recipe
    (arXiv 2506.00846), from one draw of the coordinate for each conditional variance.
    """
    import polars as pl

    from attnlaw.limits import compare_widths, density_rows, distances, gaussian_law, kernel_kl

    given = (tokens, heads, width, activation, mask, depth, residual, normalise, head_width)
    widths = [width] if width == math.inf else [width, math.inf]
    rows = compare_widths(_stack(*given, scaling), widths, draws, seed, token - 1)
    found, limit = rows[0], rows[-1]
    values: dict[str, Any] = {}
    for name in QUANTITIES:
        values |= _with_error(name, getattr(found, name))
    if other_scaling is not None:
        (other,) = compare_widths(_stack(*given, other_scaling), [math.inf], draws, seed, token - 1)
        values |= _with_error("kl_to_other_limit", distances(found.law, other.law).kl)
    if gaussian:
        # At the law's own moments KL is least: their errors enter squared, far below KL's own.
        same = gaussian_law(found.law.variance().value, found.law.mean().value)
        values |= _with_error("kl_to_gaussian", distances(found.law, same).kl)
    if kernel:
        # The laws share their scores' normals, their coordinates have normals of their own.
        finite = width != math.inf
        values["kernel_kl_to_limit"] = (
            kernel_kl(found.law.draw(seed), limit.law.draw(seed + 1)) if finite else None
        )
    if found.path is not None:
        points = found.path.path()
        for name in ("squared_length", "cosine"):
            estimates = [_with_error(name, getattr(point, name)) for point in points]
            values |= {f"path_{key}": [one[key] for one in estimates] for key in estimates[0]}
    density = pl.DataFrame(density_rows({width: found.law})).select("y", "density")
    return Result(values | {"residual_of_distances": found.residual_of_distances}, {"densities": density})


def check_limit(
    *,
    draws: int,
    token: int,
    scaling: str,
    other_scaling: str | None,
    gaussian: bool,
    kernel: bool,
    **arguments: Any,
) -> None:
    """An `InputError` for a layer, a number of draws or a token that cannot be, and for too much memory.

    Infinite width is the limit, whose heads are infinitely wide: a head width there would be ignored.
    """
    from attnlaw.base.errors import InputError
    from attnlaw.limits.memory import check_memory
    from attnlaw.limits.sizes import BATCHES, MOST_DRAWS

    if not BATCHES <= draws <= MOST_DRAWS:
        raise InputError(
            f"draws: found {draws}, expected at least {BATCHES}, for a standard error, up to {MOST_DRAWS}"
        )
    stack = _stack(**arguments, scaling=scaling)
    if stack.layer.width == math.inf and stack.layer.head_width is not None:
        raise InputError(
            f"head_width: found {stack.layer.head_width} at width inf, the limit, whose heads are infinitely "
            "wide; leave head_width out there, or choose finite widths: kl_to_limit compares them with it"
        )
    if other_scaling is not None:
        _stack(**arguments, scaling=other_scaling)
    if not 1 <= token <= stack.layer.tokens:
        raise InputError(f"token: found {token}, expected one of the {stack.layer.tokens} tokens, from 1")
    check_memory(stack, draws)


def _stack(
    tokens: int,
    heads: int,
    width: float,
    activation: str,
    mask: str,
    depth: int,
    residual: bool,
    normalise: bool,
    head_width: int | None,
    scaling: str,
) -> Depth:
    from attnlaw.limits import AttentionLayer, RandomInputs, Scores
    from attnlaw.limits.stack import Depth

    inputs = RandomInputs(tokens, activation)
    layer = AttentionLayer(inputs, heads, width, head_width, Scores(mask=mask, scaling=scaling))
    return Depth(layer, depth, residual, None, normalise)


def _with_error(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_error": None}
    return {name: estimate.value, f"{name}_error": estimate.error}
