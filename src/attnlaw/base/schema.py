"""The tables of an audit: names, order and types of their columns.

`matrices`: one row per matrix. `spectra`: one row per matrix with all its singular values, descending,
not squared. `layers`: one row per layer. `inner` is the dimension that a product of factors passes (d_head).
Missing is null: `head` and `inner` of a feed-forward matrix, `expert` of whatever every token passes, the
`_error` columns where nothing is approximate, the singular values of an approximate spectrum. The row of an
exact spectrum has errors where its gamma or alpha holds the norm of an approximate one. Logarithms are to
base 10.
`log10_curve` is log10 C(p) on the grid p_i = 2 i / (length - 1).
"""

from __future__ import annotations

import polars as pl

from attnlaw.base.tables import Schema

PLACE: Schema = {
    "model": pl.String(),
    "layer": pl.Int32(),
    "stack": pl.String(),
    "head": pl.Int32(),
    "expert": pl.Int32(),
    "kind": pl.String(),
}

MATRICES: Schema = {
    **PLACE,
    "family": pl.String(),
    "tensors": pl.List(pl.String()),
    "rows": pl.Int32(),
    "cols": pl.Int32(),
    "inner": pl.Int32(),
    "spectral_norm": pl.Float64(),
    "spectral_norm_error": pl.Float64(),
    "frobenius_norm": pl.Float64(),
    "nuclear_norm": pl.Float64(),
    "nuclear_norm_error": pl.Float64(),
    "norm_21": pl.Float64(),
    "norm_11": pl.Float64(),
    "stable_rank": pl.Float64(),
    "stable_rank_error": pl.Float64(),
    "effective_rank": pl.Float64(),
    "effective_rank_error": pl.Float64(),
    "numerical_rank": pl.Int32(),
    "numerical_rank_error": pl.Float64(),
    "condition": pl.Float64(),
    "route": pl.String(),
    "log10_gamma": pl.Float64(),
    "log10_gamma_error": pl.Float64(),
    "log10_alpha": pl.Float64(),
    "log10_alpha_error": pl.Float64(),
    "log10_scale": pl.Float64(),
    "log10_scale_error": pl.Float64(),
    "p": pl.Float64(),
    "log10_contribution": pl.Float64(),
    "log10_contribution_error": pl.Float64(),
    "continuous_p": pl.Float64(),
    "continuous_log10_contribution": pl.Float64(),
    "continuous_log10_contribution_error": pl.Float64(),
    "log10_curve": pl.List(pl.Float64()),
    "share": pl.Float64(),
    "attnlaw_version": pl.String(),
}

SPECTRA: Schema = {**PLACE, "singular_values": pl.List(pl.Float64())}

LAYERS: Schema = {
    "model": pl.String(),
    "layer": pl.Int32(),
    "stack": pl.String(),
    "applications": pl.Int32(),
    "log10_alpha": pl.Float64(),
    "log10_alpha_error": pl.Float64(),
    "share_qk": pl.Float64(),
    "share_vo": pl.Float64(),
    "share_cross": pl.Float64(),
    "share_ffn": pl.Float64(),
    "adaptivity": pl.Float64(),
    "adaptivity_error": pl.Float64(),
}
