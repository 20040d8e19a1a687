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

from functools import partial
from typing import Any

from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.quantity import Quantity
from attnlaw.theory.bounds import BOUNDS

Count, Text = partial(Quantity, kind="small"), partial(Quantity, kind="text")
LEVELS = ("note", "warning", "error")  # levels of findings, the gravest last
LOCATION = (
    Text("model", "name of the model"),
    Count("layer", "index of the layer, counting from 0"),
    Text("stack", "part of the model, such as encoder, decoder or a tower, if it has several"),
    Count("head", "index of the attention head, counting from 0"),
    Count("expert", "index of the expert in a mixture of experts, counting from 0"),
    Text(
        "kind",
        "kind of weight matrix, such as qk (query-key), vo (value-output) or ffn_in (feed-forward)",
        choices=KINDS,
    ),
)
VERSION = Text("attnlaw_version", "version of attnlaw that computed the row")
IMBALANCE = Quantity(
    "factor_imbalance",
    "imbalance of the two factors A and B of an attention head, from 0 (balanced) to 1: ‖AᵀA − "
    "BᵀB‖ / (‖AᵀA‖ + ‖BᵀB‖) in Frobenius norms",
)
# The null test has the same columns in the tables of matrices and of fits.
P_VALUE = Quantity(
    "random_p_value",
    "p-value: chance that a random matrix of this shape is as unlike other random ones as this "
    "matrix; missing for latent attention",
    display_name="p-value against random matrices",
    log=True,
)
OUTLIERS = Count(
    "outliers",
    "number of singular values above the edge, the largest value that a random matrix of "
    "this shape would have",
    display_name="strong directions",
)
NULL_DRAWS = Count("null_draws", "number of random matrices that the matrix was compared with")
ALPHA = Quantity(
    "log10_alpha",
    "log10 of the largest factor by which later layers can amplify an error of this layer, from "
    "stored weights",
    display_name="log₁₀ α",
    axis="amplification (log₁₀ α)",
    error=True,
)

MATRICES = (
    *LOCATION,
    Text("family", "model family, such as gpt2"),
    Quantity("tensors", "names of the stored tensors that form the matrix", kind="texts"),
    Count("rows", "number of rows of the matrix"),
    Count("cols", "number of columns of the matrix"),
    Count("inner", "head size: inner dimension of the product of a head's two factors", "d"),
    Quantity(
        "latent",
        "whether one of the head's two factors is itself a product, as in latent attention",
        kind="bool",
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
    Quantity("nuclear_norm", "nuclear norm: sum of the singular values of the matrix", error=True, log=True),
    Quantity("norm_21", "(2,1) norm: sum of the Euclidean norms of the columns of the matrix", log=True),
    Quantity(
        "norm_11", "(1,1) norm: sum of the absolute values of all entries of the matrix", error=True, log=True
    ),
    Quantity(
        "stable_rank",
        "number of directions that carry most of the matrix: squared Frobenius norm / squared spectral norm",
        error=True,
        log=True,
    ),
    Quantity(
        "effective_rank",
        "number of directions that the matrix uses, including weak ones: exponential of the entropy of "
        "its singular values",
        error=True,
        log=True,
    ),
    Count(
        "numerical_rank",
        "numerical rank of the matrix: number of singular values that are larger than round-off",
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
        "largest singular value of the matrix, including the gain of the norm layer before it",
        display_name="norm, gain included",
        axis="largest singular value, norm gain included",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm_applied",
        "Frobenius norm of the matrix, including the gain of the norm layer before it",
        display_name="Frobenius norm, gain included",
        log=True,
    ),
    Quantity(
        "stable_rank_applied",
        "number of directions that carry most of a head's matrix, including the gain of the norm layer "
        "before it",
        display_name="stable rank, gain included",
        log=True,
    ),
    Quantity(
        "logit_bound",
        "upper bound of a head's attention logits for any input; missing if no norm layer precedes the head",
        log=True,
    ),
    Quantity(
        "logit_typical",
        "estimated standard deviation of a head's attention logits for tokens in random directions",
        log=True,
    ),
    Quantity(
        "logit_probable",
        "estimated upper limit of a head's attention logits: 512 tokens in random directions exceed it "
        "with at most 5% probability",
        log=True,
    ),
    Quantity(
        "frobenius_norm_over_initial",
        "growth of the matrix in training: Frobenius norm / typical value at initialisation; missing "
        "if config.json does not state it",
        display_name="size / initial size",
        error=True,
        log=True,
    ),
    Quantity(
        "score_spread_over_initial",
        "growth of a head's attention logits in training: typical logit / typical logit at initialisation",
        display_name="logit spread / initial spread",
        log=True,
    ),
    Quantity(
        "factor_excess",
        "relative excess of the size of a head's two factors over the smallest factors with the same product",
        display_name="excess of the factors",
    ),
    Quantity(
        "factor_excess_weights",
        "relative excess of the size of a head's two factors, without the query bias (few training "
        "runs decay biases)",
        display_name="excess of the factors, no biases",
    ),
    Quantity(
        "factor_excess_null",
        "relative excess of the size that random factors of this shape would have",
        display_name="excess of random factors",
    ),
    IMBALANCE,
    Text(
        "gauge",
        "possible changes of a head's factors that keep its output: full, rotary (within each plane of "
        "positions) or none",
    ),
    Text(
        "route",
        "numerical method that computed the singular values: gram, svd, qr, cholesky, or lanczos (an "
        "estimate)",
    ),
    Text("precision", "precision in which the singular values were computed: float32 or float64"),
    P_VALUE,
    OUTLIERS,
    NULL_DRAWS,
    Quantity(
        "log10_gamma",
        "log10 of the sensitivity: how much an error in this matrix changes the output of its layer",
        "log₁₀ γ",
        error=True,
    ),
    ALPHA,
    Quantity(
        "log10_scale",
        "log10 of the weight of the matrix in the generalization proxy: sensitivity × amplification × depth",
        display_name="log₁₀ γαL",
        error=True,
    ),
    Quantity(
        "p",
        "exponent p from a grid between 0 and 2 at which the matrix adds least to the proxy; p = 0 "
        "counts ranks",
        display_name="p*",
    ),
    Quantity(
        "log10_contribution",
        "log10 of the amount that the matrix adds to the proxy at its best exponent p",
        display_name="log₁₀ C(p*)",
        error=True,
    ),
    Quantity(
        "continuous_p",
        "exponent p at which the matrix adds least to the proxy, among all real numbers between 0 and 2",
    ),
    Quantity(
        "continuous_log10_contribution",
        "log10 of the amount that the matrix adds to the proxy at the best real exponent p",
        error=True,
    ),
    Quantity(
        "log10_curve",
        "log10 of the amount that the matrix adds to the proxy, at equally spaced exponents p from 0 to 2",
        kind="floats",
    ),
    Quantity(
        "share",
        "share of the spectrum-adaptive proxy that comes from this matrix",
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
        "singular values of a head's matrix (QK or VO), including the gain of the norm layer before it",
        kind="floats",
    ),
)

ALPHA_APPLIED = Quantity(
    "log10_alpha_applied",
    "log10 of the largest factor by which later layers can amplify an error of this layer, with "
    "norm gains (not used in proxies)",
    display_name="log₁₀ α, gains included",
    axis="amplification, gains included (log₁₀ α)",
    error=True,
)
LAYERS = (
    *LOCATION[:3],
    Count("applications", "number of times that the model applies the layer to an input"),
    ALPHA,
    ALPHA_APPLIED,
    *(
        Quantity(
            f"share_{group}",
            f"share of the layer's part of the proxy that comes from {of}",
            display_name=label,
        )
        for group, label, of in (
            ("qk", "QK", "QK matrices"),
            ("vo", "VO", "VO matrices"),
            ("cross", "cross attention", "cross attention"),
            ("ffn", "FFN", "feed-forward matrices"),
        )
    ),
    Quantity(
        "adaptivity",
        "factor by which the layer's part of the proxy grows if all its matrices share one exponent p",
        error=True,
    ),
)

APPLICATIONS = (LOCATION[1], ALPHA, ALPHA_APPLIED)

TOWERS = (
    Text("tower", "name of the tower (separate stack of layers), such as text or vision"),
    Quantity("layers", "number of layers in the tower (separate stack of layers)", kind="int"),
    Quantity("hidden_size", "width of the tower's layers", kind="int"),
    Quantity("heads", "number of attention heads in the tower's first layer", kind="int"),
    Text("activation", "activation of the tower's feed-forward blocks"),
    *(
        Quantity(f"log10_{name}", f"generalization proxy of the tower: {bound.label} (log10)", error=True)
        for name, bound in BOUNDS.items()
    ),
)

ATLAS = (
    Text("column", "name of the number that is compared between models"),
    Quantity("value", "value of the compared number in the audited model"),
    Quantity("trained_low", "smallest value of the compared number among trained models"),
    Quantity("trained_high", "largest value of the compared number among trained models"),
    Quantity("trained_models", "number of trained models for which the compared number is known", kind="int"),
    Quantity(
        "trained_below", "number of trained models with a smaller value than the audited model", kind="int"
    ),
    Quantity("fresh_low", "smallest value of the compared number among untrained models"),
    Quantity("fresh_high", "largest value of the compared number among untrained models"),
    Quantity("fresh_models", "number of untrained models for which the compared number is known", kind="int"),
    Text("kind", "architecture of the audited model, such as decoder"),
    Text("among", "architecture of the models in the comparison; missing if they are of all kinds"),
    Quantity("trained", "names of the trained models in the comparison", kind="texts"),
    Quantity("fresh", "names of the untrained models in the comparison", kind="texts"),
    Quantity(
        "left_out",
        "models of the atlas that are left out because they are the audited model itself",
        kind="texts",
    ),
)

FINDINGS = (
    LOCATION[0],
    Text("rule", "name of the check that found the problem"),
    Text("level", "severity of the finding: note, warning or error", choices=dict.fromkeys(LEVELS)),
    *LOCATION[1:],
    Text("tensor", "name of the stored tensor, if the problem is in a single tensor"),
    Quantity("value", "measured value that crossed the threshold of the check"),
    Quantity("threshold", "threshold of the check that the measured value crossed"),
    Text("meaning", "explanation of the finding: cause and effect"),
)


def location_row(model: str, location: MatrixLocation) -> dict[str, Any]:
    """Return the cells of the columns `LOCATION` for one matrix."""
    return {"model": model} | {column.name: getattr(location, column.name) for column in LOCATION[1:]}
