"""The types of `import attnlaw`. `make stub` writes this file from the declarations."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, type_check_only

import polars as pl

from attnlaw.analysis.audit.audit import Audit as Audit
from attnlaw.analysis.check.verdicts import Verdicts as Verdicts
from attnlaw.analysis.diff.diff import Diff as Diff
from attnlaw.analysis.fit.model_fits import Fits as Fits
from attnlaw.analysis.forward.lens import Lens as Lens
from attnlaw.analysis.forward.margin_measurement import MarginMeasurement
from attnlaw.analysis.forward.margins import Margins as Margins
from attnlaw.checkpoints.model import Model as Model
from attnlaw.checkpoints.open import open_model as open_model
from attnlaw.core.errors import InputError as InputError
from attnlaw.core.estimate import Estimate as Estimate
from attnlaw.core.estimate import Range as Range
from attnlaw.core.result import Result as Result
from attnlaw.theory.dynamics.rows import TrajectoryRows
from attnlaw.theory.dynamics.schedule import Schedule as Schedule
from attnlaw.theory.dynamics.trajectory import Trajectory as Trajectory
from attnlaw.theory.init.architecture import Architecture as Architecture
from attnlaw.theory.init.records import InitialLaw as InitialLaw
from attnlaw.theory.init.tokens import Tokens as Tokens
from attnlaw.theory.learn.prediction import Prediction as Prediction
from attnlaw.theory.learn.problem import Problem as Problem
from attnlaw.theory.learn.target import Target as Target
from attnlaw.theory.limit.inputs import GivenInputs as GivenInputs
from attnlaw.theory.limit.inputs import RandomInputs as RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer as AttentionLayer
from attnlaw.theory.limit.limit import WidthRow
from attnlaw.verbs.attention import AttentionSpectrum
from attnlaw.verbs.check.reports import CheckVerdicts
from attnlaw.verbs.learn import DetailedPrediction

__version__: str

__all__ = [
    "Architecture",
    "AttentionLayer",
    "Audit",
    "Diff",
    "Estimate",
    "Fits",
    "GivenInputs",
    "InitialLaw",
    "InputError",
    "Lens",
    "Margins",
    "Model",
    "Prediction",
    "Problem",
    "RandomInputs",
    "Range",
    "Result",
    "Schedule",
    "Target",
    "Tokens",
    "Trajectory",
    "Verdicts",
    "__version__",
    "attention",
    "audit",
    "check",
    "diff",
    "dynamics",
    "fit",
    "init",
    "learn",
    "lens",
    "limit",
    "load",
    "margins",
    "open_model",
]

@type_check_only
class AuditResult(Result):
    """A result of `attnlaw.audit`."""
    @property
    def record(self) -> Audit: ...
    family: str | None
    """Model family, such as gpt2."""
    codes: str | None
    """Quantised formats in which the matrices are stored; empty if none is quantised."""
    depth: int | None
    """Number of layers; a layer that is used several times counts each time."""
    distinct_layers: int | None
    """Number of layers; a layer that is used several times counts once."""
    hidden_size: int | None
    """Width of the layers (hidden size)."""
    head_count: int | None
    """Number of attention heads in the first layer."""
    matrix_count: int | None
    """Number of weight matrices that were measured; QK and VO of each head count as one matrix each."""
    activation: str | None
    """Activation function of the feed-forward blocks."""
    not_random_tested: int | None
    """Number of matrices that were tested against random ones."""
    not_random_rejected: int | None
    """Number of matrices that do not look random (p-value at most 0.01)."""
    not_random_expected: float | None
    """Number of matrices that would not look random by chance alone, if the model were untrained."""
    not_random_p_value: float | None
    """P-value: probability that at least as many matrices of an untrained model do not look random."""
    rejected_share: float | None
    """Share of the tested weight matrices that do not look random."""
    median_outliers: float | None
    """Number of singular values above those of a random matrix of the same shape (median over matrices)."""
    median_effective_rank_qk: float | None
    """Effective rank of a head's QK matrix: number of directions that it uses, including weak ones (median
    over heads).
    """
    log10_amplification: float | None
    """Log10 of the largest factor by which layers 2 to L can amplify a change in the first layer's output
    (norm gains included if known).
    """
    findings_error: int | None
    """Number of findings of severity error: results are wrong or useless."""
    findings_warning: int | None
    """Number of findings of severity warning: look at these before you use the model."""
    findings_note: int | None
    """Number of findings of severity note: worth knowing, and often intended."""
    finding_rules: int | None
    """Number of checks for damage that attnlaw ran on the model."""
    logit_heads: int | None
    """Number of attention heads whose logits attnlaw tried to bound."""
    logit_heads_bounded: int | None
    """Number of heads whose attention logits stay below a known bound for any input."""
    logit_heads_beyond_float8: int | None
    """Number of heads whose logit bound is above 448, the largest float8 E4M3 number."""
    logit_heads_beyond_float16: int | None
    """Number of heads whose logit bound is above 65504, the largest float16 number."""
    logit_unbounded: str | None
    """Attention blocks whose logits have no known upper bound, with the reason."""
    log10_spectrum_adaptive: Estimate | None
    """Log10 of the generalization proxy: spectrum-adaptive, best exponent p for each matrix."""
    log10_spectrum_adaptive_continuous: Estimate | None
    """Log10 of the generalization proxy: spectrum-adaptive, any real exponent p (our extension)."""
    log10_fixed_p_0: Estimate | None
    """Log10 of the generalization proxy: same exponent for all matrices, p = 0."""
    log10_fixed_p_1: Estimate | None
    """Log10 of the generalization proxy: same exponent for all matrices, p = 1."""
    log10_fixed_p_2: Estimate | None
    """Log10 of the generalization proxy: same exponent for all matrices, p = 2."""
    log10_edelman: Estimate | None
    """Log10 of the generalization proxy: norm-based, (2,1) norms of Edelman."""
    log10_trauger_tewari: Estimate | None
    """Log10 of the generalization proxy: norm-based, (1,1) norms of Trauger and Tewari."""
    per_application_log10_spectrum_adaptive: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: spectrum-adaptive, best
    exponent p for each matrix.
    """
    per_application_log10_spectrum_adaptive_continuous: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: spectrum-adaptive, any
    real exponent p (our extension).
    """
    per_application_log10_fixed_p_0: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: same exponent for all
    matrices, p = 0.
    """
    per_application_log10_fixed_p_1: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: same exponent for all
    matrices, p = 1.
    """
    per_application_log10_fixed_p_2: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: same exponent for all
    matrices, p = 2.
    """
    per_application_log10_edelman: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: norm-based, (2,1) norms
    of Edelman.
    """
    per_application_log10_trauger_tewari: Estimate | None
    """Log10 of the generalization proxy, in which a shared layer counts each time: norm-based, (1,1) norms
    of Trauger and Tewari.
    """
    proxy_over_sqrt_samples_log10: Estimate | None
    """Log10 of the spectrum-adaptive generalization proxy divided by the square root of the number of
    training samples.
    """
    value_of_adaptivity: Estimate | None
    """How many times larger the generalization proxy is if all matrices must share one exponent p."""
    rank_count: bool | None
    """Whether the best exponent is p = 0 for every matrix, so that the generalization proxy only depends
    on ranks.
    """
    norms: str | None
    """Norms in tables and charts: with the gain of the norm layer before (applied), or without (stored)."""
    norms_unknown: list[str] | None
    """Kinds of matrices whose norms do not include a gain, because attnlaw does not know their norm layer."""
    extensions: list[str] | None
    """Features of the model that the theory of generalization proxies (arXiv 2605.07297) does not cover."""
    warnings: list[str] | None
    """Warnings about the model and its file."""
    meaning: str | None
    """What the generalization proxies mean, and what they do not show."""
    findings: pl.DataFrame
    """Table: the columns model, rule, level, layer, stack, head, expert, kind, tensor, value, threshold,
    meaning.
    """
    matrices: pl.DataFrame
    """Table: the columns model, layer, stack, head, expert, kind, family, tensors, rows, cols, inner,
    latent, spectral_norm, frobenius_norm, nuclear_norm, norm_21, norm_11, stable_rank, effective_rank,
    numerical_rank, condition, spectral_norm_applied, frobenius_norm_applied, stable_rank_applied,
    logit_bound, logit_typical, logit_probable, frobenius_norm_over_initial, score_spread_over_initial,
    factor_excess, factor_excess_weights, factor_excess_null, factor_imbalance, gauge, route, precision,
    random_p_value, outliers, null_draws, log10_gamma, log10_alpha, log10_scale, p, log10_contribution,
    continuous_p, continuous_log10_contribution, log10_curve, share, attnlaw_version.
    """
    spectra: pl.DataFrame
    """Table: the columns model, layer, stack, head, expert, kind, singular_values,
    singular_values_applied.
    """
    layers: pl.DataFrame
    """Table: the columns model, layer, stack, applications, log10_alpha, log10_alpha_applied, share_qk,
    share_vo, share_cross, share_ffn, adaptivity.
    """
    applications: pl.DataFrame
    """Table: the columns layer, log10_alpha, log10_alpha_applied."""
    towers: pl.DataFrame
    """Table: the columns tower, layers, hidden_size, heads, activation, log10_spectrum_adaptive,
    log10_spectrum_adaptive_continuous, log10_fixed_p_0, log10_fixed_p_1, log10_fixed_p_2,
    log10_edelman, log10_trauger_tewari.
    """
    atlas: pl.DataFrame
    """Table: the columns column, value, trained_low, trained_high, trained_models, trained_below,
    fresh_low, fresh_high, fresh_models, kind, among, trained, fresh, left_out.
    """
    fits: pl.DataFrame
    """Table: the columns model, layer, stack, head, expert, kind, rows, cols, values, law, random_p_value,
    wasserstein, outliers, null_shape, null_draws, null_scale, null_edge, edge_scale, alpha,
    alpha_p_value, x_min, tail_size, tail_share, lognormal_better, hill, kappa, noise_level, noise_low,
    noise_high, threshold, rank_fraction, target_rank, cut_ratio, learned_distance, untied_distance,
    untied_fits, untied_cut_ratio, ks_random, ks_tail, ks_heavy_tailed, ks_learned, ks_untied,
    log_likelihood_random, log_likelihood_heavy_tailed, log_likelihood_learned, seed, status, remark,
    attnlaw_version.
    """
    curves: pl.DataFrame
    """Table: the columns curve, null_shape, model, layer, stack, head, expert, kind, law, x, density."""
    status: str | None
    remark: str | None

@type_check_only
class FitResult(Result):
    """A result of `attnlaw.fit`."""
    @property
    def record(self) -> Fits: ...
    matrix_count: int | None
    """Number of weight matrices that were measured; QK and VO of each head count as one matrix each."""
    random_count: int | None
    """Number of matrices that follow the law random: looks like random numbers of this shape, as at
    initialisation.
    """
    learned_count: int | None
    """Number of matrices that follow the law learned: some directions were learned, and the others are
    zero, as theory predicts for trained attention.
    """
    heavy_tailed_count: int | None
    """Number of matrices that follow the law heavy-tailed: the singular values fall off smoothly and
    spread further than those of a random matrix.
    """
    power_law_tail_count: int | None
    """Number of matrices that follow the law power-law tail: no law fits the whole spectrum, but the
    largest values (at most half) follow a power law.
    """
    power_law_spectrum_count: int | None
    """Number of matrices that follow the law power-law spectrum: no law fits the whole spectrum, but a
    power law fits more than half of the values.
    """
    neither_count: int | None
    """Number of matrices that follow the law neither: the matrix differs from random numbers, and none of
    the laws fits it (which is not a problem).
    """
    not_random_tested: int | None
    """Number of matrices that were tested against random ones."""
    not_random_rejected: int | None
    """Number of matrices that do not look random (p-value at most 0.01)."""
    not_random_expected: float | None
    """Number of matrices that would not look random by chance alone, if the model were untrained."""
    not_random_p_value: float | None
    """P-value: probability that at least as many matrices of an untrained model do not look random."""
    fits: pl.DataFrame
    """Table: the columns model, layer, stack, head, expert, kind, rows, cols, values, law, random_p_value,
    wasserstein, outliers, null_shape, null_draws, null_scale, null_edge, edge_scale, alpha,
    alpha_p_value, x_min, tail_size, tail_share, lognormal_better, hill, kappa, noise_level, noise_low,
    noise_high, threshold, rank_fraction, target_rank, cut_ratio, learned_distance, untied_distance,
    untied_fits, untied_cut_ratio, ks_random, ks_tail, ks_heavy_tailed, ks_learned, ks_untied,
    log_likelihood_random, log_likelihood_heavy_tailed, log_likelihood_learned, seed, status, remark,
    attnlaw_version.
    """
    curves: pl.DataFrame
    """Table: the columns curve, null_shape, model, layer, stack, head, expert, kind, law, x, density."""
    status: str | None
    remark: str | None

@type_check_only
class DiffResult(Result):
    """A result of `attnlaw.diff`."""
    @property
    def record(self) -> Diff: ...
    verdict: str | None
    """Summary of what changed between the checkpoints, in a few sentences."""
    compared: str | None
    """Sentence that says how many tensors were compared and how many were not."""
    next_step: str | None
    """What the changes probably mean, and what to do next."""
    verdicts: list[str] | None
    """All different verdicts on the model and on its tensors, such as low-rank."""
    map_count: int | None
    """Number of heads (QK, VO) and feed-forward matrices that were compared."""
    tensor_count: int | None
    """Number of stored tensors that were compared."""
    not_compared: list[str] | None
    """Names of the tensors that were not compared."""
    tensors_non_finite: int | None
    """Number of tensors with the verdict non-finite: an entry is NaN or infinite in either model."""
    tensors_reshaped: int | None
    """Number of tensors with the verdict reshaped: the shape differs; attnlaw compares the rows that both
    models have.
    """
    tensors_added: int | None
    """Number of tensors with the verdict added: only the model has this tensor."""
    tensors_removed: int | None
    """Number of tensors with the verdict removed: only the base has this tensor."""
    tensors_identical: int | None
    """Number of tensors with the verdict identical: every entry is equal."""
    tensors_zeroed: int | None
    """Number of tensors with the verdict zeroed: every entry is 0 now, but not in the base."""
    tensors_coded: int | None
    """Number of tensors with the verdict coded: the base in a quantised format; smaller changes than its
    rounding errors are invisible.
    """
    tensors_rounded: int | None
    """Number of tensors with the verdict rounded: the base rounded to another format."""
    tensors_rescaled: int | None
    """Number of tensors with the verdict rescaled: the base multiplied by a factor, for the whole tensor
    or for each row or column.
    """
    tensors_below_floor: int | None
    """Number of tensors with the verdict below-floor: any change is smaller than the rounding errors of
    the model's file.
    """
    tensors_sparse: int | None
    """Number of tensors with the verdict sparse: a few single entries changed."""
    tensors_low_rank: int | None
    """Number of tensors with the verdict low-rank: the change has only a few directions (its rank), as an
    adapter makes; the rest is rounding.
    """
    tensors_partly_hidden: int | None
    """Number of tensors with the verdict partly-hidden: the change is partly hidden by the rounding of the
    file.
    """
    tensors_reinitialised: int | None
    """Number of tensors with the verdict reinitialised: new random weights that do not resemble the base."""
    tensors_unrelated: int | None
    """Number of tensors with the verdict unrelated: other trained weights that do not resemble the base."""
    tensors_noise: int | None
    """Number of tensors with the verdict noise: the change looks random: no direction is stronger than the
    others.
    """
    tensors_dense: int | None
    """Number of tensors with the verdict dense: the change has many directions, as full training makes."""
    tensors_changed: int | None
    """Number of tensors with the verdict changed: a vector or small matrix whose values changed."""
    tensors_moved: int | None
    """Number of tensors with the verdict moved: it has the weights of another tensor of the base."""
    tensors_transposed: int | None
    """Number of tensors with the verdict transposed: the base with rows and columns exchanged
    (transposed).
    """
    tensors_permuted: int | None
    """Number of tensors with the verdict permuted: the base with its rows or columns in another order."""
    size_qk: float | None
    """Median size of the change of QK matrices, |model − base| / |base|."""
    size_vo: float | None
    """Median size of the change of VO matrices, |model − base| / |base|."""
    size_cross_qk: float | None
    """Median size of the change of cross QK matrices, |model − base| / |base|."""
    size_cross_vo: float | None
    """Median size of the change of cross VO matrices, |model − base| / |base|."""
    size_ffn_in: float | None
    """Median size of the change of FFN in matrices, |model − base| / |base|."""
    size_ffn_gate: float | None
    """Median size of the change of FFN gate matrices, |model − base| / |base|."""
    size_ffn_out: float | None
    """Median size of the change of FFN out matrices, |model − base| / |base|."""
    scale_qk: float | None
    """Median factor by which QK matrices grew; below 1 means that they shrank."""
    scale_vo: float | None
    """Median factor by which VO matrices grew; below 1 means that they shrank."""
    scale_cross_qk: float | None
    """Median factor by which cross QK matrices grew; below 1 means that they shrank."""
    scale_cross_vo: float | None
    """Median factor by which cross VO matrices grew; below 1 means that they shrank."""
    scale_ffn_in: float | None
    """Median factor by which FFN in matrices grew; below 1 means that they shrank."""
    scale_ffn_gate: float | None
    """Median factor by which FFN gate matrices grew; below 1 means that they shrank."""
    scale_ffn_out: float | None
    """Median factor by which FFN out matrices grew; below 1 means that they shrank."""
    largest_size: float | None
    """Largest change of a head or feed-forward matrix relative to the base, |model − base| / |base|."""
    worst_map: str | None
    """Head or feed-forward matrix that changed most."""
    worst_tensor: str | None
    """Stored tensor that changed most."""
    worst_tensor_size: float | None
    """Largest change of a stored tensor relative to the base, |model − base| / |base|."""
    least_sqnr_db: float | None
    """Lowest signal-to-noise ratio of a tensor in dB, if its change is noise: −20 log₁₀ of the relative
    change.
    """
    intruders: int | None
    """Number of the model's leading directions that resemble no single direction of the base (cosine below
    1/2).
    """
    new: int | None
    """Number of the model's leading directions that are not combinations of similarly strong base
    directions.
    """
    diff: pl.DataFrame
    """Table: the columns model, layer, stack, kind, head, expert, matched_head, rows, cols, inner, size,
    size_2, cosine, scale, stable_rank, effective_rank, rank, floor, k, share_left, z_left, share_right,
    z_right, overlap_left, overlap_right, z_top, moved, intruders_left, intruders_right, new_left,
    new_right.
    """
    diff_tensors: pl.DataFrame
    """Table: the columns model, tensor, shape, dtype_base, dtype_model, verdict, format, rank, rank_low,
    rank_high, directions, size, update_size, update_size_most, rounding_size, hidden, roundings,
    factor, factor_low, factor_high, along, source, then, sqnr_db, cosine, unchanged, max_change.
    """
    diff_spectra: pl.DataFrame
    """Table: the columns model, layer, stack, kind, head, expert, update_values, noise_values."""
    status: str | None
    remark: str | None

@type_check_only
class CheckResult(Result):
    """A result of `attnlaw.check`."""
    @property
    def record(self) -> CheckVerdicts: ...
    headline: str | None
    """Result of the check in one sentence."""
    not_checked: str | None
    """Properties that nobody can check from the weights alone, such as the number of heads."""
    passed: bool | None
    """Whether the model passed the check."""
    exit_status: int | None
    """Exit status of the command: 0 if the model passed, 3 if it failed."""
    fail_on: str | None
    """Lowest severity that fails the check: warning or error."""
    rule_count: int | None
    """Number of rules that were applied."""
    failed_rules: int | None
    """Number of rules that failed, including those that do not fail the check."""
    errors: int | None
    """Number of errors that attnlaw found and that the baseline does not have."""
    warnings: int | None
    """Number of warnings that attnlaw found and that the baseline does not have."""
    notes: int | None
    """Number of notes that attnlaw found and that the baseline does not have."""
    known_findings: int | None
    """Number of findings that do not count, because the baseline already had them."""
    verdicts: pl.DataFrame
    """Table: the columns model, rule, of, asked, level, outcome, selected, held, value, failures, remark,
    attnlaw_version.
    """
    findings: pl.DataFrame
    """Table: the columns model, rule, level, layer, stack, head, expert, kind, tensor, value, threshold,
    meaning, known, attnlaw_version.
    """
    verdict_values: pl.DataFrame
    """Table: the columns model, rule, found."""
    status: str | None
    remark: str | None

@type_check_only
class LensResult(Result):
    """A result of `attnlaw.lens`."""
    @property
    def record(self) -> Lens: ...
    median_rank_within: int | None
    """Rank to which half of the heads can be reduced while every attention weight stays within 0.01."""
    largest_rank_within: int | None
    """Rank to which all heads can be reduced while every attention weight stays within 0.01."""
    family: str | None
    """Model type that config.json states, such as gpt2."""
    layers: int | None
    """Number of attention blocks."""
    tokens: int | None
    """Number of tokens in the input."""
    hidden_size: int | None
    """Width of the model: number of entries of a token's vector."""
    head_count: int | None
    """Number of heads that were measured."""
    median_beta: float | None
    """Median over heads of the sharpness β: standard deviation of a position's attention logits."""
    heads_below_beta_2: int | None
    """Number of diffuse heads: sharpness below β₂ = √(ln n / 2) for n tokens, so theory of random
    attention can hold.
    """
    heads_above_beta_c: int | None
    """Number of sharp heads: sharpness above β_c = √(2 ln n) for n tokens, so positions attend to only a
    few tokens.
    """
    score_error: float | None
    """Largest difference between the model's own attention weights and those that attnlaw computed, as a
    check.
    """
    reconstruction_error: float | None
    """Relative difference between the model's own output and the one that attnlaw computed, as a check."""
    offset_share: float | None
    """Size of the part of the output that comes from biases, relative to the whole; above 1 if parts
    cancel.
    """
    singular_values: list[float] | None
    """Largest singular values of the map from input tokens to output tokens, with attention and norms
    fixed.
    """
    singular_values_residual: float | None
    """Numerical error of the singular values: largest residual |Tᵀu − σv|, divided by the largest singular
    value.
    """
    probes: int | None
    """Number of random probes per token that estimate how tokens move each other; empty if exact."""
    entrywise: pl.DataFrame
    """Table: the columns layer, head, rank, largest, tail, rms, coherence, rank_within."""
    heads: pl.DataFrame
    """Table: the columns layer, head, beta, beta_2, beta_c, sharpness, perplexity, participation,
    null_participation, random_participation, participation_over_null, participation_over_random,
    largest_column_mean, sink, sink_token, top_column, top_column_rows, top_offset, top_offset_rows,
    largest_logit, logit_bound, logit_typical, spread_over_typical.
    """
    head_findings: pl.DataFrame
    """Table: the columns rule, layer, head, size, sentence, meaning."""
    input_tokens: pl.DataFrame
    """Table: the columns position, id, token."""
    token_map: pl.DataFrame
    """Table: the columns output, output_id, output_token, input, input_id, input_token, norm, share,
    rollout.
    """
    head_attention: pl.DataFrame
    """Table: the columns layer, head, output, output_token, input, input_token, weight."""
    status: str | None
    remark: str | None

@type_check_only
class MarginsResult(Result):
    """A result of `attnlaw.margins`."""
    @property
    def record(self) -> MarginMeasurement: ...
    geometric_mean: Estimate | None
    """Relative margin D (geometric mean over inputs): larger if predictions are further from flipping."""
    mean_log: Estimate | None
    """Mean over inputs of log D, for the relative margin D."""
    median: Range | None
    """Median over inputs of the relative margin D, with a confidence interval."""
    mean: float | None
    """Arithmetic mean over inputs of the relative margin D; a few very confident inputs dominate it."""
    spread: float | None
    """How much the layer's input varies between inputs: standard deviation of a token's entries at the
    same position.
    """
    inputs: int | None
    """Number of inputs that were used."""
    ties: int | None
    """Number of inputs whose two largest logits are equal (margin 0); all means leave them out."""
    flat: int | None
    """Number of inputs whose margin does not change with the layer's input (gradient 0); all means leave
    them out.
    """
    confidence: float | None
    """Mean over inputs of the largest predicted probability, which ranks models less well than D."""
    extension: bool | None
    """Whether the model is a causal language model, for which the relative margin D is not validated."""
    total_kappa: float | None
    """Condition number κ (median over inputs): changing all weights by a fraction 1/κ could flip a
    prediction.
    """
    kappa_layer: int | None
    """Layer with the largest condition number κ, not counting matrices outside of the layers."""
    compared_with: str | None
    """First model of the command, which this model is compared with."""
    log_ratio: Estimate | None
    """Mean over inputs of log D of this model minus log D of the first model."""
    comparison: str | None
    """Comparison of this model with the first one, in words."""
    inputs_sha256: str | None
    """SHA-256 hash of the token ids of all inputs: equal if two runs used the same inputs."""
    margins: pl.DataFrame
    """Table: the columns model, input, tokens, position, predicted, margin, gradient, distance,
    confidence, status.
    """
    condition: pl.DataFrame
    """Table: the columns model, layer, kind, name, norm, kappa, share."""
    kappa_layers: pl.DataFrame
    """Table: the columns model, layer, place, kappa."""
    amplification: pl.DataFrame
    """Table: the columns model, layer, output, median, max, iterations, residual, log10_measured,
    log10_worst_case.
    """
    directions: pl.DataFrame
    """Table: the columns model, layer, head, kind, rank, log10_scale, p, log10_scale_measured, p_measured,
    effective_directions, directions, directions_share.
    """
    kappa_kinds: pl.DataFrame
    """Table: the columns model, kind, kappa."""
    pairs: pl.DataFrame
    """Table: the columns model, compared_with, inputs."""
    status: str | None
    remark: str | None

@type_check_only
class LimitResult(Result):
    """A result of `attnlaw.limit`."""
    @property
    def record(self) -> WidthRow: ...
    score_variance: Estimate | None
    """Variance of the attention score of the chosen token with itself, in the last layer."""
    output_variance: Estimate | None
    """Variance of one coordinate of the output of the chosen token."""
    kurtosis: Estimate | None
    """Kurtosis of one coordinate of the output: 3 for a Gaussian, more for heavier tails."""
    kl_to_limit: Estimate | None
    """KL divergence of the output from the infinite-width limit in nats; 0 means equal."""
    w1_to_limit: Estimate | None
    """Wasserstein-1 distance between the output and the infinite-width limit, in the units of the output."""
    ks_to_limit: Estimate | None
    """Largest difference between the cumulative distributions of the output and of the infinite-width
    limit (Kolmogorov-Smirnov).
    """
    residual_of_distances: float | None
    """Numerical error of the computed densities: how far the area below a density is from 1."""
    kl_to_other_limit: Estimate | None
    """KL divergence of the output from the limit with the scaling of --other-scaling, in nats."""
    kl_to_gaussian: Estimate | None
    """KL divergence of the output from the Gaussian of equal mean and variance, in nats."""
    kernel_kl_to_limit: float | None
    """KL divergence from the limit by kernel density estimates, as in arXiv 2506.00846, which overestimate
    it.
    """
    path_squared_length: list[Estimate | None] | None
    """Squared length of the chosen token divided by the width, before the first and after each layer."""
    path_cosine: list[Estimate | None] | None
    """Mean cosine between different tokens, before the first and after each layer; 1 means that all are
    parallel.
    """
    densities: pl.DataFrame
    """Table: the columns y, density, gaussian_density, ratio."""
    status: str | None
    remark: str | None

@type_check_only
class AttentionResult(Result):
    """A result of `attnlaw.attention`."""
    @property
    def record(self) -> AttentionSpectrum: ...
    equivalent_w1: Estimate | None
    """Mean distance (Wasserstein-1) between squared singular values of random layers and of their Gaussian
    equivalent (attention replaced by a Gaussian matrix), divided by the mean.
    """
    equivalent_distance: Estimate | None
    """Largest difference between the cumulative distributions of random layers and of their Gaussian
    equivalent (attention replaced by a Gaussian matrix).
    """
    law_w1: Estimate | None
    """Mean distance (Wasserstein-1) between the squared singular values of random layers and the predicted
    ones, divided by their mean.
    """
    law_distance: Estimate | None
    """Largest difference between the cumulative distributions of random layers and of the prediction
    (Kolmogorov-Smirnov).
    """
    mean: float | None
    """Predicted mean of the squared singular values."""
    edges: list[float] | None
    """Lower and upper end of each interval of predicted squared singular values, in increasing order."""
    atom_at_zero: float | None
    """Predicted share of singular values that are zero."""
    spike: float | None
    """Predicted squared singular value above all others, if only the constant 1/n is subtracted (our
    extension).
    """
    spike_found: Estimate | None
    """Largest squared singular value of the drawn layers, if only the constant 1/n is subtracted."""
    coefficient_error: float | None
    """Squared error of a ridge regression on the layer's output, relative to learning nothing (1)."""
    degrees_of_freedom: float | None
    """Number of directions that a ridge regression on the output uses, divided by the number of tokens."""
    arrival_time: float | None
    """Training time until a linear regression on the output reaches the target loss, times the mean
    squared singular value.
    """
    law_densities: pl.DataFrame
    """Table: the columns x, density, interval."""
    drawn_values: pl.DataFrame
    """Table: the columns value."""
    quantiles: pl.DataFrame
    """Table: the columns level, law, drawn."""
    status: str | None
    remark: str | None

@type_check_only
class InitResult(Result):
    """A result of `attnlaw.init`."""
    @property
    def record(self) -> InitialLaw: ...
    model_width: int | None
    """Width of the model; empty in the limit of infinite width."""
    rms: Estimate | None
    """Root mean square of the entries of the residual stream after the last layer."""
    cosine: Estimate | None
    """Mean cosine between different tokens after the last layer; 1 means that all are parallel."""
    cosine_spread: float | None
    """How much the mean cosine between tokens varies between random initialisations (standard deviation)."""
    effective_rank: Estimate | None
    """Effective number of directions that the tokens span after the last layer; fractions are possible."""
    score_sd: Estimate | None
    """Standard deviation of the attention scores in the first layer."""
    entropy: Estimate | None
    """Mean entropy of attention in the first layer, divided by that of uniform attention: 1 means uniform."""
    logit_sd: Estimate | None
    """Standard deviation of the output logit of a token that is not in the input."""
    loss: Estimate | None
    """Mean loss before training in nats, for the next token (BERT: the token itself); approximate for more
    than 4096 token ids.
    """
    loss_spread: float | None
    """How much the initial loss varies between random initialisations (standard deviation, in nats)."""
    uniform_loss: float | None
    """Loss of a uniform guess in nats: ln V for a vocabulary of V tokens."""
    own_probability: Estimate | None
    """Mean probability that the untrained model gives to the token that it just read."""
    own_cosine: Estimate | None
    """Mean cosine between a token after the last layer and its own embedding, if input and output
    embeddings are shared.
    """
    angle_exponent: Estimate | None
    """Rate at which angles between tokens shrink: slope per layer of log(1 − mean cosine); negative if
    tokens become alike.
    """
    gradient_norm: Estimate | None
    """Norm of the gradient of the loss with respect to the weight matrices of all layers."""
    gradient_exponent: Estimate | None
    """Growth of the gradient norm from layer to layer: mean slope of its logarithm."""
    initialiser: str | None
    """Library and version whose rule for random initial weights is used."""
    layers: pl.DataFrame
    """Table: the columns layer, rms, rms_spread, rms_low, rms_high, cosine, cosine_spread, cosine_low,
    cosine_high, effective_rank, effective_rank_spread, effective_rank_low, effective_rank_high,
    entropy, entropy_spread, entropy_low, entropy_high, score_sd, score_sd_spread, score_sd_low,
    score_sd_high, gradient, gradient_spread, gradient_low, gradient_high.
    """
    gradients: pl.DataFrame
    """Table: the columns layer, matrix, gradient, gradient_spread, gradient_low, gradient_high."""
    architecture: pl.DataFrame
    """Table: the columns model_type, random."""
    status: str | None
    remark: str | None

@type_check_only
class LearnResult(Result):
    """A result of `attnlaw.learn`."""
    @property
    def record(self) -> DetailedPrediction: ...
    estimation_error: Estimate | None
    """Squared Frobenius distance between the learned and the target matrix, divided by the token dimension
    d.
    """
    prediction_error: Estimate | None
    """Mean loss on new samples with noise-free labels."""
    training_loss: Estimate | None
    """Mean loss on the training samples, without the weight-decay term."""
    overlap: Estimate | None
    """Inner product of the learned and the target matrix, divided by the token dimension d."""
    norm: Estimate | None
    """Squared Frobenius norm of the learned matrix, divided by the token dimension d."""
    rank_fraction: Estimate | None
    """Rank of the learned matrix, divided by the token dimension d."""
    trace: Estimate | None
    """Mean eigenvalue of the learned matrix."""
    nuclear_norm: Estimate | None
    """Mean singular value of the learned matrix (untied attention)."""
    angle: Estimate | None
    """Angle between the learned and the target matrix in radians; 0 means equal up to a factor (cross-
    entropy only).
    """
    wrong_keys: Estimate | None
    """Share of new queries for which the learned head attends most to a wrong key."""
    noise_level: Estimate | None
    """Noise that finite data add to the target matrix, according to theory (standard deviation of an
    entry, times √d).
    """
    threshold: Estimate | None
    """Amount that weight decay subtracts from every eigenvalue; smaller eigenvalues become zero."""
    cut: Estimate | None
    """Value below which factors that are too narrow set eigenvalues to zero."""
    smallest_value: float | None
    """Smallest nonzero singular value that narrow factors keep; 0 if weight decay limits the rank instead."""
    stability: float | None
    """Stability of the theory's solution (replicon value): above 1, different starts may give different
    results.
    """
    shrinkage: float | None
    """Factor by which training shrinks the eigenvalues that it keeps."""
    relative_error: Estimate | None
    """Error relative to a student that learned nothing: 0 for the target itself, 1 for a zero matrix."""
    approximation_error: float | None
    """Part of the error E from large eigenvalues that were found, but not exactly (attnlaw's own split)."""
    underfitting_error: float | None
    """Part of the error E that is still missing from the learned matrix (underfitting; attnlaw's own
    split).
    """
    overfitting_error: float | None
    """Part of the error E from what the student learned beyond the target (overfitting; attnlaw's own
    split).
    """
    adapter_noise: float | None
    """Noise that a rank-one adapter sees if it is trained afterwards: Δ/2 + E (arXiv 2606.05899)."""
    residual: float | None
    """Relative error of the numerical solution of the theory's equations."""
    atom_at_zero: float | None
    """Share of the learned matrix's eigenvalues that are zero."""
    edges: list[float] | None
    """Lower and upper end of each interval that contains learned eigenvalues, in increasing order."""
    top_edge: float | None
    """Largest eigenvalue of the learned matrix, not counting outliers."""
    outlier_locations: list[float] | None
    """Eigenvalues of the learned matrix that are far above all others (outliers)."""
    outlier_overlaps: list[float] | None
    """Squared cosine between each outlier's eigenvector and that of the target eigenvalue behind it."""
    outlier_targets: list[float] | None
    """Target eigenvalue behind each outlier of the learned matrix."""
    outlier: float | None
    """Eigenvalue of the learned matrix that belongs to the target's one large eigenvalue (spike)."""
    observations: float | None
    """Number of attention scores with a label, divided by the token dimension d (targets with power-law
    eigenvalues).
    """
    leading_error: float | None
    """Error E that a simple scaling law predicts (leading order for many scores)."""
    predicted_exponent: float | None
    """Exponent of the power law with which the error falls with the number of scores, according to a
    simple scaling law.
    """
    threshold_recovery: float | None
    """Samples that trained factors need to find the target matrix exactly, divided by d² (noise-free
    labels).
    """
    threshold_feasibility: float | None
    """Samples from which only the target matrix fits the labels, divided by d² (noise-free labels)."""
    threshold_bayes: float | None
    """Samples that the best possible estimate needs to find the target matrix exactly, divided by d²
    (noise-free labels).
    """
    threshold_direct: float | None
    """Samples that a directly trained matrix needs to find the target matrix exactly, divided by d²
    (noise-free labels).
    """
    threshold_own_recovery: float | None
    """Samples that the chosen student needs to find the target matrix exactly, divided by d² (noise-free
    labels).
    """
    threshold_interpolation: float | None
    """Samples up to which the chosen student fits noisy labels exactly, divided by d²."""
    threshold_peak_error: float | None
    """Error E at the number of samples up to which noisy labels are fitted exactly, without weight decay."""
    predicted_spectra: pl.DataFrame
    """Table: the columns x, density, interval."""
    status: str | None
    remark: str | None

@type_check_only
class DynamicsResult(Result):
    """A result of `attnlaw.dynamics`."""
    @property
    def record(self) -> TrajectoryRows: ...
    recovery_time: float | None
    """Training time at which the alignment with the target first reaches 0.5."""
    recovery_time_90: float | None
    """Training time at which the alignment with the target first reaches 0.9."""
    recovery_samples: float | None
    """Number of samples, divided by d², at which the alignment first reaches 0.5; empty for gradient flow."""
    alignment: Estimate | None
    """Cosine between the learned and the target matrix: 0 means nothing learned, 1 means equal up to a
    factor.
    """
    estimation_error: Estimate | None
    """Squared Frobenius distance between the learned and the target matrix, divided by the token dimension
    d.
    """
    prediction_error: Estimate | None
    """Mean loss on new samples with noise-free labels."""
    overlap: Estimate | None
    """Inner product of the learned and the target matrix, divided by the token dimension d."""
    norm: Estimate | None
    """Squared Frobenius norm of the learned matrix, divided by the token dimension d."""
    trace: Estimate | None
    """Mean eigenvalue of the learned matrix."""
    samples: float | None
    """Number of samples seen in the whole training, divided by d²; empty for gradient flow."""
    plateaus: list[float] | None
    """Start and end of each interval of training time in which nothing is learned (plateaus)."""
    largest_rate: float | None
    """Largest learning rate at which training stays at the target matrix."""
    plateau_error: float | None
    """Error E that SGD with this learning rate cannot get below."""
    trajectory: pl.DataFrame
    """Table: the columns time, samples, alignment, estimation_error, prediction_error, overlap, norm,
    trace.
    """
    spectra: pl.DataFrame
    """Table: the columns time, x, density."""
    tracks: pl.DataFrame
    """Table: the columns time, target, location, squared_overlap, edge."""
    statics: pl.DataFrame
    """Table: the columns samples, minimiser_error, bayes_error."""
    status: str | None
    remark: str | None

@type_check_only
class LoadedResult(Result):
    """A result that was read from a directory: its attributes are those of its verb."""
    def __getattr__(self, name: str) -> Any: ...

def load(directory: str | os.PathLike[str]) -> LoadedResult:
    """Read a result from a directory that a command, a study, a monitor or `Result.save` wrote.

    Args:
        directory: A directory with the file attnlaw.json.

    Returns:
        The same result, but without the records (Python objects). Its tables and quantities are attributes as
        before.

    >>> import attnlaw
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = attnlaw.learn(alpha=0.3).save(folder)
    ...     attnlaw.load(folder).rows["alpha"].to_list()
    [0.3]
    """

def audit(
    model: Any,
    *more: Any,
    layers: str | int | slice | Iterable[int] | None = None,
    only: str | Sequence[str] | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    unscaled: bool = False,
    name: str | None = None,
    jobs: int | None = None,
    samples: int | None = None,
    approximate: bool = False,
    precision: Literal["storage", "double"] = "storage",
    exact: bool = False,
    as_stored: bool = False,
    experts: int | None = None,
    no_laws: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AuditResult:
    """Check a trained Transformer: look for problems, untrained weights, and unusual spectra.

    An audit reads only the weights. It needs no data, no GPU, and no PyTorch for safetensors. It looks for
    broken tensors, compares every weight matrix with random ones, and compares the model with other trained
    models. A LoRA adapter is audited alone, or added to its base model with `adapter`. Generalization proxies
    (leading factors of bounds) need every matrix, so there are none with `layers`, `only` or `experts`.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        model (path or object, or several): Checkpoint: a file, a directory, a shard index, or an id on
            a model hub (owner/name). In Python also a state dict or a module.
        more: Further values of model.
        layers (str, int, slice or Iterable[int]; optional): Only measure these layers: a slice such as
            0:4, or numbers such as 0,1,-1 (-1 is the last).
        only (str or list of str; optional): Take only these groups of matrices, joined by commas: qk,
            vo, cross, ffn, embedding, unembedding.
        heads (int; optional): Number of attention heads per layer, if there is no config.json that
            states it.
        map (str or path; optional): File that says which tensors a model has, for an architecture that
            attnlaw does not know.
        adapter (str or path; optional): Directory of a LoRA adapter to add to the model.
        unscaled (bool; default False): Read float8 weights that come without a scale as they are
            stored, instead of stopping.
        name (str; optional): Name of the model in the results (default: its path).
        jobs (int; optional): Number of CPU threads to use (default: all cores).
        samples (int; optional): Number of training samples n. Also shows the generalization proxy
            divided by √n, which is not a bound.
        approximate (bool; default False): Estimate the singular values of matrices whose shorter side
            is at least 8192, and show the errors.
        precision ("storage" or "double"; default "storage"): Precision of the computation: float64 only
            (double), or float32 for weights of at most 16 bits if exact enough (storage).
        exact (bool; default False): Add up every entry of large matrices for the (1,1) norm (default: a
            random sample of columns).
        as_stored (bool; default False): Show the norms of the stored matrices, without the gain of the
            norm layer before each.
        experts (int; optional): Measure only the first N experts of each layer.
        no_laws (bool; default False): With --out: do not fit distributions (laws) to the spectra, which
            saves time.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `family` (str): model family, such as gpt2.
        - `depth` (int): number of layers; a layer that is used several times counts each time.
        - `hidden_size` (int): width of the layers (hidden size).
        - `matrix_count` (int): number of weight matrices that were measured; QK and VO of each head count
          as one matrix each.
        - `not_random_rejected` (int): number of matrices that do not look random (p-value at most 0.01).
        - `findings_error` (int): number of findings of severity error: results are wrong or useless.
        - `findings_warning` (int): number of findings of severity warning: look at these before you use the
          model.
        - `findings_note` (int): number of findings of severity note: worth knowing, and often intended.
        - `log10_spectrum_adaptive` (Estimate): log10 of the generalization proxy: spectrum-adaptive, best
          exponent p for each matrix.
        - `log10_edelman` (Estimate): log10 of the generalization proxy: norm-based, (2,1) norms of Edelman.

        Further quantities: codes, distinct_layers, head_count, activation, not_random_tested,
        not_random_expected, not_random_p_value, rejected_share, median_outliers,
        median_effective_rank_qk, log10_amplification, finding_rules, logit_heads, logit_heads_bounded,
        logit_heads_beyond_float8, logit_heads_beyond_float16, logit_unbounded,
        log10_spectrum_adaptive_continuous, log10_fixed_p_0, log10_fixed_p_1, log10_fixed_p_2,
        log10_trauger_tewari, per_application_log10_spectrum_adaptive,
        per_application_log10_spectrum_adaptive_continuous, per_application_log10_fixed_p_0,
        per_application_log10_fixed_p_1, per_application_log10_fixed_p_2, per_application_log10_edelman,
        per_application_log10_trauger_tewari, proxy_over_sqrt_samples_log10, value_of_adaptivity,
        rank_count, norms, norms_unknown, extensions, warnings, meaning.

        Its tables are also attributes:

        - `findings`: the columns model, rule, level, layer, stack, head and 6 more.
        - `matrices`: the columns model, layer, stack, head, expert, kind and 43 more.
        - `spectra`: the columns model, layer, stack, head, expert, kind and 2 more.
        - `layers`: the columns model, layer, stack, applications, log10_alpha, log10_alpha_applied and 5
          more.
        - `applications`: the columns layer, log10_alpha, log10_alpha_applied.
        - `towers`: the columns tower, layers, hidden_size, heads, activation, log10_spectrum_adaptive and 6
          more.
        - `atlas`: the columns column, value, trained_low, trained_high, trained_models, trained_below and 8
          more.
        - `fits`: the columns model, layer, stack, head, expert, kind and 43 more.
        - `curves`: the columns curve, null_shape, model, layer, stack, head and 5 more.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.audit("examples/tiny-decoder", only="qk")
        >>> result.matrix_count, result.matrices["layer"].n_unique()
        (16, 4)
    """

def fit(
    model: Any,
    *more: Any,
    layers: str | int | slice | Iterable[int] | None = None,
    only: str | Sequence[str] | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    unscaled: bool = False,
    name: str | None = None,
    jobs: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> FitResult:
    """Find out which known distribution (law) the singular values of each matrix follow.

    A matrix may look random, follow the theory of trained attention, have heavy tails, or none of these.

    random: looks like random numbers of this shape, as at initialisation
    learned: some directions were learned, and the others are zero, as theory predicts for trained attention
    heavy-tailed: the singular values fall off smoothly and spread further than those of a random matrix
    power-law tail: no law fits the whole spectrum, but the largest values (at most half) follow a power law
    power-law spectrum: no law fits the whole spectrum, but a power law fits more than half of the values
    neither: the matrix differs from random numbers, and none of the laws fits it (which is not a problem)

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        model (path or object, or several): Checkpoint: a file, a directory, a shard index, or an id on
            a model hub (owner/name). In Python also a state dict or a module.
        more: Further values of model.
        layers (str, int, slice or Iterable[int]; optional): Only measure these layers: a slice such as
            0:4, or numbers such as 0,1,-1 (-1 is the last).
        only (str or list of str; optional): Take only these groups of matrices, joined by commas: qk,
            vo, cross, ffn, embedding, unembedding.
        heads (int; optional): Number of attention heads per layer, if there is no config.json that
            states it.
        map (str or path; optional): File that says which tensors a model has, for an architecture that
            attnlaw does not know.
        adapter (str or path; optional): Directory of a LoRA adapter to add to the model.
        unscaled (bool; default False): Read float8 weights that come without a scale as they are
            stored, instead of stopping.
        name (str; optional): Name of the model in the results (default: its path).
        jobs (int; optional): Number of CPU threads to use (default: all cores).
        seed (int; default 0): Seed of the random matrices and of the bootstrap test.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `matrix_count` (int): number of weight matrices that were measured; QK and VO of each head count
          as one matrix each.
        - `random_count` (int): number of matrices that follow the law random: looks like random numbers of
          this shape, as at initialisation.
        - `learned_count` (int): number of matrices that follow the law learned: some directions were
          learned, and the others are zero, as theory predicts for trained attention.
        - `heavy_tailed_count` (int): number of matrices that follow the law heavy-tailed: the singular
          values fall off smoothly and spread further than those of a random matrix.
        - `power_law_tail_count` (int): number of matrices that follow the law power-law tail: no law fits
          the whole spectrum, but the largest values (at most half) follow a power law.
        - `power_law_spectrum_count` (int): number of matrices that follow the law power-law spectrum: no
          law fits the whole spectrum, but a power law fits more than half of the values.
        - `neither_count` (int): number of matrices that follow the law neither: the matrix differs from
          random numbers, and none of the laws fits it (which is not a problem).
        - `not_random_tested` (int): number of matrices that were tested against random ones.
        - `not_random_rejected` (int): number of matrices that do not look random (p-value at most 0.01).
        - `not_random_expected` (float): number of matrices that would not look random by chance alone, if
          the model were untrained.
        - `not_random_p_value` (float): p-value: probability that at least as many matrices of an untrained
          model do not look random.

        Its tables are also attributes:

        - `fits`: the columns model, layer, stack, head, expert, kind and 43 more.
        - `curves`: the columns curve, null_shape, model, layer, stack, head and 5 more.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.fit("examples/tiny-decoder", layers=0, only="qk")
        >>> result.fits["law"].to_list()
        ['heavy-tailed', 'heavy-tailed', 'heavy-tailed', 'heavy-tailed']
    """

def diff(
    base: Any,
    model: Any,
    *more: Any,
    layers: str | int | slice | Iterable[int] | None = None,
    only: str | Sequence[str] | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    unscaled: bool = False,
    name: str | None = None,
    jobs: int | None = None,
    applied: bool = False,
    no_match: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> DiffResult:
    """Compare checkpoints with their base: what changed, where, how much, and what it looks like.

    Each tensor gets a verdict, such as identical, rounded to bfloat16, low-rank (an adapter), dense (full
    fine-tuning), rescaled, or moved from another layer. Each head and feed-forward matrix gets the size and
    the rank of its change, and the number of its new directions. If you give a LoRA adapter in place of a
    model, attnlaw adds it to the base.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        base (path or object): Checkpoint to compare with: the model before training, quantising or
            merging.
        model (path or object, or several): Checkpoint: a file, a directory, a shard index, or an id on
            a model hub (owner/name). In Python also a state dict or a module.
        more: Further values of model.
        layers (str, int, slice or Iterable[int]; optional): Only measure these layers: a slice such as
            0:4, or numbers such as 0,1,-1 (-1 is the last).
        only (str or list of str; optional): Take only these groups of matrices, joined by commas: qk,
            vo, cross, ffn, embedding, unembedding.
        heads (int; optional): Number of attention heads per layer, if there is no config.json that
            states it.
        map (str or path; optional): File that says which tensors a model has, for an architecture that
            attnlaw does not know.
        adapter (str or path; optional): Directory of a LoRA adapter to add to the model.
        unscaled (bool; default False): Read float8 weights that come without a scale as they are
            stored, instead of stopping.
        name (str; optional): Name of the model in the results (default: its path).
        jobs (int; optional): Number of CPU threads to use (default: all cores).
        applied (bool; default False): Include the gain of the norm layer before each matrix (default:
            compare the matrices as stored).
        no_match (bool; default False): Do not check whether heads or neurons are in another order than
            in the base.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `largest_size` (float): largest change of a head or feed-forward matrix relative to the base,
          |model − base| / |base|.
        - `worst_map` (str): head or feed-forward matrix that changed most.
        - `new` (int): number of the model's leading directions that are not combinations of similarly
          strong base directions.

        Further quantities: verdict, compared, next_step, verdicts, map_count, tensor_count,
        not_compared, tensors_non_finite, tensors_reshaped, tensors_added, tensors_removed,
        tensors_identical, tensors_zeroed, tensors_coded, tensors_rounded, tensors_rescaled,
        tensors_below_floor, tensors_sparse, tensors_low_rank, tensors_partly_hidden,
        tensors_reinitialised, tensors_unrelated, tensors_noise, tensors_dense, tensors_changed,
        tensors_moved, tensors_transposed, tensors_permuted, size_qk, size_vo, size_cross_qk,
        size_cross_vo, size_ffn_in, size_ffn_gate, size_ffn_out, scale_qk, scale_vo, scale_cross_qk,
        scale_cross_vo, scale_ffn_in, scale_ffn_gate, scale_ffn_out, worst_tensor, worst_tensor_size,
        least_sqnr_db, intruders.

        Its tables are also attributes:

        - `diff`: the columns model, layer, stack, kind, head, expert and 25 more.
        - `diff_tensors`: the columns model, tensor, shape, dtype_base, dtype_model, verdict and 21 more.
        - `diff_spectra`: the columns model, layer, stack, kind, head, expert and 2 more.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> model = "examples/tiny-decoder"
        >>> attnlaw.diff(model, model, only="qk").verdict
        'Identical: the 8 compared tensors are equal.'
    """

def check(
    model: Any = None,
    *more: Any,
    layers: str | int | slice | Iterable[int] | None = None,
    only: str | Sequence[str] | None = None,
    heads: int | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    unscaled: bool = False,
    name: str | None = None,
    jobs: int | None = None,
    rules: str | os.PathLike[str] | None = None,
    base: Any = None,
    baseline: str | os.PathLike[str] | None = None,
    fail_on: Literal["warning", "error"] | None = None,
    approximate: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Check whether a checkpoint is damaged or breaks your rules, and fail if it is or does.

    Without rules, the check fails if attnlaw finds a problem of severity error. Rules compare numbers of an
    audit, a fit or a diff with limits.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        model (path or object, or several; optional): Checkpoint: a file, a directory, a shard index, or
            an id on a model hub (owner/name). In Python also a state dict or a module.
        more: Further values of model.
        layers (str, int, slice or Iterable[int]; optional): Only measure these layers: a slice such as
            0:4, or numbers such as 0,1,-1 (-1 is the last).
        only (str or list of str; optional): Take only these groups of matrices, joined by commas: qk,
            vo, cross, ffn, embedding, unembedding.
        heads (int; optional): Number of attention heads per layer, if there is no config.json that
            states it.
        map (str or path; optional): File that says which tensors a model has, for an architecture that
            attnlaw does not know.
        adapter (str or path; optional): Directory of a LoRA adapter to add to the model.
        unscaled (bool; default False): Read float8 weights that come without a scale as they are
            stored, instead of stopping.
        name (str; optional): Name of the model in the results (default: its path).
        jobs (int; optional): Number of CPU threads to use (default: all cores).
        rules (str or path; optional): Rule file, or one that comes with attnlaw: export, fine-tune or
            release (watchdog is for training). By default there are no rules.
        base (path or object; optional): Checkpoint that rules about a diff compare the model with. By
            default, the base in the rule file.
        baseline (str or path; optional): Earlier result (directory of audit --out or diff --out). Its
            findings do not count again, and rules can limit changes since then.
        fail_on ("warning" or "error"; optional): Lowest severity of a finding or failed rule that fails
            the check (default: the level in the rule file, or error).
        approximate (bool; default False): Estimate the singular values of matrices whose shorter side
            is at least 8192, and show the errors.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `headline` (str): result of the check in one sentence.
        - `not_checked` (str): properties that nobody can check from the weights alone, such as the number
          of heads.
        - `passed` (bool): whether the model passed the check.
        - `exit_status` (int): exit status of the command: 0 if the model passed, 3 if it failed.
        - `fail_on` (str): lowest severity that fails the check: warning or error.
        - `rule_count` (int): number of rules that were applied.
        - `failed_rules` (int): number of rules that failed, including those that do not fail the check.
        - `errors` (int): number of errors that attnlaw found and that the baseline does not have.
        - `warnings` (int): number of warnings that attnlaw found and that the baseline does not have.
        - `notes` (int): number of notes that attnlaw found and that the baseline does not have.
        - `known_findings` (int): number of findings that do not count, because the baseline already had
          them.

        Its tables are also attributes:

        - `verdicts`: the columns model, rule, of, asked, level, outcome and 6 more.
        - `findings`: the columns model, rule, level, layer, stack, head and 8 more.
        - `verdict_values`: the columns model, rule, found.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> attnlaw.check("examples/tiny-decoder").passed
        True
    """

def lens(
    model: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *more: Any,
    text: str | Sequence[str] | None = None,
    file: str | os.PathLike[str] | None = None,
    ids: str | Sequence[int] | None = None,
    entrywise: str | Sequence[int] | None = None,
    only: Literal["heads", "operator", "entrywise"] | None = None,
    top: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LensResult:
    """Show what the heads of a model do on one input, and which input tokens shape its output.

    For each head, attnlaw reports how sharply it attends, where it looks, how many directions its attention
    has, and how large its logits get. It also computes how much each input token moves each output token,
    from an exact linear form of the whole forward pass (TensorLens, arXiv 2601.17958). This takes long for a
    long input; `only` heads leaves it out. With `entrywise`, attnlaw reports to which rank the attention of a
    head can be reduced, and the error at lower ranks. This command needs the optional packages of
    attnlaw[lens].

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        model (str or path, or several): Directory of a Hugging Face model, with config.json and
            weights.
        more: Further values of model.
        text (str or list of str; optional): Text to give to the model. attnlaw splits it into tokens
            with the tokenizer.json next to the model. If the model has 256 ids and no tokenizer, the
            tokens are bytes. Repeat the option for several texts (lens takes one).
        file (str or path; optional): File with one input on each line: texts (.txt), or objects with
            text or ids (.jsonl).
        ids (str or list of int; optional): Token ids to give to the model. @FILE reads one list from
            each line.
        entrywise (str or list of int; optional): Ranks to which every head's attention matrix is
            reduced, to measure the largest error of a weight.
        only ("heads", "operator" or "entrywise"; optional): Compute only one part: heads, operator (how
            tokens move each other), or entrywise (errors of low-rank attention).
        top (int; default 8): Number of singular values to compute of the map from input tokens to
            output tokens.
        seed (int; default 0): Seed of the random heads that heads are compared with, and of random
            probes for long inputs.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `median_rank_within` (int): rank to which half of the heads can be reduced while every attention
          weight stays within 0.01.
        - `largest_rank_within` (int): rank to which all heads can be reduced while every attention weight
          stays within 0.01.
        - `family` (str): model type that config.json states, such as gpt2.
        - `layers` (int): number of attention blocks.
        - `tokens` (int): number of tokens in the input.
        - `hidden_size` (int): width of the model: number of entries of a token's vector.
        - `head_count` (int): number of heads that were measured.
        - `median_beta` (float): median over heads of the sharpness β: standard deviation of a position's
          attention logits.
        - `heads_below_beta_2` (int): number of diffuse heads: sharpness below β₂ = √(ln n / 2) for n
          tokens, so theory of random attention can hold.
        - `heads_above_beta_c` (int): number of sharp heads: sharpness above β_c = √(2 ln n) for n tokens,
          so positions attend to only a few tokens.
        - `score_error` (float): largest difference between the model's own attention weights and those that
          attnlaw computed, as a check.
        - `reconstruction_error` (float): relative difference between the model's own output and the one
          that attnlaw computed, as a check.
        - `offset_share` (float): size of the part of the output that comes from biases, relative to the
          whole; above 1 if parts cancel.
        - `singular_values` (list[float]): largest singular values of the map from input tokens to output
          tokens, with attention and norms fixed.
        - `singular_values_residual` (float): numerical error of the singular values: largest residual |Tᵀu
          − σv|, divided by the largest singular value.
        - `probes` (int): number of random probes per token that estimate how tokens move each other; empty
          if exact.

        Its tables are also attributes:

        - `entrywise`: the columns layer, head, rank, largest, tail, rms and 2 more.
        - `heads`: the columns layer, head, beta, beta_2, beta_c, sharpness and 17 more.
        - `head_findings`: the columns rule, layer, head, size, sentence, meaning.
        - `input_tokens`: the columns position, id, token.
        - `token_map`: the columns output, output_id, output_token, input, input_id, input_token and 3 more.
        - `head_attention`: the columns layer, head, output, output_token, input, input_token and 1 more.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.lens("examples/tiny-decoder", ids=[84, 104, 101], only="heads")
        >>> result.head_count, result.heads.height
        (16, 16)
    """

def margins(
    model: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *more: Any,
    text: str | Sequence[str] | None = None,
    file: str | os.PathLike[str] | None = None,
    ids: str | Sequence[int] | None = None,
    limit: int = 200,
    positions: Literal["last", "sample"] = "last",
    at: int = 0,
    kappa: bool = False,
    amplification: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> MarginsResult:
    """Compare trained models of one task on inputs without labels.

    D is the relative margin: the margin of the model's own prediction, divided by its gradient and by the
    spread of the inputs. The larger D, the further predictions are from flipping, and the smaller the gap to
    expect between training and test error. D compares models of one task, trained to a similar loss, on the
    same inputs. It is not an error rate, and it has not been validated for causal language models. Give
    inputs that training did not see: at least 12, better 32, ideally 200. Each further model is compared with
    the first. This command needs the optional packages of attnlaw[lens].

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.

    Args:
        model (str or path, or several): Directory of a Hugging Face model, with config.json and
            weights.
        more: Further values of model.
        text (str or list of str; optional): Text to give to the model. attnlaw splits it into tokens
            with the tokenizer.json next to the model. If the model has 256 ids and no tokenizer, the
            tokens are bytes. Repeat the option for several texts (lens takes one).
        file (str or path; optional): File with one input on each line: texts (.txt), or objects with
            text or ids (.jsonl).
        ids (str or list of int; optional): Token ids to give to the model. @FILE reads one list from
            each line.
        limit (int; default 200): Number of inputs to use, from the first one on.
        positions ("last" or "sample"; default "last"): Token at which a causal language model's margin
            is measured: the last, or a random one (sample).
        at (int; default 0): Index of the layer whose input is varied, to see how much change flips a
            prediction (0: the first layer).
        kappa (bool; default False): Also show which weights the margin depends on most: the condition
            number κ of every linear layer.
        amplification (bool; default False): Also measure how much each layer amplifies small changes,
            and how many directions of each matrix these inputs need.
        seed (int; default 0): Seed of random positions and of the start of power iterations. Equal
            seeds give equal results.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `geometric_mean` (Estimate): relative margin D (geometric mean over inputs): larger if predictions
          are further from flipping.
        - `mean_log` (Estimate): mean over inputs of log D, for the relative margin D.
        - `median` (Range): median over inputs of the relative margin D, with a confidence interval.
        - `mean` (float): arithmetic mean over inputs of the relative margin D; a few very confident inputs
          dominate it.
        - `spread` (float): how much the layer's input varies between inputs: standard deviation of a
          token's entries at the same position.
        - `inputs` (int): number of inputs that were used.
        - `ties` (int): number of inputs whose two largest logits are equal (margin 0); all means leave them
          out.
        - `flat` (int): number of inputs whose margin does not change with the layer's input (gradient 0);
          all means leave them out.
        - `confidence` (float): mean over inputs of the largest predicted probability, which ranks models
          less well than D.
        - `extension` (bool): whether the model is a causal language model, for which the relative margin D
          is not validated.
        - `total_kappa` (float): condition number κ (median over inputs): changing all weights by a fraction
          1/κ could flip a prediction.
        - `kappa_layer` (int): layer with the largest condition number κ, not counting matrices outside of
          the layers.
        - `compared_with` (str): first model of the command, which this model is compared with.
        - `log_ratio` (Estimate): mean over inputs of log D of this model minus log D of the first model.
        - `comparison` (str): comparison of this model with the first one, in words.
        - `inputs_sha256` (str): SHA-256 hash of the token ids of all inputs: equal if two runs used the
          same inputs.

        Its tables are also attributes:

        - `margins`: the columns model, input, tokens, position, predicted, margin and 4 more.
        - `condition`: the columns model, layer, kind, name, norm, kappa and 1 more.
        - `kappa_layers`: the columns model, layer, place, kappa.
        - `amplification`: the columns model, layer, output, median, max, iterations and 3 more.
        - `directions`: the columns model, layer, head, kind, rank, log10_scale and 6 more.
        - `kappa_kinds`: the columns model, kind, kappa.
        - `pairs`: the columns model, compared_with, inputs.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> model, file = "examples/tiny-decoder", "examples/sentences.txt"
        >>> attnlaw.margins(model, file=file, limit=12).inputs
        12
    """

def limit(
    *,
    tokens: int | str | Iterable[int | str] = 4,
    activation: str | Iterable[str] = "identity",
    embeddings: str | os.PathLike[str] | None = None,
    ids: str | Sequence[int] | None = None,
    gram: str | os.PathLike[str] | None = None,
    token: int = 1,
    heads: int | str | Iterable[int | str] = 2,
    width: float | str | Iterable[float | str] = ...,
    head_width: int | str | Iterable[int | str] | None = None,
    score: Literal["softmax", "relu", "sigmoid", "linear"]
    | Iterable[Literal["softmax", "relu", "sigmoid", "linear"]] = "softmax",
    mask: str | Iterable[str] = "none",
    scaling: Literal["1/sqrt(n)", "1/n"] | Iterable[Literal["1/sqrt(n)", "1/n"]] = "1/sqrt(n)",
    depth: int | str | Iterable[int | str] = 1,
    residual: bool = False,
    normalise: bool = False,
    draws: int = 50000,
    other_scaling: Literal["1/sqrt(n)", "1/n"] | None = None,
    gaussian: bool = False,
    kernel: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LimitResult:
    """Check whether an attention layer of some width already behaves like its infinite-width limit.

    All weights are random, as before training (arXiv 2506.00846). attnlaw computes how one coordinate of the
    output of one token is distributed over random weights, at each width and in the limit, and compares the
    two. As the width grows with the number of heads fixed, the output does not become Gaussian. Numbers in
    parentheses are standard errors.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works.

    Args:
        tokens (int, or several; default 4): Number of random tokens.
        activation (str, or several; default "identity"): Activation function applied to Gaussian
            vectors to draw the tokens. One of identity, relu, gelu, gelu_new, silu, clip:C.
        embeddings (str or path; optional): Checkpoint whose token embeddings are used instead of random
            tokens.
        ids (str or list of int; optional): Ids of the tokens whose embeddings are used.
        gram (str or path; optional): File with the Gram matrix X X^T / n of the tokens: .npy, or text
            with one row in each line.
        token (int; default 1): Token whose output is analysed (the chosen token), counted from 1.
        heads (int, or several; default 2): Number of attention heads.
        width (float, or several; default inf): Width of the layer; inf is the infinite-width limit.
        head_width (int, or several; optional): Width of each head. The default is the width of the
            layer.
        score ("softmax", "relu", "sigmoid" or "linear", or several; default "softmax"): Function that
            turns scores into attention weights. Only softmax makes them add up to 1.
        mask (str, or several; default "none"): Tokens that a token attends to: all (none), itself and
            earlier ones (causal), or those at most K places away (band:K). One of none, causal, band:K.
        scaling ("1/sqrt(n)" or "1/n", or several; default "1/sqrt(n)"): Factor that multiplies the
            attention scores, for width n. With 1/n, scores vanish in the limit.
        depth (int, or several; default 1): Number of layers. The output of the last one is analysed.
        residual (bool; default False): Add the input of each layer to its output (residual connection).
        normalise (bool; default False): Apply RMSNorm before each layer.
        draws (int; default 50000): Number of random draws for each width. More draws give smaller
            errors.
        other_scaling ("1/sqrt(n)" or "1/n"; optional): Also compute the KL divergence to the limit with
            this other factor of the attention scores.
        gaussian (bool; default False): Also compute the KL divergence to the Gaussian of equal mean and
            variance.
        kernel (bool; default False): Also compute the KL divergence from kernel density estimates, as
            in arXiv 2506.00846 (biased upwards).
        seed (int; default 0): Seed of the random numbers. Equal seeds give equal results.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `score_variance` (Estimate): variance of the attention score of the chosen token with itself, in
          the last layer.
        - `output_variance` (Estimate): variance of one coordinate of the output of the chosen token.
        - `kurtosis` (Estimate): kurtosis of one coordinate of the output: 3 for a Gaussian, more for
          heavier tails.
        - `kl_to_limit` (Estimate): KL divergence of the output from the infinite-width limit in nats; 0
          means equal.
        - `w1_to_limit` (Estimate): Wasserstein-1 distance between the output and the infinite-width limit,
          in the units of the output.
        - `ks_to_limit` (Estimate): largest difference between the cumulative distributions of the output
          and of the infinite-width limit (Kolmogorov-Smirnov).
        - `residual_of_distances` (float): numerical error of the computed densities: how far the area below
          a density is from 1.
        - `kl_to_other_limit` (Estimate): KL divergence of the output from the limit with the scaling of
          --other-scaling, in nats.
        - `kl_to_gaussian` (Estimate): KL divergence of the output from the Gaussian of equal mean and
          variance, in nats.
        - `kernel_kl_to_limit` (float): KL divergence from the limit by kernel density estimates, as in
          arXiv 2506.00846, which overestimate it.
        - `path_squared_length` (list[Estimate | None]): squared length of the chosen token divided by the
          width, before the first and after each layer.
        - `path_cosine` (list[Estimate | None]): mean cosine between different tokens, before the first and
          after each layer; 1 means that all are parallel.

        Its tables are also attributes:

        - `densities`: the columns y, density, gaussian_density, ratio.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.limit(width=[8, 64], draws=1000)
        >>> result.rows["width"].to_list(), result[0].output_variance.error < 0.1
        ([8.0, 64.0], True)
    """

def attention(
    *,
    name: str | None = None,
    beta: float | str | Iterable[float | str] = 1.0,
    tokens: int | str | Iterable[int | str] = 256,
    heads: int | str | Iterable[int | str] = 8,
    head_size: int | str | Iterable[int | str] = 32,
    value_size: int | str | Iterable[int | str] | None = None,
    output_size: int | str | Iterable[int | str] | None = None,
    sharing: Literal["none", "across", "tied"] | Iterable[Literal["none", "across", "tied"]] = "none",
    matrix: Literal["attention", "mean", "values", "output"]
    | Iterable[Literal["attention", "mean", "values", "output"]] = "attention",
    centring: Literal["columns", "mean"] = "columns",
    second_order: bool = False,
    draws: int = 4,
    ridge: float = 0.0001,
    noise_variance: float = 0.1,
    loss: float = 0.1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> AttentionResult:
    """Check whether the singular values of random softmax attention are as theory predicts.

    attnlaw draws random layers and compares their singular values with the prediction of arXiv 2610.10033,
    which assumes orthogonal tokens and random Gaussian weights. First the mean of attention is subtracted.
    Then there is one singular value for each token, including zeros.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works.

    Args:
        name (str; optional): Name of the layer in tables and charts.
        beta (float, or several; default 1.0): Sharpness of attention: standard deviation of the logits
            in a row of attention.
        tokens (int, or several; default 256): Number of tokens (orthogonal vectors).
        heads (int, or several; default 8): Number of heads.
        head_size (int, or several; default 32): Head size: number of entries of a key.
        value_size (int, or several; optional): Number of entries of a value (default: the head size).
        output_size (int, or several; optional): Number of entries of the layer's output (default:
            number of heads times value size).
        sharing ("none", "across" or "tied", or several; default "none"): What heads share: nothing
            (none), one key and value for all heads (across), or keys that are also the values (tied).
        matrix ("attention", "mean", "values" or "output", or several; default "attention"): Matrix to
            analyse: attention of all heads side by side, mean over heads, attention times values, or
            output of the layer.
        centring ("columns" or "mean"; default "columns"): What to subtract from attention first: the
            mean of each column (columns), or the constant 1/n (mean).
        second_order (bool; default False): Correct the prediction for narrow heads (a second-order
            term, which is not in the paper).
        draws (int; default 4): Number of random layers to draw; 0 only computes the prediction.
        ridge (float; default 0.0001): Penalty λ of a ridge regression that reads targets from the
            output, divided by the mean squared singular value.
        noise_variance (float; default 0.1): Noise variance of the regression targets, times n/(d_O m),
            where m is the mean squared singular value.
        loss (float; default 0.1): Training loss that the regression should reach, as a share of the
            loss at the start.
        seed (int; default 0): Seed of the random numbers. Equal seeds give equal results.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `equivalent_w1` (Estimate): mean distance (Wasserstein-1) between squared singular values of
          random layers and of their Gaussian equivalent (attention replaced by a Gaussian matrix), divided
          by the mean.
        - `equivalent_distance` (Estimate): largest difference between the cumulative distributions of
          random layers and of their Gaussian equivalent (attention replaced by a Gaussian matrix).
        - `law_w1` (Estimate): mean distance (Wasserstein-1) between the squared singular values of random
          layers and the predicted ones, divided by their mean.
        - `law_distance` (Estimate): largest difference between the cumulative distributions of random
          layers and of the prediction (Kolmogorov-Smirnov).
        - `mean` (float): predicted mean of the squared singular values.
        - `edges` (list[float]): lower and upper end of each interval of predicted squared singular values,
          in increasing order.
        - `atom_at_zero` (float): predicted share of singular values that are zero.
        - `spike` (float): predicted squared singular value above all others, if only the constant 1/n is
          subtracted (our extension).
        - `spike_found` (Estimate): largest squared singular value of the drawn layers, if only the constant
          1/n is subtracted.
        - `coefficient_error` (float): squared error of a ridge regression on the layer's output, relative
          to learning nothing (1).
        - `degrees_of_freedom` (float): number of directions that a ridge regression on the output uses,
          divided by the number of tokens.
        - `arrival_time` (float): training time until a linear regression on the output reaches the target
          loss, times the mean squared singular value.

        Its tables are also attributes:

        - `law_densities`: the columns x, density, interval.
        - `drawn_values`: the columns value.
        - `quantiles`: the columns level, law, drawn.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.attention(tokens=200, heads=4, head_size=50, beta=0.5)
        >>> round(result.mean, 3), result.law_distance.value < 0.05
        (0.284, True)
    """

def init(
    model: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *more: Any,
    std: float | str | Iterable[float | str] | None = None,
    depth: int | str | Iterable[int | str] | None = None,
    width: str | Iterable[str] = "own",
    keep: Literal["heads", "head-width"] | Iterable[Literal["heads", "head-width"]] = "heads",
    scaling: Literal["1/sqrt(d)", "1/d"] | Iterable[Literal["1/sqrt(d)", "1/d"]] = "1/sqrt(d)",
    tokens: int | str | Iterable[int | str] = 16,
    ids: str | Sequence[int] | None = None,
    padding: int = 0,
    draws: int = 100,
    units: int = 0,
    gradients: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> InitResult:
    """Check how a Transformer starts before training, with random weights as its config.json describes them.

    attnlaw reads only config.json, and no weights of a checkpoint. It computes signals, tokens, attention and
    loss as means over random initialisations, exact at the width of the model for the given tokens. Weights
    are distributed as the transformers library draws them; the authors of the model may have used other
    values. The limits of infinite width extend arXiv 2506.00846, which covers the attention of one layer.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works.

    Args:
        model (str or path, or several): Model: a config.json, its folder, a hub id, or one of gpt2,
            bert and llama-7b.
        more: Further values of model.
        std (float, or several; optional): Standard deviation of the initial weights. The default is the
            value in the config.
        depth (int, or several; optional): Number of layers. The default is the number in the config.
        width (str, or several; default "own"): Width of the model: unchanged (own), infinite (inf), or
            a number to which the model is scaled.
        keep ("heads" or "head-width", or several; default "heads"): What stays fixed if the width
            changes: the number of heads, or the width of a head.
        scaling ("1/sqrt(d)" or "1/d", or several; default "1/sqrt(d)"): Factor that multiplies the
            attention scores, where d is the width of a head. muP uses 1/d.
        tokens (int, or several; default 16): Number of random input tokens, all different.
        ids (str or list of int; optional): Token ids of the input. Only which ids are equal matters,
            not which ids they are.
        padding (int; default 0): Number of tokens at the end of the input that are padding.
        draws (int; default 100): Number of random initialisations to average over.
        units (int; default 0): Draw only this many hidden units of an MLP, which is faster: means and
            covariances stay exact. 0 draws all.
        gradients (int; default 0): Also compute gradient norms over this many initialisations, at the
            model's own width (needs attnlaw[lens]).
        seed (int; default 0): Seed of the random numbers. Equal seeds give equal results.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `model_width` (int): width of the model; empty in the limit of infinite width.
        - `rms` (Estimate): root mean square of the entries of the residual stream after the last layer.
        - `cosine` (Estimate): mean cosine between different tokens after the last layer; 1 means that all
          are parallel.
        - `cosine_spread` (float): how much the mean cosine between tokens varies between random
          initialisations (standard deviation).
        - `effective_rank` (Estimate): effective number of directions that the tokens span after the last
          layer; fractions are possible.
        - `score_sd` (Estimate): standard deviation of the attention scores in the first layer.
        - `entropy` (Estimate): mean entropy of attention in the first layer, divided by that of uniform
          attention: 1 means uniform.
        - `logit_sd` (Estimate): standard deviation of the output logit of a token that is not in the input.
        - `loss` (Estimate): mean loss before training in nats, for the next token (BERT: the token itself);
          approximate for more than 4096 token ids.
        - `loss_spread` (float): how much the initial loss varies between random initialisations (standard
          deviation, in nats).
        - `uniform_loss` (float): loss of a uniform guess in nats: ln V for a vocabulary of V tokens.
        - `own_probability` (Estimate): mean probability that the untrained model gives to the token that it
          just read.
        - `own_cosine` (Estimate): mean cosine between a token after the last layer and its own embedding,
          if input and output embeddings are shared.
        - `angle_exponent` (Estimate): rate at which angles between tokens shrink: slope per layer of log(1
          − mean cosine); negative if tokens become alike.
        - `gradient_norm` (Estimate): norm of the gradient of the loss with respect to the weight matrices
          of all layers.
        - `gradient_exponent` (Estimate): growth of the gradient norm from layer to layer: mean slope of its
          logarithm.
        - `initialiser` (str): library and version whose rule for random initial weights is used.

        Its tables are also attributes:

        - `layers`: the columns layer, rms, rms_spread, rms_low, rms_high, cosine and 19 more.
        - `gradients`: the columns layer, matrix, gradient, gradient_spread, gradient_low, gradient_high.
        - `architecture`: the columns model_type, random.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.init("examples/tiny-decoder", tokens=4, draws=2)
        >>> result.record.draws
        2
    """

def learn(
    *,
    alpha: float | str | Iterable[float | str] = 0.2,
    tokens: int | str | Iterable[int | str] = 1,
    output: Literal["linear", "softmax", "hardmax"]
    | Iterable[Literal["linear", "softmax", "hardmax"]] = "linear",
    beta: float | str | Iterable[float | str] = 1.0,
    loss: Literal["squared", "cross-entropy"] | Iterable[Literal["squared", "cross-entropy"]] = "squared",
    soft_labels: bool = False,
    attention: Literal["tied", "untied"] | Iterable[Literal["tied", "untied"]] = "tied",
    pairs: Literal["all", "distinct", "causal", "cross"]
    | Iterable[Literal["all", "distinct", "causal", "cross"]] = "cross",
    target_rank: float | str | Iterable[float | str] = 0.5,
    target_spike: float | str | Iterable[float | str] | None = None,
    target_exponent: float | str | Iterable[float | str] | None = None,
    target_dimension: int | str | Iterable[int | str] = 1000000,
    target_eigenvalues: str | os.PathLike[str] | None = None,
    noise: float | str | Iterable[float | str] = 0.0,
    weight_decay: float | str | Iterable[float | str] = 0.1,
    width: float | str | Iterable[float | str] | None = None,
    flow_time: float | str | Iterable[float | str] | None = None,
    student: Literal["factorized", "direct", "bayes"]
    | Iterable[Literal["factorized", "direct", "bayes"]] = "factorized",
    thresholds: bool = False,
    spectrum: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LearnResult:
    """Predict what a single attention head learns from n samples.

    Tokens x_a are Gaussian vectors of dimension d. A head with the matrix S gives two tokens a and b the
    attention score h_ab = (x_aᵀ S x_b − δ_ab Tr S)/√d. Labels are the scores of a target matrix S*, plain or
    through a row softmax, with optional noise. The model that learns from the labels (the student) finds a
    matrix Ŝ. By default the target is S* = W₀W₀ᵀ/√(m₀d), where W₀ is a Gaussian d × m₀ matrix. Predictions
    are for large d (arXiv 2509.24914, 2506.01582).

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works.

    Args:
        alpha (float, or several; default 0.2): Number of training samples, divided by d² for tokens of
            dimension d.
        tokens (int, or several; default 1): Number of tokens in each sample.
        output ("linear", "softmax" or "hardmax", or several; default "linear"): What the labels are:
            attention scores (linear), attention weights (softmax), or which score is largest (hardmax,
            bayes student only).
        beta (float, or several; default 1.0): Inverse temperature of the softmax: larger values make
            attention sharper.
        loss ("squared" or "cross-entropy", or several; default "squared"): Training loss: squared error
            of the attention weights, or cross-entropy of the attended key (one query, two keys).
        soft_labels (bool; default False): Use the target's attention weights as labels, instead of one
            key drawn from them.
        attention ("tied" or "untied", or several; default "tied"): Whether queries and keys share
            weights: tied, S = WWᵀ/√(md), or untied, S = W_Q W_Kᵀ/√(md).
        pairs ("all", "distinct", "causal" or "cross", or several; default "cross"): Pairs (query, key)
            that have labels: with keys of another sequence (cross), earlier keys (causal), or all
            different tokens (distinct).
        target_rank (float, or several; default 0.5): Rank of the target matrix (the matrix to learn),
            divided by the token dimension d.
        target_spike (float, or several; optional): One large eigenvalue of the target matrix, apart
            from all others (untied: singular value).
        target_exponent (float, or several; optional): Exponent γ above 1/2: the target matrix has the
            eigenvalues k^−γ for k = 1 to d, in place of a rank.
        target_dimension (int, or several; default 1000000): Token dimension d, if the target matrix has
            power-law eigenvalues.
        target_eigenvalues (str or path; optional): Eigenvalues of the target matrix: numbers with
            commas, or a file (.npy, or lines with an eigenvalue and an optional weight).
        noise (float, or several; default 0.0): Variance of the noise that is added to the labels.
        weight_decay (float, or several; default 0.1): Weight decay λ: adds λ‖W‖²/√κ to the loss for
            factors W with κd columns (untied: half as much), or λd‖S‖² for the direct student.
        width (float, or several; optional): Width of the student's factors divided by d. It only
            matters below the rank that they would learn.
        flow_time (float, or several; optional): Stop training the direct student early, at time t = 2d
            · learning rate · steps (full-batch gradient descent).
        student ("factorized", "direct" or "bayes", or several; default "factorized"): Model that learns
            (student): a product of two factors (factorized), one matrix (direct), or the best possible
            estimate (bayes).
        thresholds (bool; default False): Also show how many samples the student needs to find the
            target matrix exactly (not for hardmax labels).
        spectrum (bool; default False): Also show the predicted density of the learned matrix's
            eigenvalues, as a table.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `estimation_error` (Estimate): squared Frobenius distance between the learned and the target
          matrix, divided by the token dimension d.
        - `training_loss` (Estimate): mean loss on the training samples, without the weight-decay term.
        - `rank_fraction` (Estimate): rank of the learned matrix, divided by the token dimension d.
        - `trace` (Estimate): mean eigenvalue of the learned matrix.
        - `nuclear_norm` (Estimate): mean singular value of the learned matrix (untied attention).
        - `wrong_keys` (Estimate): share of new queries for which the learned head attends most to a wrong
          key.

        Further quantities: prediction_error, overlap, norm, angle, noise_level, threshold, cut,
        smallest_value, stability, shrinkage, relative_error, approximation_error, underfitting_error,
        overfitting_error, adapter_noise, residual, atom_at_zero, edges, top_edge, outlier_locations,
        outlier_overlaps, outlier_targets, outlier, observations, leading_error, predicted_exponent,
        threshold_recovery, threshold_feasibility, threshold_bayes, threshold_direct,
        threshold_own_recovery, threshold_interpolation, threshold_peak_error.

        Its tables are also attributes:

        - `predicted_spectra`: the columns x, density, interval.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> attnlaw.learn(alpha=0.2).estimation_error.value < attnlaw.learn(alpha=0.1).estimation_error.value
        True
        >>> curve = attnlaw.learn(alpha=[0.1, 0.2], noise=0.5)
        >>> len(curve), curve[0].status
        (2, 'done')
    """

def dynamics(
    *,
    times: str = "0.001:1:61",
    attention: Literal["tied", "untied"] | Iterable[Literal["tied", "untied"]] = "tied",
    student: Literal["factorized", "direct"] | Iterable[Literal["factorized", "direct"]] = "factorized",
    width: float | str | Iterable[float | str] = 1.0,
    scale: float | str | Iterable[float | str] = 0.7,
    scale_key: float | str | Iterable[float | str] | None = None,
    learning_rate: float | str | Iterable[float | str] = 0.0,
    decay: float | str | Iterable[float | str] = 0.0,
    tokens: int | str | Iterable[int | str] = 1,
    output: Literal["linear", "softmax", "hermite2", "hermite3"]
    | Iterable[Literal["linear", "softmax", "hermite2", "hermite3"]] = "linear",
    beta: float | str | Iterable[float | str] = 1.0,
    target_rank: float | str | Iterable[float | str] = 0.5,
    target_spike: float | str | Iterable[float | str] | None = None,
    target_exponent: float | str | Iterable[float | str] | None = None,
    target_dimension: int | str | Iterable[int | str] = 1000000,
    target_eigenvalues: str | os.PathLike[str] | None = None,
    noise: float | str | Iterable[float | str] = 0.0,
    spectrum: bool = False,
    statics: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> DynamicsResult:
    """Compute how a single attention head learns from samples that it sees once (arXiv 2609.03858).

    Tokens are Gaussian vectors of dimension d. The target matrix is S* = W₀W₀ᵀ/√(m₀d) (untied: a product of
    two factors). The trained matrix S (the student) starts at random and lowers the loss of new samples, Σ_ab
    (y_ab − ŷ_ab)². The time of training is the learning rate times the number of steps, divided by d.

    An argument with "or several" takes a list, a range or an array. Each value is a case of the result.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" also works.

    Args:
        times (str; default "0.001:1:61"): Training times to report (time = learning rate × steps / d),
            evenly spaced on a log scale, after time 0.
        attention ("tied" or "untied", or several; default "tied"): Whether queries and keys share
            weights: tied, S = WWᵀ, or untied, S = UVᵀ (factorized students only, all ordered pairs).
        student ("factorized" or "direct", or several; default "factorized"): Model that learns
            (student): a product of two factors (factorized) or one matrix (direct).
        width (float, or several; default 1.0): Width of the trained factors, divided by the token
            dimension d; inf means an orthogonal start.
        scale (float, or several; default 0.7): Size of the initial matrix S₀: its mean eigenvalue
            (untied: that of U₀U₀ᵀ; direct student: root mean square eigenvalue).
        scale_key (float, or several; optional): Size of the initial key factor V₀, if it differs from
            that of the query factor U₀ (untied).
        learning_rate (float, or several; default 0.0): Learning rate of SGD, times d / batch size. 0
            means infinitely small steps (gradient flow).
        decay (float, or several; default 0.0): Weight decay γ, which adds γ/(2d) times the sum of
            squared weights to the loss.
        tokens (int, or several; default 1): Number of tokens in each sample.
        output ("linear", "softmax", "hermite2" or "hermite3", or several; default "linear"): What the
            labels are: attention scores (linear), attention weights (softmax), or a Hermite polynomial
            of the scores.
        beta (float, or several; default 1.0): Inverse temperature of the softmax: larger values make
            attention sharper.
        target_rank (float, or several; default 0.5): Rank of the target matrix (the matrix to learn),
            divided by the token dimension d.
        target_spike (float, or several; optional): One large eigenvalue of the target matrix, apart
            from all others (tied attention only).
        target_exponent (float, or several; optional): Exponent γ above 1/2: the target matrix has the
            eigenvalues k^−γ for k = 1 to d, in place of a rank.
        target_dimension (int, or several; default 1000000): Token dimension d, if the target matrix has
            power-law eigenvalues.
        target_eigenvalues (str or path; optional): Eigenvalues of the target matrix: numbers with
            commas, or a file (.npy, or lines with an eigenvalue and an optional weight).
        noise (float, or several; default 0.0): Variance of the noise that is added to the labels.
        spectrum (bool; default False): Also show the learned eigenvalues at five times, and when a
            large eigenvalue of the target becomes visible.
        statics (bool; default False): Also show the errors of two models that may reuse all samples:
            trained with the best weight decay, and the best possible one.
        progress (Callable[[int, int], None]; optional): Function that attnlaw calls with the number of
            finished parts and the total number of parts.

    Returns:
        A result with one row for each case, in the polars table `rows`. If there is one case, its
        quantities are attributes:

        - `recovery_time` (float): training time at which the alignment with the target first reaches 0.5.
        - `recovery_time_90` (float): training time at which the alignment with the target first reaches
          0.9.
        - `recovery_samples` (float): number of samples, divided by d², at which the alignment first reaches
          0.5; empty for gradient flow.
        - `alignment` (Estimate): cosine between the learned and the target matrix: 0 means nothing learned,
          1 means equal up to a factor.
        - `estimation_error` (Estimate): squared Frobenius distance between the learned and the target
          matrix, divided by the token dimension d.
        - `prediction_error` (Estimate): mean loss on new samples with noise-free labels.
        - `overlap` (Estimate): inner product of the learned and the target matrix, divided by the token
          dimension d.
        - `norm` (Estimate): squared Frobenius norm of the learned matrix, divided by the token dimension d.
        - `trace` (Estimate): mean eigenvalue of the learned matrix.
        - `samples` (float): number of samples seen in the whole training, divided by d²; empty for gradient
          flow.
        - `plateaus` (list[float]): start and end of each interval of training time in which nothing is
          learned (plateaus).
        - `largest_rate` (float): largest learning rate at which training stays at the target matrix.
        - `plateau_error` (float): error E that SGD with this learning rate cannot get below.

        Its tables are also attributes:

        - `trajectory`: the columns time, samples, alignment, estimation_error, prediction_error, overlap
          and 2 more.
        - `spectra`: the columns time, x, density.
        - `tracks`: the columns time, target, location, squared_overlap, edge.
        - `statics`: the columns samples, minimiser_error, bayes_error.

        Print it with `show()`, draw it with `plot()`, write a report and its tables with
        `save(DIRECTORY)`, and read it again with `attnlaw.load(DIRECTORY)`.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.dynamics(output="linear")
        >>> round(result.alignment.value, 2)
        1.0
    """
