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
    """Family of the model, such as gpt2."""
    codes: str | None
    """Quantised formats of the matrices; missing if none is quantised."""
    depth: int | None
    """Number of layers; a shared layer counts at each application."""
    distinct_layers: int | None
    """Number of layers; a shared layer counts once."""
    hidden_size: int | None
    """Width of the layers."""
    head_count: int | None
    """Number of heads of the first layer."""
    matrix_count: int | None
    """Number of matrices measured."""
    activation: str | None
    """Activation of the feed-forward blocks."""
    not_random_tested: int | None
    """Number of matrices in the null test."""
    not_random_rejected: int | None
    """Number of matrices that differ from random ones (p-value at most 0.01)."""
    not_random_expected: float | None
    """Number of matrices that would differ from random ones by chance, if untrained."""
    not_random_p_value: float | None
    """Probability that so many matrices of an untrained model differ from random ones."""
    rejected_share: float | None
    """Share of the tested weight matrices that differ from random ones."""
    median_outliers: float | None
    """Number of singular values above those of a random matrix (median matrix)."""
    median_effective_rank_qk: float | None
    """Number of directions that a head's QK uses, weak ones included (median head)."""
    log10_amplification: float | None
    """Largest factor by which the layers above the first can enlarge an error, with gains of norm layers
    if they are known (log10).
    """
    findings_error: int | None
    """Number of errors found."""
    findings_warning: int | None
    """Number of warnings found."""
    findings_note: int | None
    """Number of notes found."""
    finding_rules: int | None
    """Number of checks that looked for findings."""
    logit_heads: int | None
    """Number of attention heads measured."""
    logit_heads_bounded: int | None
    """Number of heads whose logits have a bound for any input."""
    logit_heads_beyond_float8: int | None
    """Number of heads whose logit bound is above 448, the largest float8 E4M3 number."""
    logit_heads_beyond_float16: int | None
    """Number of heads whose logit bound is above 65504, the largest float16 number."""
    logit_unbounded: str | None
    """Blocks whose logits have no bound, with the reason."""
    log10_spectrum_adaptive: Estimate | None
    """Generalization proxy: spectrum-adaptive (best p for each matrix) (log10)."""
    log10_spectrum_adaptive_continuous: Estimate | None
    """Generalization proxy: spectrum-adaptive, any p in [0, 2] (not in the paper) (log10)."""
    log10_fixed_p_0: Estimate | None
    """Generalization proxy: one p for all matrices, p = 0 (log10)."""
    log10_fixed_p_1: Estimate | None
    """Generalization proxy: one p for all matrices, p = 1 (log10)."""
    log10_fixed_p_2: Estimate | None
    """Generalization proxy: one p for all matrices, p = 2 (log10)."""
    log10_edelman: Estimate | None
    """Generalization proxy: norm-based, Edelman (2,1) (log10)."""
    log10_trauger_tewari: Estimate | None
    """Generalization proxy: norm-based, Trauger-Tewari (1,1) (log10)."""
    per_application_log10_spectrum_adaptive: Estimate | None
    """Generalization proxy that counts a shared layer at each application: spectrum-adaptive (best p for
    each matrix) (log10).
    """
    per_application_log10_spectrum_adaptive_continuous: Estimate | None
    """Generalization proxy that counts a shared layer at each application: spectrum-adaptive, any p in [0,
    2] (not in the paper) (log10).
    """
    per_application_log10_fixed_p_0: Estimate | None
    """Generalization proxy that counts a shared layer at each application: one p for all matrices, p = 0
    (log10).
    """
    per_application_log10_fixed_p_1: Estimate | None
    """Generalization proxy that counts a shared layer at each application: one p for all matrices, p = 1
    (log10).
    """
    per_application_log10_fixed_p_2: Estimate | None
    """Generalization proxy that counts a shared layer at each application: one p for all matrices, p = 2
    (log10).
    """
    per_application_log10_edelman: Estimate | None
    """Generalization proxy that counts a shared layer at each application: norm-based, Edelman (2,1)
    (log10).
    """
    per_application_log10_trauger_tewari: Estimate | None
    """Generalization proxy that counts a shared layer at each application: norm-based, Trauger-Tewari
    (1,1) (log10).
    """
    proxy_over_sqrt_samples_log10: Estimate | None
    """Spectrum-adaptive proxy / sqrt(samples) (log10)."""
    value_of_adaptivity: Estimate | None
    """Factor by which the proxy grows if all matrices share the best single p."""
    rank_count: bool | None
    """Whether the proxy only counts ranks, because p = 0 is best for every matrix."""
    norms: str | None
    """Norms that tables and maps show: applied (gains included) or stored."""
    norms_unknown: list[str] | None
    """Kinds of matrix whose norm layer is not known, so that their norms are those of stored weights."""
    extensions: list[str] | None
    """Features of the model that the paper does not cover."""
    warnings: list[str] | None
    """Facts about the model that a reader of the numbers should know."""
    meaning: str | None
    """What the proxies say and what they do not say."""
    findings: pl.DataFrame
    """A table with the columns model, rule, level, layer, stack, head, expert, kind, tensor, value,
    threshold, meaning.
    """
    matrices: pl.DataFrame
    """A table with the columns model, layer, stack, head, expert, kind, family, tensors, rows, cols,
    inner, latent, spectral_norm, frobenius_norm, nuclear_norm, norm_21, norm_11, stable_rank,
    effective_rank, numerical_rank, condition, spectral_norm_applied, frobenius_norm_applied,
    stable_rank_applied, logit_bound, logit_typical, logit_probable, frobenius_norm_over_initial,
    score_spread_over_initial, factor_excess, factor_excess_weights, factor_excess_null,
    factor_imbalance, gauge, route, precision, random_p_value, outliers, null_draws, log10_gamma,
    log10_alpha, log10_scale, p, log10_contribution, continuous_p, continuous_log10_contribution,
    log10_curve, share, attnlaw_version.
    """
    spectra: pl.DataFrame
    """A table with the columns model, layer, stack, head, expert, kind, singular_values,
    singular_values_applied.
    """
    layers: pl.DataFrame
    """A table with the columns model, layer, stack, applications, log10_alpha, log10_alpha_applied,
    share_qk, share_vo, share_cross, share_ffn, adaptivity.
    """
    applications: pl.DataFrame
    """A table with the columns layer, log10_alpha, log10_alpha_applied."""
    towers: pl.DataFrame
    """A table with the columns tower, layers, hidden_size, heads, activation, log10_spectrum_adaptive,
    log10_spectrum_adaptive_continuous, log10_fixed_p_0, log10_fixed_p_1, log10_fixed_p_2,
    log10_edelman, log10_trauger_tewari.
    """
    atlas: pl.DataFrame
    """A table with the columns column, value, trained_low, trained_high, trained_models, trained_below,
    fresh_low, fresh_high, fresh_models, kind, among, trained, fresh, left_out.
    """
    fits: pl.DataFrame
    """A table with the columns model, layer, stack, head, expert, kind, rows, cols, values, law,
    random_p_value, wasserstein, outliers, null_shape, null_draws, null_scale, null_edge, edge_scale,
    alpha, alpha_p_value, x_min, tail_size, tail_share, lognormal_better, hill, kappa, noise_level,
    noise_low, noise_high, threshold, rank_fraction, target_rank, cut_ratio, learned_distance,
    untied_distance, untied_fits, untied_cut_ratio, ks_random, ks_tail, ks_heavy_tailed, ks_learned,
    ks_untied, log_likelihood_random, log_likelihood_heavy_tailed, log_likelihood_learned, seed, status,
    remark, attnlaw_version.
    """
    curves: pl.DataFrame
    """A table with the columns curve, null_shape, model, layer, stack, head, expert, kind, law, x,
    density.
    """
    status: str | None
    remark: str | None

@type_check_only
class FitResult(Result):
    """A result of `attnlaw.fit`."""
    @property
    def record(self) -> Fits: ...
    matrix_count: int | None
    """Matrices measured."""
    random_count: int | None
    """Matrices that are random: not to be told apart from Gaussian entries of this shape (a head: two such
    factors).
    """
    learned_count: int | None
    """Matrices that are learned: the law of trained attention (arXiv 2509.24914), on real heads an
    extension.
    """
    heavy_tailed_count: int | None
    """Matrices that are heavy-tailed: high-temperature Marchenko-Pastur (arXiv 2506.03470), with more tail
    than the null.
    """
    power_law_tail_count: int | None
    """Matrices that are power-law tail: the bulk follows none of these, the tail a power of exponent
    alpha.
    """
    power_law_spectrum_count: int | None
    """Matrices that are power-law spectrum: more than half of its values, hence no tail, follow a power of
    exponent alpha.
    """
    neither_count: int | None
    """Matrices that are neither: none of these fits."""
    not_random_tested: int | None
    """Number of matrices in the null test."""
    not_random_rejected: int | None
    """Number of matrices that differ from random ones (p-value at most 0.01)."""
    not_random_expected: float | None
    """Number of matrices that would differ from random ones by chance, if untrained."""
    not_random_p_value: float | None
    """Probability that so many matrices of an untrained model differ from random ones."""
    fits: pl.DataFrame
    """A table with the columns model, layer, stack, head, expert, kind, rows, cols, values, law,
    random_p_value, wasserstein, outliers, null_shape, null_draws, null_scale, null_edge, edge_scale,
    alpha, alpha_p_value, x_min, tail_size, tail_share, lognormal_better, hill, kappa, noise_level,
    noise_low, noise_high, threshold, rank_fraction, target_rank, cut_ratio, learned_distance,
    untied_distance, untied_fits, untied_cut_ratio, ks_random, ks_tail, ks_heavy_tailed, ks_learned,
    ks_untied, log_likelihood_random, log_likelihood_heavy_tailed, log_likelihood_learned, seed, status,
    remark, attnlaw_version.
    """
    curves: pl.DataFrame
    """A table with the columns curve, null_shape, model, layer, stack, head, expert, kind, law, x,
    density.
    """
    status: str | None
    remark: str | None

@type_check_only
class DiffResult(Result):
    """A result of `attnlaw.diff`."""
    @property
    def record(self) -> Diff: ...
    verdict: str | None
    """What happened, in a few sentences."""
    compared: str | None
    """Which tensors of both files were compared, and which were not."""
    next_step: str | None
    """What the changes look like, and what to do next."""
    verdicts: list[str] | None
    """Verdicts on the model and on its tensors."""
    map_count: int | None
    """Heads and feed-forward matrices that were compared."""
    tensor_count: int | None
    """Stored tensors of either model that were compared."""
    not_compared: list[str] | None
    """Names of the tensors that were not compared."""
    tensors_non_finite: int | None
    """Tensors that are non-finite: NaN or infinite entries in either model."""
    tensors_reshaped: int | None
    """Tensors that are reshaped: another shape; the numbers compare the rows that both have."""
    tensors_added: int | None
    """Tensors that are added: only in the model."""
    tensors_removed: int | None
    """Tensors that are removed: only in the base."""
    tensors_identical: int | None
    """Tensors that are identical: every entry is equal."""
    tensors_zeroed: int | None
    """Tensors that are zeroed: every entry is 0 now."""
    tensors_coded: int | None
    """Tensors that are coded: the base stored in a quantised code; changes below its error cannot be seen."""
    tensors_rounded: int | None
    """Tensors that are rounded: the base rounded to another format."""
    tensors_rescaled: int | None
    """Tensors that are rescaled: the base times a factor, for the tensor, each row or each column."""
    tensors_below_floor: int | None
    """Tensors that are below-floor: no change that is visible above the rounding of the model's file."""
    tensors_sparse: int | None
    """Tensors that are sparse: a few single entries changed."""
    tensors_low_rank: int | None
    """Tensors that are low-rank: an update of few directions, and rounding."""
    tensors_partly_hidden: int | None
    """Tensors that are partly-hidden: some directions rise above the rounding of the file, the rest is
    hidden.
    """
    tensors_reinitialised: int | None
    """Tensors that are reinitialised: random weights that do not resemble the base."""
    tensors_unrelated: int | None
    """Tensors that are unrelated: other weights, which are not random and do not resemble the base."""
    tensors_noise: int | None
    """Tensors that are noise: a random change without a direction."""
    tensors_dense: int | None
    """Tensors that are dense: an update of many directions, as training makes."""
    tensors_changed: int | None
    """Tensors that are changed: a vector or a small matrix with other values."""
    tensors_moved: int | None
    """Tensors that are moved: the weights of another tensor of the base."""
    tensors_transposed: int | None
    """Tensors that are transposed: rows and columns of the base are exchanged."""
    tensors_permuted: int | None
    """Tensors that are permuted: rows or columns of the base in another order."""
    size_qk: float | None
    """Median size of the updates of QK."""
    size_vo: float | None
    """Median size of the updates of VO."""
    size_cross_qk: float | None
    """Median size of the updates of cross QK."""
    size_cross_vo: float | None
    """Median size of the updates of cross VO."""
    size_ffn_in: float | None
    """Median size of the updates of FFN in."""
    size_ffn_gate: float | None
    """Median size of the updates of FFN gate."""
    size_ffn_out: float | None
    """Median size of the updates of FFN out."""
    scale_qk: float | None
    """Median scale of QK; below 1 it shrank."""
    scale_vo: float | None
    """Median scale of VO; below 1 it shrank."""
    scale_cross_qk: float | None
    """Median scale of cross QK; below 1 it shrank."""
    scale_cross_vo: float | None
    """Median scale of cross VO; below 1 it shrank."""
    scale_ffn_in: float | None
    """Median scale of FFN in; below 1 it shrank."""
    scale_ffn_gate: float | None
    """Median scale of FFN gate; below 1 it shrank."""
    scale_ffn_out: float | None
    """Median scale of FFN out; below 1 it shrank."""
    largest_size: float | None
    """Of the update of a map."""
    worst_map: str | None
    """The map whose update is largest."""
    worst_tensor: str | None
    """The stored tensor that changed most."""
    worst_tensor_size: float | None
    """Its |W1 − W0| / |W0|."""
    least_sqnr_db: float | None
    """The least signal to noise of a tensor, in dB."""
    intruders: int | None
    """Leading directions that no vector of the base is near, both sides."""
    new: int | None
    """Leading directions outside the base's of like size."""
    diff: pl.DataFrame
    """A table with the columns model, layer, stack, kind, head, expert, matched_head, rows, cols, inner,
    size, size_2, cosine, scale, stable_rank, effective_rank, rank, floor, k, share_left, z_left,
    share_right, z_right, overlap_left, overlap_right, z_top, moved, intruders_left, intruders_right,
    new_left, new_right.
    """
    diff_tensors: pl.DataFrame
    """A table with the columns model, tensor, shape, dtype_base, dtype_model, verdict, format, rank,
    rank_low, rank_high, directions, size, update_size, update_size_most, rounding_size, hidden,
    roundings, factor, factor_low, factor_high, along, source, then, sqnr_db, cosine, unchanged,
    max_change.
    """
    diff_spectra: pl.DataFrame
    """A table with the columns model, layer, stack, kind, head, expert, update_values, noise_values."""
    status: str | None
    remark: str | None

@type_check_only
class CheckResult(Result):
    """A result of `attnlaw.check`."""
    @property
    def record(self) -> CheckVerdicts: ...
    headline: str | None
    """The answer in one sentence."""
    not_checked: str | None
    """What cannot be checked from weights alone."""
    passed: bool | None
    """Whether the gate let the model through."""
    exit_status: int | None
    """0 passed, 3 failed."""
    fail_on: str | None
    """The least level that the gate fails at."""
    rule_count: int | None
    """Rules that were judged."""
    failed_rules: int | None
    """Rules that do not hold, of whatever level."""
    errors: int | None
    """Findings of level error that were not known."""
    warnings: int | None
    """Findings of level warning that were not known."""
    notes: int | None
    """Findings of level note that were not known."""
    known_findings: int | None
    """Findings that the baseline has, too."""
    verdicts: pl.DataFrame
    """A table with the columns model, rule, of, asked, level, outcome, selected, held, value, failures,
    remark, attnlaw_version.
    """
    findings: pl.DataFrame
    """A table with the columns model, rule, level, layer, stack, head, expert, kind, tensor, value,
    threshold, meaning, known, attnlaw_version.
    """
    verdict_values: pl.DataFrame
    """A table with the columns model, rule, found."""
    status: str | None
    remark: str | None

@type_check_only
class LensResult(Result):
    """A result of `attnlaw.lens`."""
    @property
    def record(self) -> Lens: ...
    median_rank_within: int | None
    """The rank that keeps every attention weight within 0.01 in half of the heads."""
    largest_rank_within: int | None
    """The rank that does so in all of them."""
    family: str | None
    """Type of the model."""
    layers: int | None
    """Attention blocks."""
    tokens: int | None
    """Of the input."""
    hidden_size: int | None
    """Coordinates of a token."""
    head_count: int | None
    """Heads that were looked at."""
    median_beta: float | None
    """Over the heads."""
    heads_below_beta_2: int | None
    """Heads so soft that the law of random heads could hold."""
    heads_above_beta_c: int | None
    """Heads so sharp that Gaussian logits would attend a few tokens."""
    score_error: float | None
    """Largest difference of attention: rebuilt from scores, and the network's."""
    reconstruction_error: float | None
    """|T X + c − F(X)| / |F(X)|, F from the network itself."""
    offset_share: float | None
    """|c| / |F(X)|, what the biases give."""
    singular_values: list[float] | None
    """The largest ones of T."""
    singular_values_residual: float | None
    """Max |Tᵀu − σv| / σ₁."""
    probes: int | None
    """Random probes per token behind the norms; none where these are exact."""
    entrywise: pl.DataFrame
    """A table with the columns layer, head, rank, largest, tail, rms, coherence, rank_within."""
    heads: pl.DataFrame
    """A table with the columns layer, head, beta, beta_2, beta_c, sharpness, perplexity, participation,
    null_participation, random_participation, participation_over_null, participation_over_random,
    largest_column_mean, sink, sink_token, top_column, top_column_rows, top_offset, top_offset_rows,
    largest_logit, logit_bound, logit_typical, spread_over_typical.
    """
    head_findings: pl.DataFrame
    """A table with the columns rule, layer, head, size, sentence, meaning."""
    input_tokens: pl.DataFrame
    """A table with the columns position, id, token."""
    token_map: pl.DataFrame
    """A table with the columns output, output_id, output_token, input, input_id, input_token, norm, share,
    rollout.
    """
    status: str | None
    remark: str | None

@type_check_only
class MarginsResult(Result):
    """A result of `attnlaw.margins`."""
    @property
    def record(self) -> MarginMeasurement: ...
    geometric_mean: Estimate | None
    """Exp of the mean log D: ranks models of one task, trained to a similar loss, on the same inputs; not
    an error rate.
    """
    mean_log: Estimate | None
    """Mean of log D."""
    median: Range | None
    """Of D, with an interval of ranks."""
    mean: float | None
    """Of D, which saturated inputs rule."""
    spread: float | None
    """Pooled standard deviation of a token at its position."""
    inputs: int | None
    """That were used."""
    ties: int | None
    """Inputs of margin 0, in no mean."""
    flat: int | None
    """Inputs of gradient 0, in no mean."""
    confidence: float | None
    """Mean of the largest probability: it ranks worse than D."""
    extension: bool | None
    """A causal language model, where nothing is established."""
    total_kappa: float | None
    """Median over inputs of the condition, summed over maps."""
    kappa_layer: int | None
    """The layer that has most of it; maps outside of layers may have more."""
    compared_with: str | None
    """The first model."""
    log_ratio: Estimate | None
    """Mean difference of log D from the first model, in pairs."""
    comparison: str | None
    """What the pairs say."""
    inputs_sha256: str | None
    """Of the token ids."""
    margins: pl.DataFrame
    """A table with the columns model, input, tokens, position, predicted, margin, gradient, distance,
    confidence, status.
    """
    condition: pl.DataFrame
    """A table with the columns model, layer, kind, name, norm, kappa, share."""
    kappa_layers: pl.DataFrame
    """A table with the columns model, layer, place, kappa."""
    amplification: pl.DataFrame
    """A table with the columns model, layer, output, median, max, iterations, residual, log10_measured,
    log10_worst_case.
    """
    directions: pl.DataFrame
    """A table with the columns model, layer, head, kind, rank, log10_scale, p, log10_scale_measured,
    p_measured, effective_directions, directions, directions_share.
    """
    kappa_kinds: pl.DataFrame
    """A table with the columns model, kind, kappa."""
    pairs: pl.DataFrame
    """A table with the columns model, compared_with, inputs."""
    status: str | None
    remark: str | None

@type_check_only
class LimitResult(Result):
    """A result of `attnlaw.limit`."""
    @property
    def record(self) -> WidthRow: ...
    score_variance: Estimate | None
    """Of p_ii in the last attention block."""
    output_variance: Estimate | None
    """Of the coordinate."""
    kurtosis: Estimate | None
    """3 for a Gaussian."""
    kl_to_limit: Estimate | None
    """Relative entropy to the limit."""
    w1_to_limit: Estimate | None
    """Wasserstein distance to the limit."""
    ks_to_limit: Estimate | None
    """Kolmogorov-Smirnov distance."""
    residual_of_distances: float | None
    """Error of the quadrature behind the distances."""
    kl_to_other_limit: Estimate | None
    """To the limit of the other scaling."""
    kl_to_gaussian: Estimate | None
    """To the Gaussian of the same mean and variance."""
    kernel_kl_to_limit: float | None
    """By kernel estimates, as in arXiv 2506.00846."""
    path_squared_length: list[Estimate | None] | None
    """Of the token that is read, by depth."""
    path_cosine: list[Estimate | None] | None
    """Mean cosine between tokens, by depth."""
    densities: pl.DataFrame
    """A table with the columns y, density, gaussian_density, ratio."""
    status: str | None
    remark: str | None

@type_check_only
class AttentionResult(Result):
    """A result of `attnlaw.attention`."""
    @property
    def record(self) -> AttentionSpectrum: ...
    equivalent_w1: Estimate | None
    """Wasserstein-1 distance to the Gaussian equivalent over the mean."""
    equivalent_distance: Estimate | None
    """Kolmogorov-Smirnov distance to the Gaussian equivalent."""
    law_w1: Estimate | None
    """Wasserstein-1 distance to the law over the mean."""
    law_distance: Estimate | None
    """Kolmogorov-Smirnov distance to the law."""
    mean: float | None
    """Mean of the squared singular values by the law."""
    edges: list[float] | None
    """Ends of the law's intervals, low and high in turn."""
    atom_at_zero: float | None
    """Share of values that are zero."""
    spike: float | None
    """Expected value beyond the edge if only 1/n is subtracted (not in the paper)."""
    spike_found: Estimate | None
    """Largest value if only 1/n is subtracted."""
    coefficient_error: float | None
    """Error of a ridge readout of the output."""
    degrees_of_freedom: float | None
    """Degrees of freedom of that readout, over n."""
    arrival_time: float | None
    """Time at which gradient flow on a readout reaches the loss, in units of 1/mean."""
    law_densities: pl.DataFrame
    """A table with the columns x, density, interval."""
    drawn_values: pl.DataFrame
    """A table with the columns value."""
    quantiles: pl.DataFrame
    """A table with the columns level, law, drawn."""
    status: str | None
    remark: str | None

@type_check_only
class InitResult(Result):
    """A result of `attnlaw.init`."""
    @property
    def record(self) -> InitialLaw: ...
    model_width: int | None
    """None in the limit."""
    rms: Estimate | None
    """Of the stream's entries after the last layer."""
    cosine: Estimate | None
    """Mean between tokens after the last layer."""
    cosine_spread: float | None
    """Its deviation over initialisations."""
    effective_rank: Estimate | None
    """Of the tokens after the last layer."""
    score_sd: Estimate | None
    """Deviation of scores in the first layer."""
    entropy: Estimate | None
    """Of attention over uniform in the first layer."""
    logit_sd: Estimate | None
    """Deviation of the logit of an id not among the tokens."""
    loss: Estimate | None
    """Next token (BERT: the token itself); beyond 4096 ids their sum is taken as normal."""
    loss_spread: float | None
    """Its deviation over initialisations."""
    uniform_loss: float | None
    """Ln of the vocabulary."""
    own_probability: Estimate | None
    """Of the id that stands at the place."""
    own_cosine: Estimate | None
    """Of the last tokens with their own embeddings (tied head)."""
    angle_exponent: Estimate | None
    """Slope of log(1 - cosine) by layer."""
    gradient_norm: Estimate | None
    """Of the weight matrices of all layers."""
    gradient_exponent: Estimate | None
    """Slope of the log norm by layer."""
    initialiser: str | None
    """Where it was read from."""
    layers: pl.DataFrame
    """A table with the columns layer, rms, rms_spread, rms_low, rms_high, cosine, cosine_spread,
    cosine_low, cosine_high, effective_rank, effective_rank_spread, effective_rank_low,
    effective_rank_high, entropy, entropy_spread, entropy_low, entropy_high, score_sd, score_sd_spread,
    score_sd_low, score_sd_high, gradient, gradient_spread, gradient_low, gradient_high.
    """
    gradients: pl.DataFrame
    """A table with the columns layer, matrix, gradient, gradient_spread, gradient_low, gradient_high."""
    architecture: pl.DataFrame
    """A table with the columns model_type, random."""
    status: str | None
    remark: str | None

@type_check_only
class LearnResult(Result):
    """A result of `attnlaw.learn`."""
    @property
    def record(self) -> DetailedPrediction: ...
    estimation_error: Estimate | None
    """|Ŝ − S*|²/d."""
    prediction_error: Estimate | None
    """On fresh clean labels, per sample."""
    training_loss: Estimate | None
    """Per sample over all (a,b), without the penalty."""
    overlap: Estimate | None
    """Tr ŜᵀS*/d."""
    norm: Estimate | None
    """|Ŝ|²/d."""
    rank_fraction: Estimate | None
    """Share of eigenvalues that are not zero."""
    trace: Estimate | None
    """Tr Ŝ/d."""
    nuclear_norm: Estimate | None
    """|Ŝ|_*/d, the sum of singular values over d (untied)."""
    angle: Estimate | None
    """Between Ŝ and S*, arccos(m/√(q Q*)) (cross-entropy, which sets no scale)."""
    wrong_keys: Estimate | None
    """Share of fresh queries that attend most to the wrong key."""
    noise_level: Estimate | None
    """Of the matrix the student effectively sees (softmax, Bayes: a)."""
    threshold: Estimate | None
    """Below which eigenvalues are cut."""
    cut: Estimate | None
    """Below which the width of the factors cuts (t > b)."""
    smallest_value: float | None
    """Smallest value that is kept: away from 0 width, not weight decay, cut the rank."""
    stability: float | None
    """Replicon value at d = 160 where width cuts (K/α_P) or a softmax bends: unstable above 1."""
    shrinkage: float | None
    """Of the eigenvalues that are left."""
    relative_error: Estimate | None
    """E/Q*: 1 where nothing is learned."""
    approximation_error: float | None
    """Part of E in modes that stand out (our split)."""
    underfitting_error: float | None
    """Part of E that is missing along the target (our split)."""
    overfitting_error: float | None
    """Part of E that was learned beside the target (our split)."""
    adapter_noise: float | None
    """Δ/2 + E: the noise a rank-one adapter trained afterwards sees (arXiv 2606.05899)."""
    residual: float | None
    """What the equations miss at the solution, over their size."""
    atom_at_zero: float | None
    """Share of eigenvalues that are zero."""
    edges: list[float] | None
    """Ends of the intervals of the spectrum, low and high in turn."""
    top_edge: float | None
    """Upper end of the spectrum without outliers."""
    outlier_locations: list[float] | None
    """Where eigenvalues stand out of the spectrum."""
    outlier_overlaps: list[float] | None
    """Their squared overlaps with the target's."""
    outlier_targets: list[float] | None
    """The target's eigenvalues they belong to."""
    outlier: float | None
    """Where the target's spike is seen."""
    observations: float | None
    """Of S over its dimension, for a power-law target."""
    leading_error: float | None
    """E of the leading-order scaling law."""
    predicted_exponent: float | None
    """Of E in N/d."""
    threshold_recovery: float | None
    """Factorized recovery, clean labels."""
    threshold_feasibility: float | None
    """Beyond it only S* fits clean labels."""
    threshold_bayes: float | None
    """Bayes recovery, clean labels."""
    threshold_direct: float | None
    """Direct recovery, clean labels."""
    threshold_own_recovery: float | None
    """Recovery of this student, clean labels."""
    threshold_interpolation: float | None
    """Up to which this student fits noisy labels."""
    threshold_peak_error: float | None
    """Its test error there, without a penalty."""
    predicted_spectra: pl.DataFrame
    """A table with the columns x, density, interval."""
    status: str | None
    remark: str | None

@type_check_only
class DynamicsResult(Result):
    """A result of `attnlaw.dynamics`."""
    @property
    def record(self) -> TrajectoryRows: ...
    recovery_time: float | None
    """When the alignment reaches 0.5."""
    recovery_time_90: float | None
    """When it reaches 0.9."""
    recovery_samples: float | None
    """Over d² when it reaches 0.5; null for a gradient flow."""
    alignment: Estimate | None
    """0 knows nothing of the target, 1 all but its scale."""
    estimation_error: Estimate | None
    """|S − S*|²/d."""
    prediction_error: Estimate | None
    """On fresh clean labels, per sample."""
    overlap: Estimate | None
    """Tr S S*/d."""
    norm: Estimate | None
    """Tr S²/d."""
    trace: Estimate | None
    """Tr S/d."""
    samples: float | None
    """Seen at the last time, over d²; null for a gradient flow."""
    plateaus: list[float] | None
    """Stretches of time without progress, begin and end in turn."""
    largest_rate: float | None
    """Η up to which the target stays put."""
    plateau_error: float | None
    """E at which SGD of this η ends."""
    trajectory: pl.DataFrame
    """A table with the columns time, samples, alignment, estimation_error, prediction_error, overlap,
    norm, trace.
    """
    spectra: pl.DataFrame
    """A table with the columns time, x, density."""
    tracks: pl.DataFrame
    """A table with the columns time, target, location, squared_overlap, edge."""
    statics: pl.DataFrame
    """A table with the columns samples, minimiser_error, bayes_error."""
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
        The same result, but without its records. Tables and quantities are attributes as before.
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
    models. A LoRA adapter is audited alone, or added to its base model with --adapter. Generalization proxies
    need every matrix, so there are none with --layers, --only or --experts.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: Checkpoint files, directories, shard indexes or hub ids; in Python also a state dict or a
            module.
        more: Further values of model.
        layers: Only these layers: a slice such as 0:4, or numbers such as 0,1,-1.
        only: Only these: qk, vo, cross, ffn, embedding, unembedding.
        heads: Attention heads, where no config.json tells their number.
        map: The names of an architecture of your own.
        adapter: A LoRA adapter to add to the model.
        unscaled: Read float8 weights that really have no scale as they are stored.
        name: What rows call the model; its path unless given.
        jobs: Threads; all cores unless given.
        samples: Number of training samples n: also show proxy / sqrt(n). It is not a bound.
        approximate: Estimate matrices whose shorter side is at least 8192, and show the errors.
        precision: Arithmetic: float32 for weights stored in 16 bits or less, if that is exact enough
            (storage), or always float64 (double).
        exact: Sum every entry for (1,1) norms of large products (default: a sample of columns).
        as_stored: Show norms of the stored matrices, without the gain of the norm layer before them.
        experts: Measure only the first N experts of each layer.
        no_laws: With --out: do not fit laws to the spectra. It is faster.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: family, codes, depth,
        distinct_layers, hidden_size, head_count, matrix_count, activation, not_random_tested,
        not_random_rejected, not_random_expected, not_random_p_value, rejected_share, median_outliers,
        median_effective_rank_qk, log10_amplification, findings_error, findings_warning, findings_note,
        finding_rules, logit_heads, logit_heads_bounded, logit_heads_beyond_float8,
        logit_heads_beyond_float16, logit_unbounded, log10_spectrum_adaptive,
        log10_spectrum_adaptive_continuous, log10_fixed_p_0, log10_fixed_p_1, log10_fixed_p_2,
        log10_edelman, log10_trauger_tewari, per_application_log10_spectrum_adaptive,
        per_application_log10_spectrum_adaptive_continuous, per_application_log10_fixed_p_0,
        per_application_log10_fixed_p_1, per_application_log10_fixed_p_2, per_application_log10_edelman,
        per_application_log10_trauger_tewari, proxy_over_sqrt_samples_log10, value_of_adaptivity,
        rank_count, norms, norms_unknown, extensions, warnings, meaning. So are its tables: findings,
        matrices, spectra, layers, applications, towers, atlas, fits, curves.

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
    """Find the law of each matrix: noise, what attention learns in theory, heavy tails, or none.

    random: not to be told apart from Gaussian entries of this shape (a head: two such factors)
    learned: the law of trained attention (arXiv 2509.24914), on real heads an extension
    heavy-tailed: high-temperature Marchenko-Pastur (arXiv 2506.03470), with more tail than the null
    power-law tail: the bulk follows none of these, the tail a power of exponent alpha
    power-law spectrum: more than half of its values, hence no tail, follow a power of exponent alpha
    neither: none of these fits

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: Checkpoint files, directories, shard indexes or hub ids; in Python also a state dict or a
            module.
        more: Further values of model.
        layers: Only these layers: a slice such as 0:4, or numbers such as 0,1,-1.
        only: Only these: qk, vo, cross, ffn, embedding, unembedding.
        heads: Attention heads, where no config.json tells their number.
        map: The names of an architecture of your own.
        adapter: A LoRA adapter to add to the model.
        unscaled: Read float8 weights that really have no scale as they are stored.
        name: What rows call the model; its path unless given.
        jobs: Threads; all cores unless given.
        seed: Seed of the nulls and of the bootstrap.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: matrix_count, random_count,
        learned_count, heavy_tailed_count, power_law_tail_count, power_law_spectrum_count,
        neither_count, not_random_tested, not_random_rejected, not_random_expected, not_random_p_value.
        So are its tables: fits, curves.

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
    """Compare checkpoints with their base: which tensors changed and how, which heads, in which directions.

    Each tensor gets a verdict: identical, rounded (to which format), low-rank (of which rank), partly hidden
    by the rounding of its file, rescaled, noise, dense, moved from another place, and more. Each head and
    feed-forward matrix gets the size and the rank of its update, how far the update keeps to the base's
    directions compared with chance, and how many directions are new. A LoRA adapter in place of a model is
    added to the base.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        base: The checkpoint that they are compared with.
        model: Checkpoint files, directories, shard indexes or hub ids; in Python also a state dict or a
            module.
        more: Further values of model.
        layers: Only these layers: a slice such as 0:4, or numbers such as 0,1,-1.
        only: Only these: qk, vo, cross, ffn, embedding, unembedding.
        heads: Attention heads, where no config.json tells their number.
        map: The names of an architecture of your own.
        adapter: A LoRA adapter to add to the model.
        unscaled: Read float8 weights that really have no scale as they are stored.
        name: What rows call the model; its path unless given.
        jobs: Threads; all cores unless given.
        applied: Fold the norm before a map into it; maps are compared as stored else.
        no_match: Do not look for heads and neurons that stand in another order.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: verdict, compared,
        next_step, verdicts, map_count, tensor_count, not_compared, tensors_non_finite,
        tensors_reshaped, tensors_added, tensors_removed, tensors_identical, tensors_zeroed,
        tensors_coded, tensors_rounded, tensors_rescaled, tensors_below_floor, tensors_sparse,
        tensors_low_rank, tensors_partly_hidden, tensors_reinitialised, tensors_unrelated,
        tensors_noise, tensors_dense, tensors_changed, tensors_moved, tensors_transposed,
        tensors_permuted, size_qk, size_vo, size_cross_qk, size_cross_vo, size_ffn_in, size_ffn_gate,
        size_ffn_out, scale_qk, scale_vo, scale_cross_qk, scale_cross_vo, scale_ffn_in, scale_ffn_gate,
        scale_ffn_out, largest_size, worst_map, worst_tensor, worst_tensor_size, least_sqnr_db,
        intruders, new. So are its tables: diff, diff_tensors, diff_spectra.

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
    """Judge a checkpoint by its findings, and by rules over the numbers of its audit and its diff.

    Exit status 0: passed; 1: something could not be read; 2: bad usage or rule file; 3: the gate failed.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: Checkpoint files, directories, shard indexes or hub ids; in Python also a state dict or a
            module.
        more: Further values of model.
        layers: Only these layers: a slice such as 0:4, or numbers such as 0,1,-1.
        only: Only these: qk, vo, cross, ffn, embedding, unembedding.
        heads: Attention heads, where no config.json tells their number.
        map: The names of an architecture of your own.
        adapter: A LoRA adapter to add to the model.
        unscaled: Read float8 weights that really have no scale as they are stored.
        name: What rows call the model; its path unless given.
        jobs: Threads; all cores unless given.
        rules: Rule file, or the name of one that comes with attnlaw; findings alone unless given.
        base: Checkpoint that rules of diff compare with; that of the rule file unless given.
        baseline: Directory of audit --out or diff --out: its findings are known, its rows are old.
        fail_on: Least level that fails the gate; that of the rule file, or error, unless given.
        approximate: Estimate matrices of shorter side 8192 and more, with errors.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: headline, not_checked,
        passed, exit_status, fail_on, rule_count, failed_rules, errors, warnings, notes, known_findings.
        So are its tables: verdicts, findings, verdict_values.

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
    """Show what the heads of a model do on one input, and the forward pass as one exact affine map.

    For each head: how sharp it is, compared with the thresholds at which Gaussian logits condense, where it
    looks, how many directions its attention has compared with two random references, and its logits with
    their bound. For the pass, from the embeddings to the last hidden state in float64, vec F(X) = T(X) vec X
    + c(X) (TensorLens, arXiv 2601.17958): how well T and c rebuild the network's output, the largest singular
    values of T, and how much each input token moves each output token, next to attention rollout. The map of
    tokens takes long for a long input; --only heads leaves it out. With --entrywise: which rank would keep
    every attention weight of a head, and what lower ranks cost. This command needs the optional packages of
    attnlaw[lens].

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: A local directory with config.json and weights.
        more: Further values of model.
        text: An input, as text: by tokenizer.json beside the model, or as bytes. Repeat it for several
            (lens takes one).
        file: Inputs, one a line: texts (.txt), or objects with text or ids (.jsonl).
        ids: An input, as token ids; @FILE: one list a line.
        entrywise: Ranks at which the attention of every head is cut off, to see its worst entry.
        only: One part alone.
        top: Singular values to compute.
        seed: Seed of the nulls, and of the probes that estimate the map of a large operator.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: median_rank_within,
        largest_rank_within, family, layers, tokens, hidden_size, head_count, median_beta,
        heads_below_beta_2, heads_above_beta_c, score_error, reconstruction_error, offset_share,
        singular_values, singular_values_residual, probes. So are its tables: entrywise, heads,
        head_findings, input_tokens, token_map.

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
    """Show which of several trained models generalises better, from inputs without labels.

    D is the margin of the model's own prediction, divided by its gradient and the spread of the inputs. It
    ranks models of one task, trained to a similar loss, on the same inputs; it is not an error rate. Give
    inputs that training did not see: 12 are needed, 32 nearly suffice, 200 are plenty. Two or more models are
    compared in pairs. D has not been validated for causal language models. This command needs the
    optional packages of attnlaw[lens].

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: A local directory with config.json and weights.
        more: Further values of model.
        text: An input, as text: by tokenizer.json beside the model, or as bytes. Repeat it for several
            (lens takes one).
        file: Inputs, one a line: texts (.txt), or objects with text or ids (.jsonl).
        ids: An input, as token ids; @FILE: one list a line.
        limit: Inputs to use, the first ones.
        positions: The token of a causal model that is read.
        at: Block whose input is moved and spread.
        kappa: Where a margin could be lost: the condition of every linear map.
        amplification: What is measured beside the worst case: amplification by layer, scale and
            directions by matrix.
        seed: Seed of sampled positions and of power iteration.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: geometric_mean, mean_log,
        median, mean, spread, inputs, ties, flat, confidence, extension, total_kappa, kappa_layer,
        compared_with, log_ratio, comparison, inputs_sha256. So are its tables: margins, condition,
        kappa_layers, amplification, directions, kappa_kinds, pairs.

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
    """Compute the law of an attention layer's output at initialisation, and its distance to the limit.

    The limit is infinite width. The law describes one coordinate of y_i, the output of token i (arXiv
    2506.00846). Errors are standard errors. Var p is the variance of the score p_ii, including the
    randomness of the inputs.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        tokens: Random tokens.
        activation: psi in the random tokens psi(W h). One of identity, relu, gelu, gelu_new, silu,
            clip:C.
        embeddings: Tokens from a checkpoint's embedding.
        ids: Their token ids.
        gram: The tokens' Gram matrix X X^T / n: .npy, or text with one row a line.
        token: The token whose output is read, from 1.
        heads: Heads.
        width: Width; inf is the limit.
        head_width: Width of a head, else the layer's.
        score: Function that turns scores into attention weights. Only softmax makes them add up to 1.
        mask: Which tokens a token sees. One of none, causal, band:K.
        scaling: Of the scores.
        depth: Layers; the law is that of the last one's output.
        residual: Add each layer's input to its output.
        normalise: RMSNorm before each layer.
        draws: Draws for each width.
        other_scaling: Also the distance to the limit of this scaling.
        gaussian: Also the distance to the Gaussian of the same mean and variance.
        kernel: Also the paper's distance: kernel estimates from a draw for each variance.
        seed: Seed; equal seeds repeat the table.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: score_variance,
        output_variance, kurtosis, kl_to_limit, w1_to_limit, ks_to_limit, residual_of_distances,
        kl_to_other_limit, kl_to_gaussian, kernel_kl_to_limit, path_squared_length, path_cosine. So are
        its tables: densities.

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
    """Compute the singular spectrum of softmax attention at initialisation: random layers and their law.

    The law is that of arXiv 2610.10033. It assumes orthogonal tokens and random Gaussian weights. The
    spectrum has all n squared singular values of the chosen matrix, including zeros, after the mean of
    attention is subtracted.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        name: Name of the layer in tables and charts.
        beta: Sharpness: the standard deviation of a row's logits.
        tokens: Tokens, which are orthogonal.
        heads: Heads.
        head_size: Size of a head's keys.
        value_size: Size of a head's values. By default, that of its keys.
        output_size: Size of the output. By default, that of all values together.
        sharing: What heads share: nothing, one key and value for all (across), or the key of a head is
            its value (tied).
        matrix: The attention matrices of all heads side by side, their mean, the attended values, or
            the output of the layer.
        centring: What is subtracted from attention: its column means, or 1/n.
        second_order: Correct the law for narrow heads by its second Hermite term (not in the paper).
        draws: Random layers to draw; 0 computes the law alone.
        ridge: Penalty of a readout of the output, in units of the mean.
        noise_variance: Variance of the noise in the readout's targets, times n/(d_O mean).
        loss: Training loss that the readout shall reach.
        seed: Seed of the draws.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: equivalent_w1,
        equivalent_distance, law_w1, law_distance, mean, edges, atom_at_zero, spike, spike_found,
        coefficient_error, degrees_of_freedom, arrival_time. So are its tables: law_densities,
        drawn_values, quantiles.

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
    """Compute how an untrained Transformer treats signals, attention and logits, from its config alone.

    The numbers are for each layer, over initialisations. They are exact at the model's own width for given
    tokens, and no weight matrix is drawn. attnlaw reads only config.json. The weights are those that the
    library of the model's family would draw, which need not be what its authors drew. The limits of infinite
    width, and everything in them except the attention of one layer, are extensions of arXiv 2506.00846.

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        model: A config.json, its folder, a hub id, or gpt2, bert, llama-7b.
        more: Further values of model.
        std: Deviation of the weights, else the config's.
        depth: Layers, else the config's.
        width: own, inf (the limit), or a width to scale the model to: gains are kept.
        keep: What stays as the width changes.
        scaling: Of the scores; 1/d is muP's.
        tokens: Tokens, all different.
        ids: Their ids; only which are equal counts.
        padding: How many of them, at the end, are padding.
        draws: Initialisations.
        units: Hidden units that stand for all of an MLP: mean and covariance stay exact. 0 draws all.
        gradients: Also norms of gradients, over so many initialisations, at the own width. Needs the
            extra lens.
        seed: Seed; equal seeds repeat the table.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: model_width, rms, cosine,
        cosine_spread, effective_rank, score_sd, entropy, logit_sd, loss, loss_spread, uniform_loss,
        own_probability, own_cosine, angle_exponent, gradient_norm, gradient_exponent, initialiser. So
        are its tables: layers, gradients, architecture.

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
    """Predict what a single attention head learns from n samples, and train real heads to compare.

    The tokens x_a are Gaussian vectors of dimension d. By default the target is S* = W₀W₀ᵀ/√(m₀d), where W₀
    is a Gaussian d × m₀ matrix. The student sees noisy scores of the target, plain or through a row softmax.
    The scores of a matrix S are h_ab = (x_aᵀ S x_b − δ_ab Tr S)/√d (arXiv 2509.24914, 2506.01582).

    The same from Python: attnlaw.learn(alpha=..., tokens=...).

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        alpha: Samples over d²: α = n/d².
        tokens: Tokens per sample.
        output: What labels show of the scores: linear, softmax (of rows), or hardmax (bayes only).
        beta: Inverse temperature of the softmax.
        loss: What training lowers: squared errors of the softmax, or the cross-entropy of the attended
            key (one query, two keys).
        soft_labels: Show the target's probabilities themselves instead of a key drawn by them.
        attention: Whether queries and keys share their factor: S = WWᵀ/√(md), or W_Q W_Kᵀ/√(md).
        pairs: Which pairs (query, key) untied attention shows: cross (keys of another sequence),
            causal, distinct (both orders). Tied attention shows all.
        target_rank: Rank of the target over d: κ₀ = m₀/d.
        target_spike: One eigenvalue (untied: singular value) of the target outside its bulk.
        target_exponent: Instead of a rank: eigenvalues k^−γ, k = 1..d; up to γ = 1/2 their second
            moment diverges.
        target_dimension: The d of the target's exponent.
        target_eigenvalues: Instead of a rank: your own spectrum, a file (.npy, or an eigenvalue a line,
            its weight behind it where it has one) or numbers with commas.
        noise: Label noise, a variance.
        weight_decay: Penalty: λ̃ = √κ λ on factors W of ratio κ (factorized; untied 2√κ λ), λ on S
            (direct).
        width: Width of the factors, κ = m/d, where it is less than the rank that they would learn.
        flow_time: Stop full-batch gradient flow on the fixed data set at this time, t = 2d·lr·steps
            (direct student; not one-pass SGD).
        student: Who learns.
        thresholds: Also the sample ratios where learning changes (hardmax labels never reveal the
            target: none).
        spectrum: Also the density of the learned spectrum, as a table.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: estimation_error,
        prediction_error, training_loss, overlap, norm, rank_fraction, trace, nuclear_norm, angle,
        wrong_keys, noise_level, threshold, cut, smallest_value, stability, shrinkage, relative_error,
        approximation_error, underfitting_error, overfitting_error, adapter_noise, residual,
        atom_at_zero, edges, top_edge, outlier_locations, outlier_overlaps, outlier_targets, outlier,
        observations, leading_error, predicted_exponent, threshold_recovery, threshold_feasibility,
        threshold_bayes, threshold_direct, threshold_own_recovery, threshold_interpolation,
        threshold_peak_error. So are its tables: predicted_spectra.

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

    Tokens are Gaussian. The target is S* = W₀W₀ᵀ/√(m₀d) (untied: a product of two factors), and the loss of
    a sample is Σ_ab (y_ab − ŷ_ab)². One case is one trajectory, and its times are the rows of its table.

    The same from Python: attnlaw.dynamics(times="0.001:1:60", ...).

    If an option takes an iterable, each value of a list, a range or an array makes a case.
    For numbers, a text such as "0.1:0.5:3" (three values from 0.1 to 0.5) or "1,2,4" works too.

    Args:
        times: Times τ = lr·steps/d, spaced in the logarithm; 0 is always the first.
        attention: Factors: tied, S = WWᵀ, or untied, UVᵀ (factorized only; all ordered pairs are seen).
        student: Who learns.
        width: Width of the factors over d; inf is an orthogonal start.
        scale: Scale of the start: Tr S₀/d; direct: √(Tr S₀²/d); untied: Tr U₀U₀ᵀ/d.
        scale_key: Scale of V₀ where it is not that of U₀ (untied).
        learning_rate: η = lr·d/batch of one-pass SGD; 0 is the gradient flow of the population loss, no
            SGD.
        decay: Weight decay: γ/(2d)·‖W‖² is added to the loss.
        tokens: Tokens per sample.
        output: What labels show of the scores: linear, softmax (of rows), or a Hermite polynomial.
        beta: Inverse temperature of the softmax.
        target_rank: Rank of the target over d: κ₀ = m₀/d.
        target_spike: One eigenvalue of the target outside its bulk (tied).
        target_exponent: Instead of a rank: eigenvalues k^−γ, k = 1..d; up to γ = 1/2 their second
            moment diverges.
        target_dimension: The d of the target's exponent.
        target_eigenvalues: Instead of a rank: your own spectrum, a file (.npy, or an eigenvalue a line,
            its weight behind it where it has one) or numbers with commas.
        noise: Label noise, a variance.
        spectrum: Also the spectrum at five of the times, and the track of a spike.
        statics: Also what as many samples allow: the minimiser at its best decay, and Bayes-optimal
            learning.
        progress: Called with the number of finished parts and the number of all parts.

    Returns:
        A result with one row for each case. Its quantities are attributes: recovery_time,
        recovery_time_90, recovery_samples, alignment, estimation_error, prediction_error, overlap,
        norm, trace, samples, plateaus, largest_rate, plateau_error. So are its tables: trajectory,
        spectra, tracks, statics.

    Example:
        >>> import attnlaw
        >>> result = attnlaw.dynamics(output="linear")
        >>> round(result.alignment.value, 2)
        1.0
    """
