"""The tables of a fit: names, order and types of their columns. Missing is null.

`fits`: one row per matrix. `null_scale`, `null_edge`, `edge_scale`, `noise_*` and `threshold*` are in units
of singular values, `x_min` is an eigenvalue (a squared one). `null_shape` names the null's row in `curves`.
`noise_*`, `threshold*` and `target_rank*` are null where the learned law does not fit; where it fits, a value
that is not identified between its `_low` and `_high` is null.

`curves`: what a report draws over a spectrum. Rows of `curve` "null" (one per `null_shape`, no matrix): the
density of the null over singular values at scale 1, to be read as `x * null_scale`, `density / null_scale`.
Rows of `curve` "law" (one per matrix that is not random): the density of the law named in `law` over singular
values, of mass one over those that are not zero (a power-law tail: of the share of the tail).
"""

from __future__ import annotations

import polars as pl

from attnlaw.base.schema import PLACE
from attnlaw.base.tables import Schema

FITS: Schema = {
    **PLACE,
    "rows": pl.Int32(),
    "cols": pl.Int32(),
    "values": pl.Int32(),
    "law": pl.String(),
    "random_p_value": pl.Float64(),
    "wasserstein": pl.Float64(),
    "outliers": pl.Int32(),
    "null_shape": pl.String(),
    "null_draws": pl.Int32(),
    "null_scale": pl.Float64(),
    "null_edge": pl.Float64(),
    "edge_scale": pl.Float64(),
    "alpha": pl.Float64(),
    "alpha_error": pl.Float64(),
    "alpha_p_value": pl.Float64(),
    "x_min": pl.Float64(),
    "tail_size": pl.Int32(),
    "lognormal_better": pl.Boolean(),
    "hill": pl.Float64(),
    "kappa": pl.Float64(),
    "kappa_low": pl.Float64(),
    "kappa_high": pl.Float64(),
    "noise_level": pl.Float64(),
    "noise_low": pl.Float64(),
    "noise_high": pl.Float64(),
    "threshold": pl.Float64(),
    "threshold_low": pl.Float64(),
    "threshold_high": pl.Float64(),
    "rank_fraction": pl.Float64(),
    "target_rank": pl.Float64(),
    "target_rank_low": pl.Float64(),
    "target_rank_high": pl.Float64(),
    "learned_distance": pl.Float64(),
    "ks_random": pl.Float64(),
    "ks_tail": pl.Float64(),
    "ks_heavy_tailed": pl.Float64(),
    "ks_learned": pl.Float64(),
    "log_likelihood_random": pl.Float64(),
    "log_likelihood_heavy_tailed": pl.Float64(),
    "log_likelihood_learned": pl.Float64(),
    "seed": pl.Int64(),
    "status": pl.String(),
    "attnlaw_version": pl.String(),
}

CURVES: Schema = {
    "curve": pl.String(),
    "null_shape": pl.String(),
    **PLACE,
    "law": pl.String(),
    "x": pl.List(pl.Float64()),
    "density": pl.List(pl.Float64()),
}
