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

A missing value is null. A feed-forward matrix has no `head` and no `inner`, and a matrix that every token
passes has no `expert`. Errors are null if nothing is approximate, sampled or computed in float32. An exact
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
    Quantity("model", "what rows call the model", kind="text"),
    Quantity("layer", "number of the layer", kind="small"),
    Quantity("stack", "encoder or decoder, where there are several stacks", kind="text"),
    Quantity("head", "number of the head", kind="small"),
    Quantity("expert", "number of the expert", kind="small"),
    Quantity("kind", "kind of matrix", kind="text", choices=KINDS),
)
VERSION = Quantity("attnlaw_version", "version of attnlaw that wrote the row", kind="text")
IMBALANCE = Quantity(
    "factor_imbalance", "‖AᵀA − BᵀB‖ over ‖AᵀA‖ + ‖BᵀB‖ of the factors A and B, Frobenius norms"
)
# The null test has the same columns in the tables of matrices and of fits.
P_VALUE = Quantity(
    "random_p_value",
    "how often a random matrix of this shape looks at least as different; not tested in latent attention",
    display_name="p-value, random",
    log=True,
)
OUTLIERS = Quantity("outliers", "singular values beyond the edge of the random null", kind="small")
NULL_DRAWS = Quantity("null_draws", "random matrices of this shape that it was compared with", kind="small")
ALPHA = Quantity(
    "log10_alpha",
    "amplification by later layers",
    display_name="log₁₀ α",
    axis="amplification by later layers, log₁₀ α",
    error=True,
)

MATRICES = (
    *LOCATION,
    Quantity("family", "family of the model", kind="text"),
    Quantity("tensors", "the stored tensors that it is made of", kind="texts"),
    Quantity("rows", kind="small"),
    Quantity("cols", kind="small"),
    Quantity("inner", "dimension that a product of factors passes", "d", kind="small"),
    Quantity("latent", "whether a factor is a product itself (latent attention)", kind="bool"),
    Quantity("spectral_norm", "the largest singular value", error=True, log=True),
    Quantity(
        "frobenius_norm",
        "root of the sum of squared singular values",
        display_name="Frobenius norm",
        error=True,
        log=True,
    ),
    Quantity("nuclear_norm", "sum of the singular values", error=True, log=True),
    Quantity("norm_21", "sum over columns of their Euclidean norms", log=True),
    Quantity("norm_11", "sum of absolute entries", error=True, log=True),
    Quantity("stable_rank", "Frobenius norm squared over spectral norm squared", error=True, log=True),
    Quantity("effective_rank", "exponential of the spectrum's entropy", error=True, log=True),
    Quantity("numerical_rank", "singular values above round-off", kind="small", error=True),
    Quantity("condition", "largest over smallest singular value", error=True, log=True),
    Quantity(
        "spectral_norm_applied",
        "the largest singular value as applied: the gain of the norm before folded in, "
        "the mean projected out where that norm takes it off",
        display_name="spectral norm, applied",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm_applied",
        "Frobenius norm as applied",
        display_name="Frobenius norm, applied",
        log=True,
    ),
    Quantity(
        "stable_rank_applied",
        "stable rank as applied, of QK and VO",
        display_name="stable rank, applied",
        log=True,
    ),
    Quantity(
        "logit_bound",
        "largest logit of a head for any input, of QK; null where no norm is known to stand before it",
        log=True,
    ),
    Quantity(
        "logit_typical",
        "standard deviation of a row of logits over isotropic tokens, of QK: an estimate",
        log=True,
    ),
    Quantity(
        "logit_probable",
        "largest logit of 512 isotropic tokens but for a chance of 0.05, of QK: an estimate",
        log=True,
    ),
    Quantity(
        "frobenius_norm_over_initial",
        "Frobenius norm over its root mean square at initialisation; null where config.json does not tell",
        display_name="size over initial",
        error=True,
        log=True,
    ),
    Quantity(
        "score_spread_over_initial",
        "logit_typical over its root mean square at initialisation, of QK",
        display_name="score spread over initial",
        log=True,
    ),
    Quantity(
        "factor_excess",
        "how much larger the factors of a head are than the smallest ones with its product; of a group of "
        "queries, and of stored factors",
        display_name="excess of the factors",
    ),
    Quantity(
        "factor_excess_weights",
        "the same without the bias of queries, which few models decay",
        display_name="excess of the weights",
    ),
    Quantity(
        "factor_excess_null",
        "the same of random factors of this shape",
        display_name="excess, random factors",
    ),
    IMBALANCE,
    Quantity(
        "gauge",
        "what may change in the factors of a head and leave its product: full, rotary (planes apart) or none",
        kind="text",
    ),
    Quantity(
        "route", "how the values were computed: gram, svd, qr, cholesky or lanczos (approximate)", kind="text"
    ),
    Quantity("precision", "of the factorisation: float32 or float64", kind="text"),
    P_VALUE,
    OUTLIERS,
    NULL_DRAWS,
    Quantity("log10_gamma", "how far an error in it moves its layer's output", "log₁₀ γ", error=True),
    ALPHA,
    Quantity("log10_scale", "gamma times alpha times depth", display_name="log₁₀ γαL", error=True),
    Quantity("p", "the Schatten index at which it adds least to the proxy", display_name="p*"),
    Quantity("log10_contribution", "what it adds to the proxy", display_name="log₁₀ C(p*)", error=True),
    Quantity("continuous_p", "the same index over all of [0, 2]"),
    Quantity("continuous_log10_contribution", "what it adds at that index", error=True),
    Quantity("log10_curve", "log₁₀ C(p) on the grid pᵢ = 2i/(length − 1)", kind="floats"),
    Quantity("share", "of the spectrum-adaptive proxy", display_name="share of the proxy", log=True),
    VERSION,
)

SPECTRA = (
    *LOCATION,
    Quantity("singular_values", "all of them, descending, not squared", kind="floats"),
    Quantity("singular_values_applied", "of QK and VO as applied", kind="floats"),
)

ALPHA_APPLIED = Quantity(
    "log10_alpha_applied",
    "the same product of spectral norms as applied; in no proxy",
    display_name="log₁₀ α, applied",
    error=True,
)
LAYERS = (
    *LOCATION[:3],
    Quantity("applications", "how often the layer is applied", kind="small"),
    ALPHA,
    ALPHA_APPLIED,
    Quantity("share_qk", "of QK in the layer's contributions", display_name="QK"),
    Quantity("share_vo", "of VO", display_name="VO"),
    Quantity("share_cross", "of cross attention", display_name="cross attention"),
    Quantity("share_ffn", "of the feed-forward matrices", display_name="FFN"),
    Quantity("adaptivity", "cost of the best single p over the post hoc choice", error=True),
)

APPLICATIONS = (LOCATION[1], ALPHA, ALPHA_APPLIED)

TOWERS = (
    Quantity("tower", "name of the tower", kind="text"),
    Quantity("layers", "number of its layers", kind="int"),
    Quantity("hidden_size", "width of its layers", kind="int"),
    Quantity("heads", "heads of its first layer", kind="int"),
    Quantity("activation", "of its feed-forward blocks", kind="text"),
    *(
        Quantity(f"log10_{name}", f"log10 of its proxy: {bound.label}", error=True)
        for name, bound in BOUNDS.items()
    ),
)

ATLAS = (
    Quantity("column", "the number that is compared", kind="text"),
    Quantity("value", "of this model"),
    Quantity("trained_low", "least value of trained models"),
    Quantity("trained_high", "largest value of trained models"),
    Quantity("trained_models", "trained models that have it", kind="int"),
    Quantity("trained_below", "trained models whose value is smaller", kind="int"),
    Quantity("fresh_low", "least value of untrained models"),
    Quantity("fresh_high", "largest value of untrained models"),
    Quantity("fresh_models", "untrained models that have it", kind="int"),
    Quantity("kind", "kind of this model", kind="text"),
    Quantity("among", "kind of the models it is compared with; null for all kinds", kind="text"),
    Quantity("trained", "the trained models", kind="texts"),
    Quantity("fresh", "the untrained models", kind="texts"),
    Quantity("left_out", "models of the atlas that are this one", kind="texts"),
)

FINDINGS = (
    LOCATION[0],
    Quantity("rule", "name of the rule that found it", kind="text"),
    Quantity("level", "how grave it is: note, warning or error", kind="text", choices=dict.fromkeys(LEVELS)),
    *LOCATION[1:],
    Quantity("tensor", "the stored tensor, where it was found in one", kind="text"),
    Quantity("value", "the number that passed the threshold"),
    Quantity("threshold", "of the rule"),
    Quantity("meaning", "what was found, and what that means", kind="text"),
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
