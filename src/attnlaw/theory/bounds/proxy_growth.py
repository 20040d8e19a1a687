"""Exponents with which proxies grow with depth and width, fitted over many models by least squares.

    log proxy = constant + a log depth + b log width + residual

The standard errors of ordinary least squares contain the spread between seeds and, if the growth is not a
power law, the misfit. `seed_spread` contains only the spread between models of equal depth and width. So if
the residual is far above `seed_spread`, the exponents only summarise the growth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError


@dataclass(frozen=True)
class Growth:
    """The fitted exponents of proxy ~ depth^a width^b, with standard errors.

    A value is None if there are too few models to determine it. Errors and the residual need four models, and
    the seed spread needs two models of equal depth and width.
    """

    depth: float  # exponent a
    depth_error: float | None
    width: float  # exponent b
    width_error: float | None
    residual: float | None  # standard deviation of log10 proxy around the fit
    seed_spread: float | None  # standard deviation of log10 proxy between models of equal depth and width


def growth(depth: ArrayLike, width: ArrayLike, log10_proxy: ArrayLike) -> Growth:
    """Fit the exponents of depth and width to one proxy of many models.

    Raises:
        InputError: the models do not differ in both depth and width.

    >>> fit = growth([2, 4, 8, 2, 4, 8], [64, 64, 64, 128, 128, 128], np.log10([1, 2, 4, 8, 16, 32]))
    >>> round(fit.depth, 12), round(fit.width, 12)
    (1.0, 3.0)
    """
    L, N, y = (np.asarray(values, dtype=np.float64) for values in (depth, width, log10_proxy))
    design = np.column_stack([np.ones_like(y), np.log10(L), np.log10(N)])
    if y.size < 3 or np.linalg.matrix_rank(design) < 3:
        raise InputError(
            f"{y.size} models of {np.unique(L).size} depths and {np.unique(N).size} widths do not "
            "determine growth in both; add models that differ in depth and in width"
        )
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    freedom = y.size - 3
    errors: tuple[float | None, float | None] = (None, None)
    residual = None
    if freedom > 0:
        residual = float(np.sqrt(np.sum((y - design @ coefficients) ** 2) / freedom))
        spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
        errors = (residual * float(spread[1]), residual * float(spread[2]))
    return Growth(
        float(coefficients[1]), errors[0], float(coefficients[2]), errors[1], residual, _seed_spread(L, N, y)
    )


def _seed_spread(depth: Reals, width: Reals, y: Reals) -> float | None:
    """Return the pooled standard deviation between models of equal depth and width, if there are any."""
    cells, cell = np.unique(np.column_stack([depth, width]), axis=0, return_inverse=True)
    cell = cell.ravel()
    freedom = y.size - len(cells)
    if freedom == 0:
        return None
    means = np.bincount(cell, y) / np.bincount(cell)
    return float(np.sqrt(np.sum((y - means[cell]) ** 2) / freedom))
