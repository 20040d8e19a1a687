"""Fit one law to one spectrum. To add a law, add a line to `FITTERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from attnlaw.analysis.fit import tail as tails
from attnlaw.analysis.fit.heavy_tailed import fit_kappa, kappas_of_null
from attnlaw.analysis.fit.learned import fit_learned
from attnlaw.analysis.fit.null import (
    CURVE_POINTS,
    eigenvalues,
    is_head,
    null_of_spectrum,
    obstacle,
    positive_values,
    shape_ratio,
    without_round_off,
)
from attnlaw.analysis.fit.tail import goodness_of_fit, ks_distance, lognormal_tail
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.settings import check_value
from attnlaw.spectra.spectrum import Spectrum

Curve = tuple[Reals, Reals]


@dataclass(frozen=True, eq=False)
class Fit:
    """A law that was fitted to a spectrum, and how well it fits.

    A number is None if it does not apply to the law, or if the data do not determine it. The log-likelihood
    is None if an eigenvalue is outside the law's support.

    Args:
        size: number of eigenvalues that the law describes.
        errors: standard errors of the parameters.
        statistics: further numbers from the tests of the law.
        ks: Kolmogorov-Smirnov distance between the law and the eigenvalues.
        log_likelihood: mean log-likelihood per eigenvalue.
        p_value: p-value of the law's test (random: finite-size null; power law: bootstrap; lognormal:
            comparison with the power law).
        curve: points x and the density there, over singular values. The mass of the curve is one over the
            nonzero values. The mass of a tail is the share of the values that the tail covers.
        remark: a text that names what is missing and why.
    """

    law: str
    size: int
    parameters: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    statistics: dict[str, float | int | bool | None] = field(default_factory=dict)
    ks: float | None = None
    log_likelihood: float | None = None
    p_value: float | None = None
    curve: Curve | None = None
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


def fit_law(spectrum: Spectrum, law: str, seed: int = 0) -> Fit:
    """Fit one law to a measured spectrum.

    Args:
        spectrum: all singular values of a matrix. If they were measured from thin factors (route "qr" or
            "cholesky"), the matrix belongs to a head, and the null is a product of two factors.
        law: a name in `FITTERS`.

    >>> rng = np.random.default_rng(0)
    >>> values = np.linalg.svd(rng.standard_normal((40, 60)), compute_uv=False)
    >>> noise = fit_law(Spectrum(values, (40, 60), 1.0, 1.0, "svd"), "random")
    >>> noise.p_value > 0.01, noise.statistics["outliers"]
    (True, 0)
    """
    check_value("law", law, str, choices=FITTERS)
    check_value("seed", seed, int, minimum=0)
    if reason := obstacle(spectrum):
        raise InputError(f"fit: {reason}")
    return FITTERS[law](spectrum, seed)


def mean_log(log_density: Reals) -> float | None:
    """Return the mean of log-densities, or None if one of them is infinite."""
    return float(log_density.mean()) if np.isfinite(log_density).all() else None


def _fit_random(spectrum: Spectrum, seed: int) -> Fit:
    null = null_of_spectrum(spectrum, seed)
    values = without_round_off(spectrum)
    if null is None:
        return _unfitted("random", values.size, "attnlaw has no random reference for latent attention")
    comparison = null.compare(values)
    if comparison.p_value is None:
        reason = "the matrix has only one singular value, or all of them are zero"
        return _unfitted("random", values.size, reason)
    mean_square = float(np.mean(values**2))
    below = np.searchsorted(null.pooled, values[::-1] / np.sqrt(mean_square)) / null.pooled.size
    limit, scale = null.law, comparison.scale
    log_density = None if limit is None else limit.log_density(values**2 / mean_square) - np.log(mean_square)
    x, density = null.curve
    return Fit(
        "random",
        values.size,
        parameters={"scale": scale},
        errors={"scale": None if scale is None else scale * null.scale_deviation},
        statistics={
            "wasserstein": null.wasserstein(values),
            "outliers": comparison.outliers,
            "draws": null.sample.count,
            "edge": comparison.edge,
            "edge_scale": None if scale is None else scale * null.edge_scale,
        },
        ks=ks_distance(below),
        log_likelihood=None if log_density is None else mean_log(log_density),
        p_value=comparison.p_value,
        curve=None if scale is None else (x * scale, density / scale),
    )


def _fit_power_law(spectrum: Spectrum, seed: int) -> Fit:
    x = eigenvalues(spectrum)
    tail = _tail(spectrum)
    if tail is None:
        return _unfitted("power-law", x.size, "the law needs at least 4 distinct eigenvalues")
    logs = np.log(x[-tail.size :] / tail.x_min)
    grid = np.geomspace(tail.x_min, x[-1], CURVE_POINTS)
    height = (tail.alpha - 1) / tail.x_min * (grid / tail.x_min) ** -tail.alpha * tail.size / x.size
    return Fit(
        "power-law",
        tail.size,
        parameters={"alpha": tail.alpha, "x_min": tail.x_min},
        errors={"alpha": tail.error, "x_min": None},
        statistics={"hill": tails.hill(x)},
        ks=tail.ks,
        log_likelihood=float(np.log((tail.alpha - 1) / tail.x_min) - tail.alpha * logs.mean()),
        p_value=goodness_of_fit(x, tail, seed),
        curve=(np.sqrt(grid), 2 * np.sqrt(grid) * height),
    )


@lru_cache(maxsize=4)
def _tail(spectrum: Spectrum) -> tails.PowerLawTail | None:
    return tails.power_law_tail(eigenvalues(spectrum))


def _fit_lognormal(spectrum: Spectrum, seed: int) -> Fit:
    x = eigenvalues(spectrum)
    tail = _tail(spectrum)
    if tail is None:
        return _unfitted("lognormal", x.size, "the law needs at least 4 distinct eigenvalues")
    other = lognormal_tail(x, tail)
    return Fit(
        "lognormal",
        tail.size,
        parameters={"mu": other.mu, "sigma": other.sigma},
        errors={"mu": other.mu_error, "sigma": other.sigma_error},
        statistics={"better": other.better, "ratio": other.ratio},
        ks=other.ks,
        log_likelihood=other.log_likelihood,
        p_value=other.p_value,
        remark=None
        if other.mu is not None
        else "no lognormal fits better than its limit, which is the power law",
    )


def _fit_learned(spectrum: Spectrum, seed: int, law: str = "learned", attention: str = "tied") -> Fit:
    values = positive_values(spectrum)
    size = min(spectrum.shape)
    fit = fit_learned(values, size, attention) if is_head(spectrum) else None
    if fit is None:
        reason = (
            "needs at least 8 singular values and some zeros" if is_head(spectrum) else "is for heads only"
        )
        unfitted = _unfitted(law, values.size, f"the learned-spectrum law {reason}")
        return replace(unfitted, statistics={"rank_fraction": values.size / size})
    with np.errstate(divide="ignore"):
        log_density = np.log(fit.density(values) / (2 * values))
    grid = np.linspace(0.0, fit.top, CURVE_POINTS)
    ranges = {"threshold": fit.threshold, "target_rank": fit.target_rank, "cut_ratio": fit.cut_ratio}
    return Fit(
        law,
        values.size,
        parameters={name: value.value for name, value in ranges.items()}
        | {"noise_level": fit.noise_level.value, "scale": fit.scale.value},
        statistics={
            "rank_fraction": fit.rank_fraction,
            "distance": fit.distance,
            "plausible": fit.plausible,
            "noise_low": fit.noise_level.low,
            "noise_high": fit.noise_level.high,
            **{f"{name}_low": value.low for name, value in ranges.items()},
            **{f"{name}_high": value.high for name, value in ranges.items()},
        },
        ks=ks_distance(fit.cdf(values)),
        log_likelihood=mean_log(log_density),
        curve=(grid, fit.density(grid)),
        outcome=Outcome.DONE if fit.plausible else Outcome.IMPLAUSIBLE,
        remark=None if fit.plausible else "parameters are withheld",
    )


def _fit_heavy_tailed(spectrum: Spectrum, seed: int) -> Fit:
    """Fit the high-temperature Marchenko-Pastur law: for a head an extension, with gamma = d_head / N."""
    x, gamma = eigenvalues(spectrum), shape_ratio(spectrum)
    if not gamma < 1 or x.size < 2:
        square = "the law only describes matrices that are not square"
        return _unfitted("heavy-tailed", x.size, "fewer than 2 eigenvalues" if x.size < 2 else square)
    mean = float(x.mean())
    fit = fit_kappa(x / mean, gamma)
    kappa = fit.kappa
    null = null_of_spectrum(spectrum, seed)
    null_kappas = None if null is None else kappas_of_null(null, gamma)
    null_median = np.inf if null_kappas is None else float(np.median(null_kappas))
    grid = np.linspace(spectrum.values[-1], 1.05 * spectrum.spectral, CURVE_POINTS)
    return Fit(
        "heavy-tailed",
        x.size,
        parameters={"kappa": kappa},
        errors={"kappa": fit.error},
        statistics={
            "kappa_low": fit.low,
            "kappa_high": fit.high,
            "kappa_null": null_median if np.isfinite(null_median) else None,
            "heavier": None if null_kappas is None else fit.heavier(null_kappas),
        },
        ks=ks_distance(fit.cdf(x / mean)),
        log_likelihood=fit.log_likelihood - float(np.log(mean)),
        curve=(grid, 2 * grid / mean * fit.density(grid**2 / mean)),
        remark=None
        if kappa is not None
        else "the best kappa is outside the searched range from 1/128 to 4096",
    )


FITTERS: dict[str, Callable[[Spectrum, int], Fit]] = {
    "random": _fit_random,
    "power-law": _fit_power_law,
    "lognormal": _fit_lognormal,
    "heavy-tailed": _fit_heavy_tailed,
    "learned": _fit_learned,
    "learned-untied": partial(_fit_learned, law="learned-untied", attention="untied"),
}


def _unfitted(law: str, size: int, reason: str) -> Fit:
    return Fit(law, size, outcome=Outcome.NOT_FITTED, remark=reason)
