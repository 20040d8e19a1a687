"""The columns of an audit's tables, in their order.

| table | one row for each |
|---|---|
| `MATRICES` | matrix |
| `SPECTRA` | matrix, with all its singular values |
| `LAYERS` | layer |
| `APPLICATIONS` | application of a layer, if layers are shared |
| `TOWERS` | tower, if there are several |
| `ATLAS` | number in which the model is compared with the models of the atlas |
| `FINDINGS` | finding of a detector in `attnlaw.analysis.findings` |

`attnlaw.analysis.fit` has the columns of fitted laws.

A missing value is null. A feed-forward matrix has no `head` and no `inner`. A matrix that every token passes
has no `expert`. Errors are null if nothing is approximate, sampled or computed in float32. An exact
spectrum has errors too if its gamma or alpha contains the norm of an approximate one. The singular values of
an approximate spectrum are null. Logarithms are to base 10.

Columns that end in `_applied` describe the matrix as the model applies it. The gain of the norm layer before
it is folded in, and the mean is projected out if that norm subtracts it. They are null if attnlaw does not
know that norm layer. All other columns describe the stored matrix. If an applied spectral norm has an error,
the true norm exceeds the value by more than the error in only 1 of 1000 cases.
"""

from __future__ import annotations

from typing import Any

from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.quantity import Quantity
from attnlaw.theory.bounds import BOUNDS

LEVELS = ("note", "warning", "error")  # levels of findings, the gravest last
LOCATION = (
    Quantity("model", "name of the model", kind="text"),
    Quantity("layer", "number of the layer, from 0", kind="small"),
    Quantity("stack", "encoder, decoder or tower, if the model has several", kind="text"),
    Quantity("head", "number of the attention head, from 0", kind="small"),
    Quantity("expert", "number of the expert in a mixture of experts, from 0", kind="small"),
    Quantity("kind", "kind of matrix", kind="text", choices=KINDS),
)
VERSION = Quantity("attnlaw_version", "version of attnlaw that computed the row", kind="text")
IMBALANCE = Quantity(
    "factor_imbalance",
    "imbalance of the two factors A and B of a head: ‖AᵀA − BᵀB‖ / (‖AᵀA‖ + ‖BᵀB‖), Frobenius norms",
)
# The null test has the same columns in the tables of matrices and of fits.
P_VALUE = Quantity(
    "random_p_value",
    "p-value of the null test: share of random matrices of this shape that look at least as special; missing "
    "for latent attention",
    display_name="p-value, random",
    log=True,
)
OUTLIERS = Quantity(
    "outliers",
    "number of singular values above the largest of a random matrix of this shape",
    kind="small",
    display_name="strong directions",
)
NULL_DRAWS = Quantity("null_draws", "number of random matrices in the null test", kind="small")
ALPHA = Quantity(
    "log10_alpha",
    "largest factor by which later layers can enlarge an error made in this layer, by stored weights (log10)",
    display_name="log₁₀ α",
    axis="amplification (log₁₀ α)",
    error=True,
)

MATRICES = (
    *LOCATION,
    Quantity("family", "family of the model, such as gpt2", kind="text"),
    Quantity("tensors", "names of the stored tensors that form the matrix", kind="texts"),
    Quantity("rows", "number of rows of the matrix", kind="small"),
    Quantity("cols", "number of columns of the matrix", kind="small"),
    Quantity("inner", "head size: inner dimension of the product of two factors", "d", kind="small"),
    Quantity("latent", "whether a factor is itself a product (latent attention)", kind="bool"),
    Quantity(
        "spectral_norm",
        "largest singular value of the stored matrix: the factor by which it stretches one direction",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm",
        "overall size of the stored matrix: root of the sum of squared singular values",
        display_name="Frobenius norm",
        error=True,
        log=True,
    ),
    Quantity("nuclear_norm", "sum of the singular values", error=True, log=True),
    Quantity("norm_21", "(2,1) norm: sum of the Euclidean norms of the columns", log=True),
    Quantity("norm_11", "(1,1) norm: sum of the absolute entries", error=True, log=True),
    Quantity(
        "stable_rank",
        "number of directions that carry the matrix: squared Frobenius norm / squared spectral norm",
        error=True,
        log=True,
    ),
    Quantity(
        "effective_rank",
        "number of directions that the matrix uses, weak ones included: exp(entropy of the spectrum)",
        error=True,
        log=True,
    ),
    Quantity(
        "numerical_rank",
        "number of singular values above round-off: the directions that are not exactly zero",
        kind="small",
        error=True,
    ),
    Quantity("condition", "condition number: largest singular value / smallest", error=True, log=True),
    Quantity(
        "spectral_norm_applied",
        "largest singular value, including the gain of the norm layer before the matrix",
        display_name="norm, applied",
        axis="largest singular value, gain included",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm_applied",
        "Frobenius norm, including the gain of the norm layer before the matrix",
        display_name="Frobenius norm, applied",
        log=True,
    ),
    Quantity(
        "stable_rank_applied",
        "number of directions that carry a head (QK or VO), including the gain of the norm layer before it",
        display_name="stable rank, applied",
        log=True,
    ),
    Quantity(
        "logit_bound",
        "upper bound of a head's attention logits for any input (QK); missing without a norm layer before it",
        log=True,
    ),
    Quantity(
        "logit_typical",
        "estimated spread of a row of attention logits over isotropic tokens: standard deviation (QK)",
        log=True,
    ),
    Quantity(
        "logit_probable",
        "estimate that the largest attention logit of 512 isotropic tokens exceeds with probability at most "
        "0.05 (QK)",
        log=True,
    ),
    Quantity(
        "frobenius_norm_over_initial",
        "growth in training: Frobenius norm / its typical value at initialisation; missing if config.json "
        "does not state the initialisation",
        display_name="size / initial size",
        error=True,
        log=True,
    ),
    Quantity(
        "score_spread_over_initial",
        "growth of attention logits in training: logit_typical / its typical value at initialisation (QK)",
        display_name="logit spread / initial",
        log=True,
    ),
    Quantity(
        "factor_excess",
        "how much larger the two factors of a head are than the smallest factors with the same product",
        display_name="excess of the factors",
    ),
    Quantity(
        "factor_excess_weights",
        "excess of the factors without the bias of queries, which few training runs decay",
        display_name="excess of the weights",
    ),
    Quantity(
        "factor_excess_null",
        "excess of random factors of this shape, for comparison",
        display_name="excess, random factors",
    ),
    IMBALANCE,
    Quantity(
        "gauge",
        "changes of a head's factors that leave its product unchanged: full, rotary (within planes) or none",
        kind="text",
    ),
    Quantity(
        "route",
        "method that computed the singular values: gram, svd, qr, cholesky or lanczos (approximate)",
        kind="text",
    ),
    Quantity("precision", "arithmetic of the factorisation: float32 or float64", kind="text"),
    P_VALUE,
    OUTLIERS,
    NULL_DRAWS,
    Quantity(
        "log10_gamma",
        "sensitivity: how far an error in this matrix moves the output of its layer (log10)",
        "log₁₀ γ",
        error=True,
    ),
    ALPHA,
    Quantity(
        "log10_scale",
        "scale of the matrix in the proxy: sensitivity × amplification × depth (log10)",
        display_name="log₁₀ γαL",
        error=True,
    ),
    Quantity(
        "p", "Schatten index at which the matrix contributes least to the proxy, on a grid", display_name="p*"
    ),
    Quantity(
        "log10_contribution",
        "smallest contribution of the matrix to the proxy (log10)",
        display_name="log₁₀ C(p*)",
        error=True,
    ),
    Quantity("continuous_p", "Schatten index of the smallest contribution, over all of [0, 2]"),
    Quantity(
        "continuous_log10_contribution", "contribution to the proxy at continuous_p (log10)", error=True
    ),
    Quantity("log10_curve", "contribution log₁₀ C(p) on the grid pᵢ = 2i/(length − 1)", kind="floats"),
    Quantity(
        "share",
        "share of the spectrum-adaptive proxy that the matrix contributes",
        display_name="share of the proxy",
        log=True,
    ),
    VERSION,
)

SPECTRA = (
    *LOCATION,
    Quantity("singular_values", "all singular values of the stored matrix, largest first", kind="floats"),
    Quantity(
        "singular_values_applied",
        "singular values of QK or VO, including the gain of the norm layer before it",
        kind="floats",
    ),
)

ALPHA_APPLIED = Quantity(
    "log10_alpha_applied",
    "largest factor by which later layers can enlarge an error, from norms that include gains; no proxy uses "
    "it (log10)",
    display_name="log₁₀ α, applied",
    axis="amplification, gains included (log₁₀ α)",
    error=True,
)
LAYERS = (
    *LOCATION[:3],
    Quantity("applications", "how often the model applies the layer", kind="small"),
    ALPHA,
    ALPHA_APPLIED,
    Quantity("share_qk", "share of QK in the layer's contribution to the proxy", display_name="QK"),
    Quantity("share_vo", "share of VO in the layer's contribution to the proxy", display_name="VO"),
    Quantity(
        "share_cross",
        "share of cross attention in the layer's contribution to the proxy",
        display_name="cross attention",
    ),
    Quantity(
        "share_ffn",
        "share of the feed-forward matrices in the layer's contribution to the proxy",
        display_name="FFN",
    ),
    Quantity(
        "adaptivity",
        "factor by which the layer's contribution grows if all its matrices share the best single p",
        error=True,
    ),
)

APPLICATIONS = (LOCATION[1], ALPHA, ALPHA_APPLIED)

TOWERS = (
    Quantity("tower", "name of the tower, such as text or vision", kind="text"),
    Quantity("layers", "number of layers of the tower", kind="int"),
    Quantity("hidden_size", "width of the tower's layers", kind="int"),
    Quantity("heads", "number of heads of the tower's first layer", kind="int"),
    Quantity("activation", "activation of the tower's feed-forward blocks", kind="text"),
    *(
        Quantity(f"log10_{name}", f"proxy of the tower: {bound.label} (log10)", error=True)
        for name, bound in BOUNDS.items()
    ),
)

ATLAS = (
    Quantity("column", "name of the number that is compared", kind="text"),
    Quantity("value", "value of the audited model"),
    Quantity("trained_low", "smallest value of the trained models"),
    Quantity("trained_high", "largest value of the trained models"),
    Quantity("trained_models", "number of trained models that have a value", kind="int"),
    Quantity("trained_below", "number of trained models with a smaller value", kind="int"),
    Quantity("fresh_low", "smallest value of the untrained models"),
    Quantity("fresh_high", "largest value of the untrained models"),
    Quantity("fresh_models", "number of untrained models that have a value", kind="int"),
    Quantity("kind", "kind of the audited model, such as decoder", kind="text"),
    Quantity(
        "among", "kind of the models it is compared with; missing if they are of all kinds", kind="text"
    ),
    Quantity("trained", "names of the trained models", kind="texts"),
    Quantity("fresh", "names of the untrained models", kind="texts"),
    Quantity("left_out", "models of the atlas that are the audited model itself", kind="texts"),
)

FINDINGS = (
    LOCATION[0],
    Quantity("rule", "name of the check that found the problem", kind="text"),
    Quantity(
        "level", "severity of the finding: note, warning or error", kind="text", choices=dict.fromkeys(LEVELS)
    ),
    *LOCATION[1:],
    Quantity("tensor", "name of the stored tensor, if the problem is in one", kind="text"),
    Quantity("value", "measured number that passed the threshold"),
    Quantity("threshold", "number from which the check reports a finding"),
    Quantity("meaning", "cause and consequence of the finding", kind="text"),
)


def location_row(model: str, location: MatrixLocation) -> dict[str, Any]:
    """Return the cells of the columns `LOCATION` for one matrix."""
    return {
        "model": model,
        "layer": location.layer,
        "stack": location.stack,
        "head": location.head,
        "expert": location.expert,
        "kind": location.kind,
    }
