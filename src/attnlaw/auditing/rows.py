"""Rows of an audit: one per matrix, one per spectrum, one per layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from attnlaw import __version__
from attnlaw.base.errors import printable
from attnlaw.bounds import Proxies
from attnlaw.models import Model
from attnlaw.numerics.logs import LN10, log_sum
from attnlaw.spectra import Spectrum
from attnlaw.spectra.measure import GROUPS, Measured

Row = dict[str, Any]


def log10_or_none(log: float) -> float | None:
    """log10 from a natural logarithm; None for the logarithm of zero.

    >>> log10_or_none(np.log(100.0)), log10_or_none(-np.inf)
    (2.0, None)
    """
    return float(log) / LN10 if np.isfinite(log) else None


def log10_error(error: float | None) -> float | None:
    """The error of a log10 from that of a natural logarithm; None where there is none."""
    return None if error is None else error / LN10


def matrix_rows(model: Model, measured: list[Measured], bounds: Proxies | None) -> Iterator[Row]:
    """Norms and ranks of every matrix, and what it contributes to the proxy."""
    chosen: dict[tuple[int | None, str, int | None, int | None], Row] = {}
    if bounds is not None:
        total = log_sum([part.log_value for part in bounds.contributions])
        for part in bounds.contributions:
            factors = part.factors
            error, continuous = (
                None if found is None else found.total
                for found in (part.log_error, part.continuous_log_error)
            )
            chosen[factors.place] = {
                "log10_gamma": log10_or_none(factors.log_gamma),
                "log10_gamma_error": log10_error(factors.log_gamma_error),
                "log10_alpha": log10_or_none(factors.log_alpha),
                "log10_alpha_error": log10_error(factors.log_alpha_error),
                "log10_scale": log10_or_none(part.log_scale),
                "log10_scale_error": log10_error(factors.log_scale_error),
                "p": part.p,
                "log10_contribution": log10_or_none(part.log_value),
                "log10_contribution_error": log10_error(error),
                "continuous_p": part.continuous_p,
                "continuous_log10_contribution": log10_or_none(part.continuous_log_value),
                "continuous_log10_contribution_error": log10_error(continuous),
                "log10_curve": [log10_or_none(value) for value in part.log_curve],
                "share": float(np.exp(part.log_value - total)) if np.isfinite(total) else None,
            }
    for row in measured:
        spectrum = row.spectrum
        yield {
            **_place(model, row),
            "family": model.family,
            "tensors": [printable(name) for name in row.tensors],
            "rows": spectrum.shape[0],
            "cols": spectrum.shape[1],
            "inner": spectrum.inner,
            "spectral_norm": spectrum.spectral,
            "spectral_norm_error": spectrum.multiplicities and spectrum.multiplicities.spectral_error,
            "frobenius_norm": spectrum.frobenius,
            "nuclear_norm": spectrum.nuclear,
            "nuclear_norm_error": spectrum.error(lambda found: found.nuclear),
            "norm_21": spectrum.norm_21,
            "norm_11": spectrum.norm_11,
            "stable_rank": spectrum.stable_rank,
            "stable_rank_error": _stable_rank_error(spectrum),
            "effective_rank": spectrum.effective_rank,
            "effective_rank_error": spectrum.error(lambda found: found.effective_rank),
            "numerical_rank": spectrum.numerical_rank,
            "numerical_rank_error": spectrum.error(lambda found: float(found.counts_above_tolerance.sum())),
            "condition": spectrum.condition,
            "route": spectrum.route,
            **chosen.get((row.layer, row.kind, row.head, row.expert), {}),
            "attnlaw_version": __version__,
        }


def spectrum_rows(model: Model, measured: list[Measured]) -> Iterator[Row]:
    """All singular values of every matrix; null where they were approximated."""
    for row in measured:
        exact = row.spectrum.multiplicities is None
        yield {**_place(model, row), "singular_values": row.spectrum.values.tolist() if exact else None}


def spectrum_of(row: Row, values: pl.Series) -> Spectrum:
    """The spectrum of a row of `matrices`, from its singular values.

    A product of more than two tensors is latent attention; older audits do not say what `inner` was.
    """
    return Spectrum(
        values.to_numpy(),
        (row["rows"], row["cols"]),
        row["norm_21"],
        row["norm_11"],
        row["route"],
        inner=row.get("inner"),
        latent=len(row["tensors"]) > 2,
    )


def layer_rows(model: Model, measured: list[Measured], bounds: Proxies | None) -> Iterator[Row]:
    """Each measured layer's amplification, and the share of the proxy that each type of matrix has in it."""
    present = {row.layer for row in measured}
    for layer in model.layers:
        if layer.index not in present:
            continue
        row: Row = {
            "model": model.name,
            "layer": layer.index,
            "stack": layer.stack,
            "applications": model.applications.count(layer.index),
        }
        if bounds is not None:
            parts = [part for part in bounds.contributions if part.factors.layer == layer.index]
            total = log_sum([part.log_value for part in parts])
            for group in ("qk", "vo", "cross", "ffn"):
                logs = [part.log_value for part in parts if part.factors.kind in GROUPS[group]]
                row[f"share_{group}"] = (
                    float(np.exp(log_sum(logs) - total)) if logs and np.isfinite(total) else None
                )
            row["log10_alpha"] = log10_or_none(parts[0].factors.log_alpha)
            row["log10_alpha_error"] = log10_error(parts[0].factors.log_alpha_error)
            row["adaptivity"] = bounds.per_layer_adaptivity[layer.index]
            row["adaptivity_error"] = bounds.errors and bounds.errors.per_layer_adaptivity[layer.index]
        yield row


def _stable_rank_error(spectrum: Spectrum) -> float | None:
    """d ln(|W|_F^2 / s_1^2) = -2 d ln s_1: the Frobenius norm is exact."""
    own, rank = spectrum.multiplicities, spectrum.stable_rank
    return None if own is None or rank is None else 2 * rank * own.spectral_error / spectrum.spectral


def _place(model: Model, row: Measured) -> Row:
    return {
        "model": model.name,
        "layer": row.layer,
        "stack": row.stack,
        "head": row.head,
        "expert": row.expert,
        "kind": row.kind,
    }
