"""Build the tables of an audit from the measured spectra: matrices, spectra, layers and applications."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from attnlaw import __version__
from attnlaw.analysis.audit.initial_sizes import initial_deviations, initial_size, initial_spread
from attnlaw.analysis.columns import APPLICATIONS, LAYERS, MATRICES, SPECTRA, location_row
from attnlaw.analysis.fit.null import NullTest
from attnlaw.checkpoints.blocks import Attention, Product
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, LAYER_GROUPS, MatrixLocation, Network
from attnlaw.core.errors import printable
from attnlaw.core.estimate import Estimate
from attnlaw.core.tables import quantity_frame
from attnlaw.numerics.logs import LN10, log_sum
from attnlaw.spectra.head_sizes import gauge_of
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.factors import layer_alphas
from attnlaw.theory.bounds.logits import head_logits
from attnlaw.theory.bounds.proxies import Proxies
from attnlaw.theory.bounds.spectrum_adaptive import Contribution
from attnlaw.theory.implicit_bias.balance import balance_of
from attnlaw.theory.init.architecture import Deviations

Row = dict[str, Any]


def log10(log: Estimate) -> Estimate | None:
    """Convert a natural logarithm to base 10. The logarithm of zero becomes None.

    >>> log10(Estimate(float(np.log(100.0)))), log10(Estimate(-np.inf, 0.0))
    (Estimate(value=2.0, error=None), None)
    """
    return log / LN10 if np.isfinite(log.value) else None


def matrix_table(
    model: Model,
    spectra: Network[Spectrum | None],
    tests: Sequence[NullTest | None],
    bounds: Proxies | None,
) -> pl.DataFrame:
    """Return a table of norms, ranks, null tests and contributions to the proxy, one row for each matrix."""
    parts = [] if bounds is None else bounds.parts
    total = log_sum([part.log_value for part in parts]) if parts else -np.inf
    contributions = iter(parts)
    std = initial_deviations(model)
    rows = []
    leaves = measured_leaves(model.network, spectra)
    for test, (location, product, spectrum) in zip(tests, leaves, strict=True):
        part = None if location.layer is None else next(contributions, None)
        values = {
            **location_row(model.name, location),
            "family": model.family,
            **_spectrum_values(product, spectrum),
            **_logit_values(model, location, product, spectrum),
            **_balance_values(location, product, spectrum),
            **({} if test is None else _test_values(test)),
            **({} if part is None else _contribution_values(part, total)),
            "attnlaw_version": __version__,
        }
        values |= {} if std is None else _initial_values(std, location, product, values)
        rows.append(values)
    return quantity_frame(MATRICES, rows)


def measured_leaves(
    network: Network[Product], spectra: Network[Spectrum | None]
) -> Iterator[tuple[MatrixLocation, Product, Spectrum]]:
    for (location, product), (_, spectrum) in zip(network.leaves(), spectra.leaves(), strict=True):
        if spectrum is not None:
            yield location, product, spectrum


def _spectrum_values(product: Product, spectrum: Spectrum) -> Row:
    estimated = spectrum.multiplicities is not None
    return {
        "tensors": [printable(name) for name in product.tensors],
        "rows": spectrum.shape[0],
        "cols": spectrum.shape[1],
        "inner": spectrum.inner,
        "latent": spectrum.latent,
        "spectral_norm": Estimate(spectrum.spectral, spectrum.spectral_error),
        "frobenius_norm": Estimate(
            spectrum.frobenius, None if estimated else spectrum.error(lambda variant: variant.frobenius)
        ),
        "nuclear_norm": Estimate(spectrum.nuclear, spectrum.error(lambda variant: variant.nuclear)),
        "norm_21": spectrum.norm_21,
        "norm_11": Estimate(spectrum.norm_11, spectrum.norm_11_error),
        "stable_rank": _stable_rank(spectrum),
        "effective_rank": _optional_estimate(
            spectrum.effective_rank, spectrum.error(lambda variant: variant.effective_rank)
        ),
        "numerical_rank": Estimate(
            spectrum.numerical_rank,
            spectrum.error(lambda variant: float(variant.counts_above_tolerance.sum()))
            if estimated
            else None,
        ),
        "condition": _optional_estimate(
            spectrum.condition, spectrum.error(lambda variant: variant.condition)
        ),
        **{
            f"{name}_applied": getattr(spectrum.applied, field, None)
            for name, field in (
                ("spectral_norm", "spectral"),
                ("frobenius_norm", "frobenius"),
                ("stable_rank",) * 2,
            )
        },
        "route": spectrum.route,
        "precision": spectrum.precision,
    }


def _logit_values(model: Model, location: MatrixLocation, product: Product, spectrum: Spectrum) -> Row:
    if not KINDS[location.kind].scores or not isinstance(product.block, Attention):
        return {}
    logits = head_logits(model, location, product.block, spectrum.scores)
    return {f"logit_{name}": getattr(logits, name) for name in ("bound", "typical", "probable")}


def _balance_values(location: MatrixLocation, product: Product, spectrum: Spectrum) -> Row:
    if not isinstance(product.block, Attention):
        return {}
    gauge = gauge_of(product.block, location.kind)
    if spectrum.factors is None:
        return {"gauge": gauge}
    balance = balance_of(spectrum.factors)
    return {
        "factor_excess": balance.excess,
        "factor_excess_weights": balance_of(spectrum.factors.weights or spectrum.factors).excess,
        "factor_excess_null": balance.null_excess,
        "factor_imbalance": balance.imbalance,
        "gauge": gauge,
    }


def _initial_values(std: Deviations, location: MatrixLocation, product: Product, values: Row) -> Row:
    """Return the sizes of a matrix divided by the sizes that are typical at initialisation."""
    size = initial_size(std, location.kind, product.shape, product.inner)
    ratios = {"frobenius_norm_over_initial": None if size is None else values["frobenius_norm"] / size}
    if values.get("logit_typical") is None or location.kind != "qk":
        return ratios
    assert isinstance(product.block, Attention)
    spread = initial_spread(std, product.block)
    return ratios | {"score_spread_over_initial": values["logit_typical"] / spread}


def _optional_estimate(value: float | None, error: float | None) -> Estimate | None:
    return None if value is None else Estimate(value, error)


def _stable_rank(spectrum: Spectrum) -> Estimate | None:
    """Return |W|_F^2 / s_1^2. |W|_F is exact, so its relative error is twice that of an approximate s_1."""
    rank, multiplicities = spectrum.stable_rank, spectrum.multiplicities
    if rank is None or multiplicities is None:
        return _optional_estimate(rank, spectrum.error(lambda variant: variant.stable_rank))
    return Estimate(rank, 2 * rank * multiplicities.spectral_error / spectrum.spectral)


def _test_values(test: NullTest) -> Row:
    return {"random_p_value": test.p_value, "outliers": test.outliers, "null_draws": test.draws}


def _contribution_values(part: Contribution, total: float) -> Row:
    factors = part.factors
    error, continuous = (
        None if log_error is None else log_error.total
        for log_error in (part.log_error, part.continuous_log_error)
    )
    return {
        "log10_gamma": log10(factors.log_gamma),
        "log10_alpha": log10(factors.log_alpha),
        "log10_scale": log10(Estimate(part.log_scale, factors.log_scale_error)),
        "p": part.p,
        "log10_contribution": log10(Estimate(part.log_value, error)),
        "continuous_p": part.continuous_p,
        "continuous_log10_contribution": log10(Estimate(part.continuous_log_value, continuous)),
        "log10_curve": [
            value if math.isfinite(value) else None for value in (part.log_curve / LN10).tolist()
        ],
        "share": float(np.exp(part.log_value - total)) if np.isfinite(total) else None,
    }


def fill_applied_sizes(matrices: pl.DataFrame, applied: bool) -> pl.DataFrame:
    """Fill missing sizes as applied with the sizes as stored, or set all of them to null."""
    columns = []
    for size in ("spectral_norm", "frobenius_norm", "stable_rank"):
        column, error = pl.col(f"{size}_applied"), f"{size}_applied_error"
        columns.append(pl.coalesce(column, size).alias(f"{size}_applied"))
        if error in matrices.columns:
            columns.append(pl.when(column.is_null()).then(f"{size}_error").otherwise(error).alias(error))
    if applied:
        return matrices.with_columns(columns)
    names = [name for name in matrices.columns if name.endswith(("_applied", "_applied_error"))]
    return matrices.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in names)


def spectrum_table(model: Model, spectra: Network[Spectrum | None]) -> pl.DataFrame:
    """Return a table with all singular values of every matrix, or null for an approximate spectrum."""
    rows = []
    for location, spectrum in spectra.leaves():
        if spectrum is not None:
            exact, applied = spectrum.multiplicities is None, spectrum.applied
            applied_values = None if applied is None else applied.values
            values = {
                **location_row(model.name, location),
                "singular_values": spectrum.values.tolist() if exact else None,
                "singular_values_applied": None if applied_values is None else applied_values.tolist(),
            }
            rows.append(values)
    return quantity_frame(SPECTRA, rows)


def layer_table(model: Model, spectra: Network[Spectrum | None], bounds: Proxies | None) -> pl.DataFrame:
    """Return a table of amplification and of shares in the proxy, with one row for each measured layer."""
    locations = [location for location, spectrum in spectra.leaves() if spectrum is not None]
    applied = None if bounds is None else bounds.log_alpha_applied
    alphas = None if applied is None else layer_alphas(spectra, applied)
    rows = []
    for layer, stack in dict.fromkeys((location.layer, location.stack) for location in locations):
        if layer is not None:
            values = {
                "model": model.name,
                "layer": layer,
                "stack": stack,
                "applications": spectra.applications.count(layer) or 1,
                **({} if bounds is None else _layer_values(bounds, layer)),
                "log10_alpha_applied": None if alphas is None else log10(alphas[layer]),
            }
            rows.append(values)
    return quantity_frame(LAYERS, rows)


def _layer_values(bounds: Proxies, layer: int) -> Row:
    leaves = bounds.contributions.layers[layer].leaves()
    total = log_sum([part.log_value for _, part in leaves])
    values: Row = {}
    for group, kinds in LAYER_GROUPS.items():
        logs = [part.log_value for location, part in leaves if location.kind in kinds]
        known = logs and np.isfinite(total)
        values[f"share_{group}"] = float(np.exp(log_sum(logs) - total)) if known else None
    alpha, adaptivity = leaves[0][1].factors.log_alpha, bounds.per_layer_adaptivity[layer]
    return values | {"log10_alpha": log10(alpha), "adaptivity": adaptivity}


def application_table(spectra: Network[Spectrum | None], bounds: Proxies | None) -> pl.DataFrame | None:
    """Return a table of the amplification after each application of a layer, or None if none is shared."""
    if bounds is None or spectra.depth == len(spectra.layers):
        return None
    applied: Iterable[Estimate | None] = bounds.log_alpha_applied or [None] * spectra.depth
    rows = (
        {"layer": layer, "log10_alpha": log10(alpha), "log10_alpha_applied": known and log10(known)}
        for layer, alpha, known in zip(spectra.applications, bounds.log_alpha, applied, strict=True)
    )
    return quantity_frame(APPLICATIONS, rows)
