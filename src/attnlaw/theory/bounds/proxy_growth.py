"""Exponents with which proxies grow with depth and width, fitted over many models by least squares.

    log proxy = constant + a log depth + b log width + residual

The standard errors of ordinary least squares contain the spread between seeds and, if the growth is not a
power law, the misfit. `seed_spread` contains only the spread between models of equal depth and width. So if
the residual is far above `seed_spread`, the exponents only summarise the growth.

Norm-based proxies contain a product over layers. They grow exponentially with depth, and their exponent of
depth is an average over the range of depths. `exponential` says whether a line in depth fits better than a
line in log depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

LEAST_MODELS = 3
LEAST_DEPTHS = 3  # two depths cannot distinguish an exponential from a power


@dataclass(frozen=True)
class Growth:
    """The exponents a and b of a fit proxy ~ depth^a width^b to many models, with standard errors.

    A value is None if the models do not determine it. An exponent needs at least two depths or widths, errors
    and the residual need more models than parameters, and the seed spread needs two models of equal depth and
    width. `exponential` needs three depths.
    """

    depth: float | None  # exponent a
    depth_error: float | None
    width: float | None  # exponent b
    width_error: float | None
    residual: float | None  # standard deviation of log10 proxy around the fit
    seed_spread: float | None  # standard deviation of log10 proxy between models of equal depth and width
    exponential: bool | None  # whether proxy ~ exp(c depth) width^b fits better


def growth(depth: ArrayLike, width: ArrayLike, log10_proxy: ArrayLike) -> Growth:
    """Fit the exponents with which one proxy of many models grows with depth and width."""
    L, N, y = (np.asarray(values, dtype=np.float64) for values in (depth, width, log10_proxy))
    if reason := why_no_growth(L, N):
        raise InputError(reason)
    axes = {name: values for name, values in (("depth", L), ("width", N)) if np.unique(values).size > 1}
    coefficients, errors, residual = _least_squares([np.log10(values) for values in axes.values()], y)
    exponents = dict(zip(axes, coefficients[1:], strict=True))
    by_name = dict(zip(axes, errors[1:], strict=True))
    exponential = None
    if residual is not None and np.unique(L).size >= LEAST_DEPTHS:
        others = [np.log10(N)] if "width" in axes else []
        bent = _least_squares([L, *others], y)[2]
        exponential = bent is not None and bent < residual
    return Growth(
        *(exponents.get("depth"), by_name.get("depth"), exponents.get("width"), by_name.get("width")),
        residual=residual,
        seed_spread=_seed_spread(L, N, y),
        exponential=exponential,
    )


def why_no_growth(depth: ArrayLike, width: ArrayLike) -> str | None:
    """Return the reason why models of these sizes do not determine the growth of a proxy, or None."""
    L, N = (np.asarray(values, dtype=np.float64) for values in (depth, width))
    if L.size < LEAST_MODELS:
        return f"growth needs three or more models of different depths or widths; found {L.size}"
    varied = [np.log10(values) for values in (L, N) if np.unique(values).size > 1]
    if not varied:
        return f"all {L.size} models have the same depth and width, so growth cannot be fitted"
    if np.linalg.matrix_rank(np.column_stack([np.ones_like(L), *varied])) <= len(varied):
        return (
            f"depth and width grow together in these {L.size} models, so their exponents cannot be "
            "separated; add a model that differs in one of them alone"
        )
    return None


def _least_squares(variables: list[Reals], y: Reals) -> tuple[list[float], list[float | None], float | None]:
    """Return coefficients (the constant first), their standard errors, and the residual deviation."""
    design = np.column_stack([np.ones_like(y), *variables])
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    freedom = y.size - design.shape[1]
    if freedom <= 0:
        return coefficients.tolist(), [None] * coefficients.size, None
    residual = float(np.sqrt(np.sum((y - design @ coefficients) ** 2) / freedom))
    spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    return coefficients.tolist(), (residual * spread).tolist(), residual


def _seed_spread(depth: Reals, width: Reals, y: Reals) -> float | None:
    """Return the pooled standard deviation between models of equal depth and width, if there are any."""
    cells, cell = np.unique(np.column_stack([depth, width]), axis=0, return_inverse=True)
    cell = cell.ravel()
    freedom = y.size - len(cells)
    if freedom == 0:
        return None
    means = np.bincount(cell, y) / np.bincount(cell)
    return float(np.sqrt(np.sum((y - means[cell]) ** 2) / freedom))
