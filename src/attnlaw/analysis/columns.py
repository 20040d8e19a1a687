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
    Quantity("kind", "kind of matrix, such as qk, vo or ffn_in", kind="text", choices=KINDS),
)
VERSION = Quantity("attnlaw_version", "version of attnlaw that computed the row", kind="text")
IMBALANCE = Quantity(
    "factor_imbalance",
    "imbalance of the two factors A and B of a head, from 0 (balanced) to 1: ‖AᵀA − BᵀB‖ / (‖AᵀA‖ + "
    "‖BᵀB‖) in Frobenius norms",
)
# The null test has the same columns in the tables of matrices and of fits.
P_VALUE = Quantity(
    "random_p_value",
    "p-value: chance that a random matrix of this shape differs from other random ones as much as this "
    "matrix does; missing for latent attention",
    display_name="p-value, random",
    log=True,
)
OUTLIERS = Quantity(
    "outliers",
    "number of singular values above the edge, the largest that a random matrix of this shape would have",
    kind="small",
    display_name="strong directions",
)
NULL_DRAWS = Quantity(
    "null_draws", "number of random matrices that the matrix was compared with", kind="small"
)
ALPHA = Quantity(
    "log10_alpha",
    "largest factor by which later layers can enlarge an error made in this layer, from stored weights "
    "(log10)",
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
    Quantity("inner", "head size: the inner dimension of a product of two matrices", "d", kind="small"),
    Quantity(
        "latent", "whether one of the two factors is itself a product, as in latent attention", kind="bool"
    ),
    Quantity(
        "spectral_norm",
        "largest singular value of the stored matrix: the most by which it can stretch an input",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm",
        "size of the stored matrix: square root of the sum of its squared singular values",
        display_name="Frobenius norm",
        error=True,
        log=True,
    ),
    Quantity("nuclear_norm", "sum of the singular values", error=True, log=True),
    Quantity("norm_21", "(2,1) norm: sum of the Euclidean norms of the columns", log=True),
    Quantity("norm_11", "(1,1) norm: sum of the absolute entries", error=True, log=True),
    Quantity(
        "stable_rank",
        "number of directions that carry the matrix: its squared Frobenius norm / its squared spectral norm",
        error=True,
        log=True,
    ),
    Quantity(
        "effective_rank",
        "number of directions that the matrix uses, weak ones included: exponential of the entropy of "
        "its singular values",
        error=True,
        log=True,
    ),
    Quantity(
        "numerical_rank",
        "number of singular values above round-off: the directions that are not exactly zero",
        kind="small",
        error=True,
    ),
    Quantity(
        "condition",
        "condition number: largest singular value / smallest singular value",
        error=True,
        log=True,
    ),
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
        "bound of the attention logits of a head (QK) for any input; missing if no norm layer "
        "precedes the head",
        log=True,
    ),
    Quantity(
        "logit_typical",
        "estimated spread (standard deviation) of the attention logits of a head (QK) for tokens in "
        "random directions",
        log=True,
    ),
    Quantity(
        "logit_probable",
        "estimated limit of the attention logits of a head (QK): 512 tokens in random directions "
        "exceed it with a chance of at most 5%",
        log=True,
    ),
    Quantity(
        "frobenius_norm_over_initial",
        "growth in training: Frobenius norm / typical Frobenius norm at initialisation; missing if "
        "config.json does not state the initialisation",
        display_name="size / initial size",
        error=True,
        log=True,
    ),
    Quantity(
        "score_spread_over_initial",
        "growth of the attention logits in training: logit_typical / typical value at initialisation (QK)",
        display_name="logit spread / initial",
        log=True,
    ),
    Quantity(
        "factor_excess",
        "share by which the two factors of a head are larger than the smallest factors with the same product",
        display_name="excess of the factors",
    ),
    Quantity(
        "factor_excess_weights",
        "factor_excess without the bias of queries, because few training runs decay biases",
        display_name="excess of the weights",
    ),
    Quantity(
        "factor_excess_null",
        "value of factor_excess for random factors of this shape",
        display_name="excess, random factors",
    ),
    IMBALANCE,
    Quantity(
        "gauge",
        "freedom to change the factors of a head without changing the head: full, rotary (within each "
        "plane of positions) or none",
        kind="text",
    ),
    Quantity(
        "route",
        "method that computed the singular values: gram, svd, qr, cholesky, or lanczos (an estimate)",
        kind="text",
    ),
    Quantity("precision", "arithmetic of the factorisation: float32 or float64", kind="text"),
    P_VALUE,
    OUTLIERS,
    NULL_DRAWS,
    Quantity(
        "log10_gamma",
        "how much an error in this matrix changes the output of its layer (sensitivity, log10)",
        "log₁₀ γ",
        error=True,
    ),
    ALPHA,
    Quantity(
        "log10_scale",
        "weight of the matrix in the proxy: sensitivity × amplification × depth (log10)",
        display_name="log₁₀ γαL",
        error=True,
    ),
    Quantity(
        "p",
        "exponent p between 0 and 2 at which the matrix adds least to the proxy, taken from a grid; p "
        "= 0 counts ranks",
        display_name="p*",
    ),
    Quantity(
        "log10_contribution",
        "amount that the matrix adds to the proxy at this p (log10)",
        display_name="log₁₀ C(p*)",
        error=True,
    ),
    Quantity(
        "continuous_p",
        "exponent p at which the matrix adds least to the proxy, among all numbers between 0 and 2",
    ),
    Quantity(
        "continuous_log10_contribution",
        "amount that the matrix adds to the proxy at continuous_p (log10)",
        error=True,
    ),
    Quantity(
        "log10_curve",
        "amount that the matrix adds to the proxy (log10), at equally spaced p from 0 to 2",
        kind="floats",
    ),
    Quantity(
        "share",
        "share of the matrix in the spectrum-adaptive proxy",
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
    "largest factor by which later layers can enlarge an error made in this layer, with gains of "
    "norm layers; no proxy uses it (log10)",
    display_name="log₁₀ α, applied",
    axis="amplification, gains included (log₁₀ α)",
    error=True,
)
LAYERS = (
    *LOCATION[:3],
    Quantity("applications", "how often the model applies the layer", kind="small"),
    ALPHA,
    ALPHA_APPLIED,
    Quantity("share_qk", "share of the QK matrices in what the layer adds to the proxy", display_name="QK"),
    Quantity("share_vo", "share of the VO matrices in what the layer adds to the proxy", display_name="VO"),
    Quantity(
        "share_cross",
        "share of cross attention in what the layer adds to the proxy",
        display_name="cross attention",
    ),
    Quantity(
        "share_ffn",
        "share of the feed-forward matrices in what the layer adds to the proxy",
        display_name="FFN",
    ),
    Quantity(
        "adaptivity",
        "factor by which the layer adds more to the proxy if all its matrices share one p",
        error=True,
    ),
)

APPLICATIONS = (LOCATION[1], ALPHA, ALPHA_APPLIED)

TOWERS = (
    Quantity("tower", "name of the tower, such as text or vision", kind="text"),
    Quantity("layers", "number of layers of the tower", kind="int"),
    Quantity("hidden_size", "width of the tower's layers", kind="int"),
    Quantity("heads", "number of attention heads in the tower's first layer", kind="int"),
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
    Quantity(
        "left_out",
        "models of the atlas that are not compared, because they are the audited model",
        kind="texts",
    ),
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
    Quantity("threshold", "limit that the value passed"),
    Quantity("meaning", "explanation of the finding: cause and effect", kind="text"),
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
